#include "lib/io/file_lock.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/io/mapped_file.h"

namespace lumen::io {

TEST_CASE("an output has one writer at a time") {
  const std::string path = testing::temporary_directory() + "/lock";
  const auto lock = [&] { FileLock(path, "out", "test", "come back"); };
  {
    const FileLock first(path, "out", "test", "come back");
    const std::string message = testing::refusal(ErrorKind::kRetry, lock);
    CHECK(testing::contains(message, "out: another test is writing here ('process "));
    CHECK(testing::contains(message, "wait for its end or come back"));
  }
  CHECK(is_regular_file(path));
  FileLock(path, "out", "test", "come back").remove_at_end();
  CHECK_FALSE(is_regular_file(path));
  CHECK(testing::refusal(ErrorKind::kRetry, lock) == "accepted");
  CHECK(testing::contains(
      testing::refusal(ErrorKind::kCannotCreate, [] { FileLock("/no/such/lock", "out", "", ""); }),
      "out: cannot be created: creating its lock failed"));
}

// From now on flock() fails with `error` in this process.
bool take_flock_away(unsigned error) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_flock, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter = {4, program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST_CASE("a file system without locks can be written to") {
  const std::string path = testing::temporary_directory() + "/lock";
  for (const auto& [error, expected] : {std::pair(ENOSYS, 0), std::pair(ENOLCK, 0),
                                        std::pair(EIO, static_cast<int>(ErrorKind::kIo))}) {
    CAPTURE(error);
    const pid_t child = ::fork();
    if (child == 0) {
      if (!take_flock_away(static_cast<unsigned>(error))) ::_exit(expected);  // no seccomp here
      try {
        FileLock(path, "out", "test", "come back").remove_at_end();
      } catch (const Error& refusal) {
        ::_exit(static_cast<int>(refusal.kind()));
      }
      ::_exit(0);
    }
    int status = 1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == expected);
  }
}

}  // namespace lumen::io
