#include "lib/data/source.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/data/builtin.h"
#include "lib/io/gzip.h"
#include "lib/io/mapped_file.h"
#include "lib/io/sha256.h"

namespace lumen::data {

std::span<const std::byte> Source::bytes() const {
  if (file_) return {file_->data, file_->bytes};
  return std::as_bytes(std::span(own_));
}

std::string_view Source::text() const {
  return {reinterpret_cast<const char*>(bytes().data()), bytes().size()};
}

void missing_data(const std::string& path, std::string_view what) {
  fail(ErrorKind::kMissing, io::place_of(path), ": ", what,
       "; name files that exist, or set LUMEN_DATA to the directory of the data sets");
}

Source read_source(const std::string& path, uint64_t max_bytes, SourceFile& info) {
  info.path = path;
  if (is_builtin(path)) {
    std::string content = builtin_text(path);
    info.bytes = content.size();
    info.sha256 = io::sha256(content);
    return Source(path, std::move(content));
  }
  std::error_code error;
  if (!std::filesystem::exists(path, error) && !error) missing_data(path, "no such file");
  std::shared_ptr<const Buffer> file = io::map_file(path);
  const std::span<const std::byte> bytes(file->data, file->bytes);
  info.bytes = bytes.size();
  info.sha256 = io::sha256(bytes);
  const std::string place = io::place_of(path);
  return with_context(place, [&] {
    if (const std::string hint = io::content_hint(bytes.first(std::min<size_t>(bytes.size(), 512)));
        !hint.empty()) {
      fail(ErrorKind::kMalformed, "is no data: ", hint);
    }
    if (io::is_gzip(bytes)) return Source(place, io::gunzip(bytes, max_bytes));
    if (bytes.size() > max_bytes) {
      fail(ErrorKind::kMalformed, "the file has ", bytes.size(), " bytes; the limit is ",
           max_bytes);
    }
    return Source(place, std::move(file));
  });
}

std::vector<std::string> expand_paths(const std::vector<std::string>& paths) {
  std::vector<std::string> found;
  for (const std::string& path : paths) {
    std::error_code error;
    if (path.find_first_of("*?") == std::string::npos || std::filesystem::exists(path, error)) {
      found.push_back(path);
      continue;
    }
    glob_t matches = {};
    const int result = ::glob(path.c_str(), GLOB_NOSORT, nullptr, &matches);
    std::vector<std::string> names(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
    ::globfree(&matches);
    if (result == GLOB_NOSPACE) fail(ErrorKind::kResource, "no memory to look up ", quoted(path));
    if (names.empty()) missing_data(path, "no file matches this pattern");
    std::sort(names.begin(), names.end());
    found.insert(found.end(), names.begin(), names.end());
  }
  return found;
}

std::vector<std::string> list_directory(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> names = io::names_in(directory, error);
  if (error) missing_data(directory, error.message());
  std::erase_if(names, [](const std::string& name) { return name[0] == '.'; });
  if (names.size() > limits::kDataFiles) {
    fail(ErrorKind::kMalformed, io::place_of(directory), ": has more than ", limits::kDataFiles,
         " files");
  }
  return names;
}

}  // namespace lumen::data
