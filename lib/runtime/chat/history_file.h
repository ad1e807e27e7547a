// Lines typed in earlier sessions.
#pragma once

#include <string>
#include <vector>

namespace lumen::runtime {

// A file of entries, each a JSON string on a line of its own, readable by its owner only. Losing it
// must never stop a chat: what cannot be read or written is left out silently.
class HistoryFile {
 public:
  static constexpr size_t kEntries = 1000;

  // `path` "" keeps nothing. Missing directories are made.
  explicit HistoryFile(std::string path) : path_(std::move(path)) {}

  // The last kEntries entries, oldest first. A file with more than twice as many is cut to these.
  std::vector<std::string> load() const;

  void append(const std::string& entry) const;

 private:
  std::string path_;
};

}  // namespace lumen::runtime
