#include "lib/runtime/chat/history_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/io/json.h"
#include "lib/io/mapped_file.h"
#include "lib/runtime/tool/output.h"

namespace lumen::runtime {
namespace {

constexpr uint64_t kMaxBytes = 16 << 20;

std::string to_line(const std::string& entry) {
  return io::Json(to_valid_utf8(entry)).dump() + "\n";
}

void write_private(const std::string& path, int flags, const std::string& text) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  const int file = ::open(path.c_str(), flags | kFlags, 0600);
  if (file < 0) return;
  struct stat status = {};
  if (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {  // a FIFO waits for its reader
    ::close(file);
    return;
  }
  ::fchmod(file, 0600);
  try {
    write_all(file, text, path);
  } catch (const Error&) {
    // The disk is full; the chat goes on.
  }
  ::close(file);
}

}  // namespace

std::vector<std::string> HistoryFile::load() const {
  std::vector<std::string> entries;
  std::string content;
  try {
    if (!path_.empty()) content = io::read_file(path_, kMaxBytes);
  } catch (const Error&) {
    return entries;
  }
  std::string_view rest = content;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const io::Json entry = io::Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (entry.is_string()) entries.push_back(entry.get<std::string>());
  }
  if (entries.size() > kEntries) {
    const bool is_long = entries.size() > 2 * kEntries;
    entries.erase(entries.begin(), entries.end() - kEntries);
    if (is_long) {
      std::string text;
      for (const std::string& entry : entries) text += to_line(entry);
      const std::string fresh = path_ + ".new";
      write_private(fresh, O_TRUNC, text);
      ::rename(fresh.c_str(), path_.c_str());
    }
  }
  return entries;
}

void HistoryFile::append(const std::string& entry) const {
  if (path_.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
  write_private(path_, O_APPEND, to_line(entry));
}

}  // namespace lumen::runtime
