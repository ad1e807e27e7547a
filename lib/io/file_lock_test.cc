#include "lib/io/file_lock.h"

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

}  // namespace lumen::io
