#include "lib/io/hf_cache.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "lib/base/error.h"
#include "lib/io/mapped_file.h"

namespace lumen::io {
namespace {

// The value of an environment variable, "" if unset.
std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// One component of a repository's name or revision: what the Hub allows, and never "..".
bool is_plain_component(std::string_view text) {
  if (text.empty() || text.size() > 96 || text[0] == '.' || text[0] == '-') return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  });
}

struct RepositoryName {
  std::string folder;  // "models--org--name"
  std::string revision = "main";
};

bool parse_name(std::string_view name, RepositoryName& repository) {
  if (const size_t at = name.find('@'); at != std::string_view::npos) {
    repository.revision = name.substr(at + 1);
    name = name.substr(0, at);
  }
  const size_t slash = name.find('/');
  if (slash == std::string_view::npos) return false;
  const std::string_view organisation = name.substr(0, slash), model = name.substr(slash + 1);
  repository.folder = str("models--", organisation, "--", model);
  return is_plain_component(organisation) && is_plain_component(model) &&
         is_plain_component(repository.revision);
}

// The snapshot of a revision, which is a reference such as "main" or itself a commit; or "".
std::string find_snapshot(const std::string& repository, const std::string& revision) {
  constexpr uint64_t kMaxCommit = 128;
  std::string commit = revision;
  const std::string reference = repository + "/refs/" + revision;
  if (is_regular_file(reference)) {
    commit = read_file(reference, kMaxCommit);
    commit.erase(commit.find_last_not_of(" \t\r\n") + 1);
    if (!is_plain_component(commit)) return "";
  }
  const std::string snapshot = repository + "/snapshots/" + commit;
  return is_directory(snapshot) ? snapshot : "";
}

}  // namespace

std::vector<std::string> hf_cache_directories() {
  std::vector<std::string> directories;
  const auto add = [&](const char* variable, const char* below) {
    const std::string value = environment(variable);
    if (!value.empty()) directories.push_back(value + below);
  };
  add("HF_HUB_CACHE", "");
  add("HF_HOME", "/hub");
  add("XDG_CACHE_HOME", "/huggingface/hub");
  add("HOME", "/.cache/huggingface/hub");
  return directories;
}

std::string find_model(const std::string& name) {
  struct stat status;
  // A path that is there but cannot be followed is for the reader to complain about.
  if (::stat(name.c_str(), &status) == 0 || (errno != ENOENT && errno != ENOTDIR)) return name;
  RepositoryName repository;
  if (!parse_name(name, repository)) {
    const bool is_address = name.find("://") != name.npos;
    fail(ErrorKind::kMissing, place_of(name), ": no such file or directory",
         is_address ? "; nothing is downloaded: name a file, a directory, or org/name of what is "
                      "in the Hugging Face cache"
                    : "");
  }
  std::string places;
  for (const std::string& directory : hf_cache_directories()) {
    const std::string folder = str(directory, "/", repository.folder);
    const std::string snapshot = find_snapshot(folder, repository.revision);
    if (!snapshot.empty()) return snapshot;
    places += str(places.empty() ? "" : ", ", place_of(folder));
  }
  fail(ErrorKind::kMissing, place_of(name),
       ": no such file or directory, and not in the Hugging Face cache; looked for revision ",
       quoted(repository.revision), " in ", places.empty() ? "no directory" : places);
}

}  // namespace lumen::io
