#include "lib/io/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "lib/base/error.h"
#include "lib/io/atomic_file.h"

namespace lumen::io {
namespace {

[[noreturn]] void fail_lock(std::string_view output, std::string_view doing) {
  const int error = errno;
  fail(creation_error(error), output, ": cannot be created: ", doing,
       " its lock failed: ", std::strerror(error));
}

// Lustre and some network file systems are mounted without locks.
bool has_no_locks(int error) {
  return error == ENOSYS || error == ENOTSUP || error == ENOLCK;
}

// Whether `path` still names the open file: its last holder may have removed it meanwhile.
bool is_at(const std::string& path, int fd) {
  struct stat there, here;
  return ::stat(path.c_str(), &there) == 0 && ::fstat(fd, &here) == 0 &&
         there.st_dev == here.st_dev && there.st_ino == here.st_ino;
}

}  // namespace

FileLock::FileLock(const std::string& path, std::string_view output, std::string_view who,
                   std::string_view advice)
    : path_(path) {
  for (;;) {
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd_ < 0) fail_lock(output, "creating");
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && !has_no_locks(errno)) break;
    if (is_at(path, fd_)) {
      char host[128] = {};
      ::gethostname(host, sizeof host - 1);
      const std::string holder =
          str("process ", static_cast<int64_t>(::getpid()), " on ", std::string_view(host), "\n");
      if (::ftruncate(fd_, 0) == 0 &&
          ::pwrite(fd_, holder.data(), holder.size(), 0) == static_cast<ssize_t>(holder.size())) {
        return;
      }
      const int error = errno;
      ::unlink(path.c_str());
      ::close(fd_);
      errno = error;
      fail_lock(output, "writing");
    }
    ::close(fd_);
  }
  const int error = errno;
  char text[256] = {};
  const ssize_t length = ::pread(fd_, text, sizeof text - 1, 0);
  ::close(fd_);
  errno = error;
  if (error != EWOULDBLOCK) fail_lock(output, "locking");
  std::string holder(text, static_cast<size_t>(std::max<ssize_t>(length, 0)));
  if (holder.ends_with('\n')) holder.pop_back();
  fail(ErrorKind::kRetry, output, ": another ", who, " is writing here (", quoted(holder),
       "); wait for its end or ", advice);
}

FileLock::~FileLock() {
  if (unfinished_) ::unlink(path_.c_str());
  ::close(fd_);
}

}  // namespace lumen::io
