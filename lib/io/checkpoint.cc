#include "lib/io/checkpoint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/io/atomic_file.h"
#include "lib/io/mapped_file.h"
#include "lib/io/safetensors.h"
#include "lib/io/sha256.h"
#include "lib/io/write_safetensors.h"

namespace lumen::io {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kFormat = 1;
constexpr const char* kManifest = "manifest.json";
constexpr const char* kWeights = "weights.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kState = "state.json";
constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kWriting = ".writing-";
constexpr std::string_view kRemoving = ".removing-";
constexpr std::string_view kReplaced = ".replaced-";

void make_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0) return;
  if (errno == EEXIST && is_directory(path)) return;
  fail_system(path, "making the directory");
}

void rename_directory(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_system(to, "renaming");
}

void remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
}

std::string hidden(const std::string& path, std::string_view prefix) {
  const size_t slash = path.find_last_of('/');
  return str(path.substr(0, slash + 1), prefix, path.substr(slash + 1));
}

// Gives the checkpoint `replaced` its name `path` back, unless what replaces it has that.
void restore_replaced(const std::string& replaced, const std::string& path) {
  if (is_directory(path)) return remove_tree(replaced);
  std::error_code error;
  fs::rename(replaced, path, error);
}

// N of "step-N", or −1.
int64_t step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return -1;
  const std::string digits = name.substr(kPrefix.size());
  int64_t step = -1;
  return parse_number(digits, step) && step >= 0 && str(step) == digits ? step : -1;
}

std::string file_hash(const std::string& path, uint64_t& bytes) {
  constexpr size_t kHashedAtOnce = size_t{8} << 20;
  const auto buffer = map_file(path);
  bytes = buffer->bytes;
  const std::span<const std::byte> content(buffer->data, buffer->bytes);
  Sha256 hash;
  for (size_t begin = 0; begin < content.size(); begin += kHashedAtOnce) {
    const auto piece = content.subspan(begin, std::min(kHashedAtOnce, content.size() - begin));
    hash.update(piece);
    drop_pages(*buffer, piece);  // a run that reads back what it saved needs no memory for it
  }
  return hash.hex();
}

Json describe_file(const std::string& path) {
  uint64_t bytes = 0;
  const std::string hash = file_hash(path, bytes);
  return {{"bytes", bytes}, {"sha256", hash}};
}

// The content of a manifest, checked.
struct Manifest {
  CheckpointEntry entry;
  std::vector<std::pair<std::string, Json>> files;
};

Manifest parse_manifest(const std::string& path) {
  const std::string file = path + "/" + kManifest;
  const Json json = read_json(file);
  return with_context(place_of(file), [&] {
    Manifest manifest;
    get_int(json, "format", kFormat, kFormat);
    manifest.entry = {path, get_int(json, "step", 0, INT64_MAX), Json::object()};
    if (const Json* about = find_value(json, "about")) manifest.entry.about = *about;
    const Json* files = find_value(json, "files");
    for (const char* name : {kWeights, kOptimizer, kState}) {
      const Json* description = files ? find_value(*files, name) : nullptr;
      if (!description) fail(ErrorKind::kMalformed, "the file ", name, " is not listed");
      get_int(*description, "bytes", 0, INT64_MAX);
      get_string(*description, "sha256");
      manifest.files.emplace_back(name, *description);
    }
    const int64_t named = step_of(path.substr(path.find_last_of('/') + 1));
    if (named >= 0 && named != manifest.entry.step) {
      fail(ErrorKind::kMalformed, "it says step ", manifest.entry.step,
           ", the directory is called step-", named);
    }
    return manifest;
  });
}

void verify_files(const std::string& path, const Manifest& manifest) {
  for (const auto& [name, description] : manifest.files) {
    const std::string file = path + "/" + name;
    const int64_t expected = description["bytes"].get<int64_t>();
    uint64_t bytes = 0;
    const std::string hash = file_hash(file, bytes);
    if (bytes != static_cast<uint64_t>(expected)) {
      fail(ErrorKind::kMalformed, place_of(file), ": has ", bytes, " bytes, the manifest says ",
           expected);
    }
    if (hash != description["sha256"].get<std::string>()) {
      fail(ErrorKind::kMalformed, place_of(file),
           ": is damaged: its SHA-256 is not the manifest's");
    }
  }
}

// Whether what is at `path` is a directory with nothing in it but files of a checkpoint.
bool has_only_own_files(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(path, error))) return false;
  const std::vector<std::string> names = names_in(path, error);
  return !error && std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    const bool is_own =
        name == kWeights || name == kOptimizer || name == kState || name == kManifest;
    std::error_code ignored;
    return is_own && fs::is_regular_file(fs::symlink_status(path + "/" + name, ignored));
  });
}

// Of a manifest that cannot be used: whether it is not there or damaged, and not one of another
// format or step.
bool is_broken_manifest(const std::string& file, int64_t step) {
  std::error_code error;
  if (fs::symlink_status(file, error).type() == fs::file_type::not_found) return true;
  std::string text;
  try {
    text = read_file(file, limits::kJsonBytes);
  } catch (const Error&) {
    return false;
  }
  try {
    const Json json = parse_json(text, kManifest);
    const auto differs = [&](const char* key, int64_t expected) {
      const Json* number = find_value(json, key);
      return number && number->is_number_integer() && *number != expected;
    };
    return !differs("format", kFormat) && !differs("step", step);
  } catch (const Error&) {
    return true;
  }
}

void write_files(const std::string& directory, const Checkpoint& checkpoint, CommitPoint at) {
  write_safetensors(directory + "/" + kWeights, checkpoint.weights);
  at("weights");
  write_safetensors(directory + "/" + kOptimizer, checkpoint.optimizer);
  at("optimizer");
  write_file_atomically(directory + "/" + kState, checkpoint.state.dump(1) + "\n");
  at("state");
  Json files = Json::object();
  for (const char* name : {kWeights, kOptimizer, kState}) {
    files[name] = describe_file(directory + "/" + name);
  }
  const Json manifest = {{"format", kFormat},
                         {"step", checkpoint.step},
                         {"about", checkpoint.about},
                         {"files", files}};
  write_file_atomically(directory + "/" + kManifest, manifest.dump(1) + "\n");
  at("manifest");
}

}  // namespace

std::string write_checkpoint(const std::string& directory, const Checkpoint& checkpoint,
                             CommitPoint at) {
  const std::string path = str(directory, "/", kPrefix, checkpoint.step);
  const std::string writing = hidden(path, kWriting), replaced = hidden(path, kReplaced);
  make_directory(directory);
  at("begin");
  remove_tree(writing);
  try {
    make_directory(writing);
    write_files(writing, checkpoint, at);
    sync_path(writing);
    at("directory");
    // The one that is there has the same step. It stays until this one has its name.
    if (is_directory(path)) {
      remove_tree(replaced);
      rename_directory(path, replaced);
      at("replaced");
    }
    rename_directory(writing, path);
  } catch (const Error&) {
    remove_tree(writing);
    restore_replaced(replaced, path);
    throw;
  }
  at("renamed");
  sync_path(directory);
  at("committed");
  remove_tree(replaced);
  return path;
}

std::vector<CheckpointEntry> list_checkpoints(const std::string& directory,
                                              std::vector<std::string>* damaged) {
  std::vector<CheckpointEntry> entries;
  std::error_code ignored;
  for (const std::string& name : names_in(directory, ignored)) {
    if (step_of(name) < 0) continue;
    try {
      entries.push_back(read_manifest(directory + "/" + name));
    } catch (const Error& problem) {
      if (damaged) damaged->push_back(problem.what());
    }
  }
  std::sort(entries.begin(), entries.end(),
            [](const CheckpointEntry& a, const CheckpointEntry& b) { return a.step > b.step; });
  return entries;
}

std::vector<BrokenCheckpoint> broken_checkpoints(const std::string& directory) {
  std::vector<BrokenCheckpoint> broken;
  std::error_code ignored;
  for (const std::string& name : names_in(directory, ignored)) {
    const std::string path = directory + "/" + name;
    const int64_t step = step_of(name);
    if (step < 0 || !has_only_own_files(path)) continue;
    try {
      read_manifest(path);
    } catch (const Error& problem) {
      if (is_broken_manifest(path + "/" + kManifest, step)) {
        broken.push_back({path, step, problem.what()});
      }
    }
  }
  return broken;
}

CheckpointEntry read_manifest(const std::string& path) {
  return parse_manifest(path).entry;
}

Checkpoint read_checkpoint(const std::string& path) {
  const Manifest manifest = parse_manifest(path);
  verify_files(path, manifest);
  Checkpoint checkpoint;
  checkpoint.path = path;
  checkpoint.step = manifest.entry.step;
  checkpoint.about = manifest.entry.about;
  checkpoint.weights = read_safetensors(path + "/" + kWeights)->arrays();
  checkpoint.optimizer = read_safetensors(path + "/" + kOptimizer)->arrays();
  checkpoint.state = read_json(path + "/" + kState);
  return checkpoint;
}

std::string verify_checkpoint(const std::string& path) {
  try {
    verify_files(path, parse_manifest(path));
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

void remove_checkpoint(const std::string& path, CommitPoint at) {
  const std::string removing = hidden(path, kRemoving);
  remove_tree(removing);
  rename_directory(path, removing);
  at("prune-hidden");
  remove_tree(removing);
  at("pruned");
}

void require_writable_checkpoints(const std::string& directory) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(directory, ignored))) return;
  make_directory(directory);
  const std::string trial = str(directory, "/", kWriting, "trial");
  remove_tree(trial);
  make_directory(trial);
  remove_tree(trial);
}

void clean_checkpoints(const std::string& directory) {
  std::error_code ignored;
  const std::vector<std::string> names = names_in(directory, ignored);
  for (const std::string& name : names) {
    if (name.starts_with(kWriting) || name.starts_with(kRemoving)) {
      remove_tree(str(directory, "/", name));
    }
  }
  for (const std::string& name : names) {
    if (!name.starts_with(kReplaced)) continue;
    restore_replaced(str(directory, "/", name), str(directory, "/", name.substr(kReplaced.size())));
  }
}

}  // namespace lumen::io
