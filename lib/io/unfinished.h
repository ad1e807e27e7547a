// What is to disappear when the process ends before its work is done.
#pragma once

#include <string>

namespace lumen::io {

// While it lives, what is at a path is half of something: remove_unfinished() removes it. Any
// thread may make and destroy one.
class Unfinished {
 public:
  enum class Kind { kFile, kEmptyDirectory, kTree };  // an empty directory stays if it is not
  Unfinished(std::string path, Kind kind);
  ~Unfinished();
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

 private:
  friend void remove_unfinished() noexcept;

  std::string path_;
  Kind kind_;
};

// Removes all of that, the newest first, as far as it can. For the end of a process without
// destructors; a handler of a signal that an access to memory raised (SIGBUS) may call it, handlers
// of other signals may not: it allocates.
void remove_unfinished() noexcept;

}  // namespace lumen::io
