// One writer at a time for an output.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lib/io/unfinished.h"

namespace lumen::io {

// A file that is locked (flock) while this lives, or until the process ends, however it does; it
// names its holder. On a file system without locks nobody is kept out. Not thread-safe.
class FileLock {
 public:
  // Locks the file at `path`, which is created. Throws Error: kRetry naming the holder, if there is
  // another, in "OUTPUT: another WHO is writing here (…); wait for its end or ADVICE";
  // kCannotCreate if it cannot be created.
  FileLock(const std::string& path, std::string_view output, std::string_view who,
           std::string_view advice);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  // Removes the file before the lock is released.
  void remove_at_end() { unfinished_.emplace(path_, Unfinished::Kind::kFile); }

 private:
  std::string path_;
  int fd_ = -1;
  std::optional<Unfinished> unfinished_;  // if it is removed
};

}  // namespace lumen::io
