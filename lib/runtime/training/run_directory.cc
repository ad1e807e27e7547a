#include "lib/runtime/training/run_directory.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/io/atomic_file.h"
#include "lib/io/mapped_file.h"

namespace lumen::runtime {
namespace {

namespace fs = std::filesystem;

// What makes a result a whole model or an adapter.
constexpr const char* kKinds[] = {"model.safetensors",   "config.json", "adapter_model.safetensors",
                                  "adapter_config.json", kGgufModel,    kGgufAdapter};

constexpr const char* kLock = ".lock";

void make_directories(const std::string& path) {
  for (size_t end = 0; end != path.npos;) {
    end = path.find('/', end + 1);
    const std::string part = path.substr(0, end);
    if (part.empty() || part == "/") continue;
    if (::mkdir(part.c_str(), 0777) == 0 || errno == EEXIST) continue;
    const int error = errno;
    if (io::is_directory(part)) continue;
    errno = error;
    io::fail_system(part, "making the directory");
  }
  if (!io::is_directory(path)) {
    fail(ErrorKind::kCannotCreate, io::place_of(path), ": is there and is no directory");
  }
}

bool is_weights(const std::string& name) {
  return name.ends_with(".safetensors") || name.ends_with(".gguf");
}

}  // namespace

RunDirectory::RunDirectory(const std::string& path, bool force) : path_(path) {
  while (path_.size() > 1 && path_.ends_with('/')) path_.pop_back();
  std::error_code ignored;
  made_ = !fs::exists(path_, ignored);
  make_directories(path_);
  if (!force) refuse_foreign_model();
  lock();
  io::remove_temporary_files(path_);
}

RunDirectory::~RunDirectory() {
  std::error_code ignored;
  const bool is_empty = io::names_in(path_, ignored) == std::vector<std::string>{kLock};
  if (!made_ || !is_empty) return;
  lock_->remove_at_end();
  lock_.reset();
  fs::remove(path_, ignored);
}

std::vector<std::string> RunDirectory::traces() const {
  if (!made_) return {};
  return {file(kLock), path_};
}

bool RunDirectory::is_result() const {
  return io::is_regular_file(file("run.json")) || io::is_regular_file(file(kMetricsRows));
}

void RunDirectory::refuse_foreign_model() const {
  if (is_result()) return;
  std::error_code ignored;
  for (const std::string& name : io::names_in(path_, ignored)) {
    if (is_weights(name) || name == "config.json") {
      fail(ErrorKind::kCannotCreate, io::place_of(path_), ": holds a model (", quoted(name),
           ") that is not the result of a run; give another --out, or --force to write over it");
    }
  }
}

void RunDirectory::lock() {
  lock_.emplace(file(kLock), io::place_of(path_), "run", "give another --out");
}

void RunDirectory::refuse_inputs(const std::vector<std::string>& inputs,
                                 const std::vector<std::string>& exported) const {
  std::vector<std::string> written = {"run.json",  kMetricsRows, kMetricsCsv, kMetricsEvents,
                                      kSampleRows, kLossCurve,   kLock};
  if (!io::is_regular_file(file("run.json"))) written.emplace_back("recipe.toml");
  written.insert(written.end(), exported.begin(), exported.end());
  std::error_code ignored;
  const fs::path here = fs::weakly_canonical(path_, ignored);
  for (const std::string& input : inputs) {
    if (!fs::exists(input, ignored)) continue;  // built in
    const fs::path below = fs::canonical(input, ignored).lexically_relative(here);
    const std::string first = below.empty() ? "" : below.begin()->string();
    const bool removed = first == below && is_weights(first);  // with --force
    const bool is_written = std::any_of(written.begin(), written.end(), [&](const auto& name) {
      return fs::equivalent(input, file(name), ignored);
    });
    if (!is_written && !removed && first != "." && first != "checkpoints") continue;
    fail(ErrorKind::kCannotCreate, io::place_of(path_), ": the run reads ", quoted(input),
         " and would write over it; give another --out");
  }
}

bool RunDirectory::has_run() const {
  std::error_code error;
  return fs::exists(file(kMetricsRows), error) ||
         (fs::exists(checkpoints(), error) && !fs::is_empty(checkpoints(), error));
}

void RunDirectory::clear() {
  std::error_code error;
  // Weights of a run would be taken for those of the recipe that now stands beside them.
  if (is_result()) {
    for (const std::string& name : io::names_in(path_, error)) {
      if (is_weights(name)) fs::remove(file(name), error);
    }
  }
  for (const char* name :
       {"checkpoints", kMetricsRows, kMetricsCsv, kSampleRows, kMetricsEvents, kLossCurve}) {
    fs::remove_all(file(name), error);
  }
}

void RunDirectory::publish(FunctionRef<void(const std::string& directory)> write) {
  const std::string temporary = file(".exporting");
  std::error_code ignored;
  fs::remove_all(temporary, ignored);
  if (::mkdir(temporary.c_str(), 0777) != 0) io::fail_system(temporary, "making the directory");
  try {
    write(temporary);
    std::vector<std::string> names = io::names_in(temporary);
    std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
      return std::pair(!is_weights(a), a) < std::pair(!is_weights(b), b);
    });
    for (const std::string& name : names) io::sync_path(temporary + "/" + name);
    for (const std::string& name : names) {
      if (::rename((temporary + "/" + name).c_str(), file(name).c_str()) != 0) {
        io::fail_system(file(name), "renaming");
      }
    }
    for (const char* name : kKinds) {
      if (std::find(names.begin(), names.end(), name) == names.end()) {
        fs::remove(file(name), ignored);
      }
    }
  } catch (...) {
    fs::remove_all(temporary, ignored);
    throw;
  }
  fs::remove_all(temporary, ignored);
  io::sync_path(path_);
}

}  // namespace lumen::runtime
