#include "lib/runtime/tool/output_directory.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "lib/base/error.h"
#include "lib/io/atomic_file.h"
#include "lib/io/mapped_file.h"
#include "lib/runtime/training/export_model.h"

namespace lumen::runtime {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLock = ".lock";
constexpr const char* kStaging = ".converting";

// What a reader of the directory would open as weights of the model.
bool is_model_weights(const std::string& name) {
  const bool model = name.starts_with("model") || name.starts_with("pytorch_model");
  return model && (name.ends_with(".safetensors") || name.ends_with(".bin") ||
                   name.ends_with(".index.json"));
}

}  // namespace

void check_output_directory(const std::string& path, bool force) {
  if (force || !io::is_directory(path)) return;
  for (const std::string& name : io::names_in(path)) {
    if (name == kLock || name == kStaging) continue;
    fail(ErrorKind::kCannotCreate, io::place_of(path), ": has files in it (", quoted(name),
         "); --force replaces the model there");
  }
}

OutputDirectory::OutputDirectory(const std::string& path, bool force) : path_(path) {
  while (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
  const bool is_made = ::mkdir(path_.c_str(), 0777) == 0;
  const int error = errno;
  if (is_made) made_.emplace(path_, io::Unfinished::Kind::kEmptyDirectory);
  if (!is_made && !io::is_directory(path_)) {
    fail(io::creation_error(error), io::place_of(path_),
         ": the directory cannot be made: ", std::strerror(error));
  }
  try {
    claim(force);
  } catch (...) {
    abandon();
    throw;
  }
}

void OutputDirectory::claim(bool force) {
  lock_.emplace(path_ + "/" + kLock, io::place_of(path_), "conversion", "name another output");
  lock_->remove_at_end();
  check_output_directory(path_, force);
}

OutputDirectory::~OutputDirectory() {
  abandon();
}

void OutputDirectory::abandon() {
  lock_.reset();
  std::error_code not_empty;
  if (made_) fs::remove(path_, not_empty);
}

void OutputDirectory::publish(FunctionRef<void(const std::string& directory)> write) {
  const std::string staging = path_ + "/" + kStaging;
  std::error_code ignored;
  fs::remove_all(staging, ignored);  // of a conversion that was killed
  const auto check = [&](int result, const std::string& at, std::string_view doing) {
    if (result == 0) return;
    const int error = errno;
    fail(ErrorKind::kIo, io::place_of(at), ": ", doing, " failed: ", std::strerror(error));
  };
  const io::Unfinished unfinished(staging, io::Unfinished::Kind::kTree);
  try {
    check(::mkdir(staging.c_str(), 0777), staging, "making the directory");
    write(staging);
    fs::remove(path_ + "/config.json", ignored);
    const std::vector<std::string> exported = exported_names();
    for (const std::string& name : io::names_in(path_)) {
      const bool is_old = std::find(exported.begin(), exported.end(), name) != exported.end();
      if (is_old || is_model_weights(name)) fs::remove(path_ + "/" + name, ignored);
    }
    std::vector<std::string> names = io::names_in(staging);
    std::stable_partition(names.begin(), names.end(),
                          [](const std::string& name) { return name != "config.json"; });
    for (const std::string& name : names) {
      const std::string to = path_ + "/" + name;
      check(::rename((staging + "/" + name).c_str(), to.c_str()), to, "renaming");
    }
    io::sync_path(path_);
  } catch (...) {
    fs::remove_all(staging, ignored);
    throw;
  }
  fs::remove_all(staging, ignored);
  made_.reset();
}

}  // namespace lumen::runtime
