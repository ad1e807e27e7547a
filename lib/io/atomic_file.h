// Writing files so that a reader sees the old content or the new, never a part.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lib/base/error.h"
#include "lib/io/unfinished.h"

namespace lumen::io {

// A new file that appears under its name only on commit(): written to a temporary file in the same
// directory, fsync'ed, renamed over the target, and the directory fsync'ed, so that after commit()
// returns neither a crash nor a power cut loses it. Without commit() the destructor removes the
// temporary file. Not thread-safe.
class AtomicFile {
 public:
  // Creates the temporary file, and removes those that processes left which were killed while they
  // wrote `path`. Throws Error(kCannotCreate) if the directory is missing or read-only, if the file
  // system has no such name, or if `path` is there and is not a regular file (a directory, device
  // or symbolic link: nothing is written through links).
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Refuses, before the work, a file that will have `bytes` where the file system has less room, as
  // far as it says. Throws Error(kIo) with both numbers.
  void require_room(uint64_t bytes) const;

  // Appends. Buffered for small pieces. Throws Error(kIo): disk full, file too large, the bytes in
  // a mapped file that was cut short, ….
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  uint64_t bytes_written() const { return written_; }

  // Makes what was written durable, under its temporary name: nothing can be added after it. From
  // then on until commit() another AtomicFile for the same path would take it for a leftover.
  // Throws Error(kIo).
  void finish();

  // Makes the file durable under its name, after finish() if that was not called. Throws
  // Error(kIo). Call once, last.
  void commit();

 private:
  void write_all(std::string_view bytes);
  void flush();
  [[noreturn]] void fail_io(std::string_view doing);

  std::string path_, directory_, temporary_;
  std::optional<Unfinished> unfinished_;  // the temporary file
  std::string buffer_;
  int fd_ = -1;
  uint64_t written_ = 0;
};

// Removes from `directory` what AtomicFiles left whose processes were killed.
void remove_temporary_files(const std::string& directory);

// Refuses, before the work whose result it will be, a path that an AtomicFile cannot replace or
// whose file is of another kind: throws Error(kCannotCreate) if its directory is missing or may not
// be written, or if there is something else than a file at `path`, or a file whose content is not
// empty and does not begin with `beginning`. `kind`: what it should be, with its article.
void check_replaceable(const std::string& path, std::string_view beginning, std::string_view kind);

// The kind of a failure to create or write something, for this errno: kIo where the disk is full or
// broken, kResource where the process or system has no descriptor or memory left, else
// kCannotCreate.
ErrorKind creation_error(int error);

// Throws that for errno: "PATH: DOING failed: why".
[[noreturn]] void fail_system(const std::string& path, std::string_view doing);

// Makes what the file or directory at `path` holds durable; some file systems cannot do that with a
// directory, and say so. Throws Error as fail_system if it cannot be opened, Error(kIo).
void sync_path(const std::string& path);

// Writes `text` as the whole content of `path`.
void write_file_atomically(const std::string& path, std::string_view text);

}  // namespace lumen::io
