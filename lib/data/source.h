// The files behind a data set: found by pattern, read or mapped, unpacked, hashed.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/data/data.h"
#include "lib/tensor/array.h"

namespace lumen::data {

// The content of one file, unpacked if it was compressed.
class Source {
 public:
  Source(std::string place, std::string content) : place_(std::move(place)), own_(content) {}
  Source(std::string place, std::shared_ptr<const Buffer> file)
      : place_(std::move(place)), file_(std::move(file)) {}

  // The file's name as messages have it.
  const std::string& place() const { return place_; }
  std::span<const std::byte> bytes() const;
  std::string_view text() const;
  // The mapped file, null if the content was unpacked or made.
  const std::shared_ptr<const Buffer>& file() const { return file_; }

 private:
  std::string place_, own_;
  std::shared_ptr<const Buffer> file_;
};

// Reads `path`, a file or "builtin:NAME", and notes path, size and hash in `info`. Content over
// `max_bytes` is refused. Throws Error: kMissing as missing_data, kMalformed, kIo.
Source read_source(const std::string& path, uint64_t max_bytes, SourceFile& info);

// The files that `paths` name, each pattern's in sorted order; names without * and ? stay as they
// are. A directory stands for itself. Throws Error(kMissing) for a pattern that matches nothing.
std::vector<std::string> expand_paths(const std::vector<std::string>& paths);

// The names in `directory`, sorted; hidden ones are left out. Throws Error(kMissing).
std::vector<std::string> list_directory(const std::string& directory);

// Refuses with "PATH: WHAT; " and how the data sets of the recipes are found.
[[noreturn]] void missing_data(const std::string& path, std::string_view what);

}  // namespace lumen::data
