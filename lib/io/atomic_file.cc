#include "lib/io/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "lib/base/check.h"
#include "lib/base/error.h"
#include "lib/io/mapped_file.h"

namespace lumen::io {
namespace {

constexpr size_t kBufferBytes = 1 << 16;

void check_target(const std::string& path) {
  struct stat status;
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return;
    fail(creation_error(errno), place_of(path), ": cannot be created: ", std::strerror(errno));
  }
  if (S_ISREG(status.st_mode)) return;
  fail(ErrorKind::kCannotCreate, place_of(path), ": ",
       S_ISDIR(status.st_mode)   ? "is a directory"
       : S_ISLNK(status.st_mode) ? "is a symbolic link; give the file it points to"
                                 : "exists and is not a regular file");
}

// With its "/"; "" for a name alone.
std::string directory_of(const std::string& path) {
  return path.substr(0, path.find_last_of('/') + 1);
}

const char* as_place(const std::string& directory) {
  return directory.empty() ? "." : directory.c_str();
}

constexpr std::string_view kBeginning = ".lumen-", kEnding = ".tmp";

// What the temporary files for `path` end with; file systems allow names of 255 bytes.
std::string temporary_ending(const std::string& path) {
  constexpr size_t kMostBytes = 200;
  return str(".", path.substr(path.find_last_of('/') + 1).substr(0, kMostBytes), kEnding);
}

std::string temporary_name(const std::string& path) {
  static std::atomic<int> counter = 0;
  return str(directory_of(path), kBeginning, static_cast<int64_t>(::getpid()), "-", counter++,
             temporary_ending(path));
}

// Removes the temporary files in `directory`, "" or with its "/", that have this ending ("": all of
// them) and whose processes were killed: one being written is locked. Where the file system has no
// locks, none is removed.
void remove_temporaries(const std::string& directory, std::string_view ending) {
  std::error_code ignored;
  for (const std::string& name : names_in(as_place(directory), ignored)) {
    if (!name.starts_with(kBeginning)) continue;
    const size_t number_end = name.find_first_not_of("0123456789-", kBeginning.size());
    if (number_end == name.npos) continue;
    const std::string_view rest = std::string_view(name).substr(number_end);
    const bool is_temporary = rest.starts_with('.') && rest.ends_with(kEnding);
    if (ending.empty() ? !is_temporary : rest != ending) continue;
    const std::string leftover = directory + name;
    const int fd = ::open(leftover.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) continue;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) ::unlink(leftover.c_str());
    ::close(fd);
  }
}

// The new file `temporary`, locked until it is closed; -1 and errno if it cannot be created.
int create_locked(const std::string& temporary) {
  for (;;) {
    const int fd =
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) return -1;
    while (::flock(fd, LOCK_EX) != 0 && errno == EINTR) {
    }
    if (::access(temporary.c_str(), F_OK) == 0) return fd;
    ::close(fd);  // before it was locked another process took it for a leftover
  }
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : path_(path), directory_(directory_of(path)) {
  check_target(path);
  remove_temporaries(directory_, temporary_ending(path));
  temporary_ = temporary_name(path);
  fd_ = create_locked(temporary_);
  if (fd_ < 0) {
    fail(creation_error(errno), place_of(path_), ": cannot be created: ", std::strerror(errno));
  }
  unfinished_.emplace(temporary_, Unfinished::Kind::kFile);
  buffer_.reserve(kBufferBytes);
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::fail_io(std::string_view doing) {
  const int error = errno;
  fail(ErrorKind::kIo, place_of(path_), ": ", doing, " failed: ", std::strerror(error),
       "; nothing was changed");
}

void AtomicFile::require_room(uint64_t bytes) const {
  struct statvfs room;
  if (::fstatvfs(fd_, &room) != 0 || room.f_blocks == 0) return;  // it does not say
  const uint64_t free = uint64_t{room.f_frsize} * (::geteuid() == 0 ? room.f_bfree : room.f_bavail);
  if (bytes <= free) return;
  fail(ErrorKind::kIo, place_of(path_), ": takes ", human_bytes(bytes), ", and ", human_bytes(free),
       " are free there; nothing was changed");
}

void AtomicFile::write_all(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(fd_, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0 && errno == EFAULT) {
      fail(ErrorKind::kIo, place_of(path_),
           ": a file that its content comes from was cut short or became unreadable; nothing was"
           " changed");
    }
    if (done < 0) fail_io("writing");
    bytes.remove_prefix(static_cast<size_t>(done));
  }
}

void AtomicFile::flush() {
  write_all(buffer_);
  buffer_.clear();
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  write(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

void AtomicFile::write(std::string_view text) {
  LUMEN_CHECK(fd_ >= 0);
  written_ += text.size();
  if (buffer_.size() + text.size() > kBufferBytes) flush();
  if (text.size() > kBufferBytes) {
    write_all(text);
  } else {
    buffer_ += text;
  }
}

void AtomicFile::finish() {
  flush();
  if (::fsync(fd_) != 0) fail_io("making it durable");
  const int fd = fd_;
  fd_ = -1;
  buffer_ = {};
  if (::close(fd) != 0) fail_io("closing");
}

void AtomicFile::commit() {
  if (fd_ >= 0) finish();
  check_target(path_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_io("renaming");
  unfinished_.reset();
  temporary_.clear();
  // The new directory entry itself must reach the disk too. A directory that may be written need
  // not be readable.
  if (::access(as_place(directory_), R_OK) == 0) sync_path(as_place(directory_));
}

void remove_temporary_files(const std::string& directory) {
  remove_temporaries(directory + "/", "");
}

void check_replaceable(const std::string& path, std::string_view beginning, std::string_view kind) {
  check_target(path);
  if (::access(as_place(directory_of(path)), W_OK | X_OK) != 0) {
    fail(ErrorKind::kCannotCreate, place_of(path), ": cannot be created: ", std::strerror(errno));
  }
  if (!is_regular_file(path)) return;
  std::string found(beginning.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(found.data(), static_cast<std::streamsize>(found.size()));
  found.resize(static_cast<size_t>(file.gcount()));
  if (beginning.starts_with(found)) return;  // cut short, it is of that kind still
  fail(ErrorKind::kCannotCreate, place_of(path), ": is there and is not ", kind,
       "; it is not replaced: give another name, or remove it first");
}

ErrorKind creation_error(int error) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EIO || error == EFBIG;
  const bool spent = error == EMFILE || error == ENFILE || error == ENOMEM;
  return full ? ErrorKind::kIo : spent ? ErrorKind::kResource : ErrorKind::kCannotCreate;
}

void fail_system(const std::string& path, std::string_view doing) {
  const int error = errno;
  fail(creation_error(error), place_of(path), ": ", doing, " failed: ", std::strerror(error));
}

void sync_path(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail_system(path, "opening");
  const int result = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  if (result != 0 && error != EINVAL && error != ENOTSUP) {
    fail(ErrorKind::kIo, place_of(path), ": making it durable failed: ", std::strerror(error));
  }
}

void write_file_atomically(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace lumen::io
