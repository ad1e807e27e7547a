#include "lib/io/atomic_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <string>

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/io/mapped_file.h"

namespace lumen::io {
namespace {

int count_files(const std::string& directory) {
  int count = 0;
  DIR* handle = ::opendir(directory.c_str());
  while (const dirent* entry = ::readdir(handle))
    count += entry->d_name[0] != '.' || entry->d_name[1] == 'l';
  ::closedir(handle);
  return count;
}

TEST_CASE("a file appears on commit, whole, and replaces the old one") {
  const std::string directory = testing::temporary_directory(), path = directory + "/file";
  std::ofstream(path) << "old";
  {
    AtomicFile file(path);
    file.write("new ");
    file.write(std::string(200'000, 'x'));
    CHECK(read_file(path, 10) == "old");
    file.commit();
    CHECK(file.bytes_written() == 200'004);
  }
  CHECK(read_file(path, 1 << 20) == "new " + std::string(200'000, 'x'));
  CHECK(count_files(directory) == 1);
}

TEST_CASE("without commit nothing remains") {
  const std::string directory = testing::temporary_directory();
  {
    AtomicFile file(directory + "/file");
    file.write("text");
    CHECK(count_files(directory) == 1);
  }
  CHECK(count_files(directory) == 0);
}

TEST_CASE("what a killed process was writing is removed with the next file of that name") {
  const std::string directory = testing::temporary_directory();
  const std::string path = directory + "/file", other = directory + "/1.file",
                    longest = directory + "/" + std::string(255, 'n');
  const pid_t child = ::fork();
  if (child == 0) {
    const AtomicFile files[] = {AtomicFile(path), AtomicFile(other), AtomicFile(longest)};
    ::_exit(0);
  }
  int status = 1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  REQUIRE(count_files(directory) == 3);
  { const AtomicFile removing(other); }
  CHECK(count_files(directory) == 2);
  write_file_atomically(path, "text");
  CHECK(count_files(directory) == 2);
  { const AtomicFile removing(longest); }
  CHECK(count_files(directory) == 1);
  CHECK(read_file(path, 10) == "text");
}

TEST_CASE("what killed processes were writing in a directory is removed, and nothing else") {
  const std::string directory = testing::temporary_directory();
  const pid_t child = ::fork();
  if (child == 0) {
    const AtomicFile files[] = {AtomicFile(directory + "/a"), AtomicFile(directory + "/b.txt")};
    ::_exit(0);
  }
  int status = 1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  for (const char* name : {"/.lumen-mine.tmp", "/.lumen-1-0", "/other.tmp"}) {
    write_file_atomically(directory + name, "text");
  }
  const AtomicFile being_written(directory + "/a");
  REQUIRE(count_files(directory) == 5);
  remove_temporary_files(directory);
  CHECK(count_files(directory) == 4);
}

TEST_CASE("two files of one name that are written at the same time are not in each other's way") {
  const std::string directory = testing::temporary_directory();
  const std::string path = directory + "/file";
  AtomicFile first(path);
  first.write("first");
  AtomicFile second(path);
  second.write("second");
  CHECK(count_files(directory) == 2);
  first.commit();
  CHECK(read_file(path, 10) == "first");
  second.commit();
  CHECK(read_file(path, 10) == "second");
  CHECK(count_files(directory) == 1);
}

TEST_CASE("links, directories and absent directories are not written to") {
  const std::string directory = testing::temporary_directory();
  std::ofstream(directory + "/target") << "old";
  REQUIRE(::symlink("target", (directory + "/link").c_str()) == 0);
  for (const std::string& path :
       {directory, directory + "/link", directory + "/absent/file", std::string("/dev/full"),
        directory + "/" + std::string(256, 'n'), directory + "/target/file"}) {
    CAPTURE(path);
    testing::refusal(ErrorKind::kCannotCreate, [&] { write_file_atomically(path, "x"); });
    testing::refusal(ErrorKind::kCannotCreate, [&] { check_replaceable(path, "x", "an x"); });
  }
  check_replaceable(directory + "/target", "old", "an old one");
  check_replaceable(directory + "/new", "old", "an old one");
  CHECK(read_file(directory + "/target", 10) == "old");
}

TEST_CASE("a file larger than the room there is is refused before it is written") {
  const std::string path = testing::temporary_directory() + "/file";
  {
    AtomicFile file(path);
    file.require_room(1);
    const std::string why =
        testing::refusal(ErrorKind::kIo, [&] { file.require_room(uint64_t{1} << 62); });
    CHECK(testing::contains(why, path + ": takes 4.0 EiB, and "));
  }
  CHECK_FALSE(is_regular_file(path));
}

TEST_CASE("a process without descriptors lacks a resource, and not a place for its output") {
  const std::string path = testing::temporary_directory() + "/file";
  rlimit old_limit;
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &old_limit) == 0);
  const rlimit none{0, old_limit.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  ErrorKind kind = ErrorKind::kInternal;
  try {
    write_file_atomically(path, "x");
  } catch (const Error& error) {
    kind = error.kind();
  }
  ::setrlimit(RLIMIT_NOFILE, &old_limit);
  CHECK(kind == ErrorKind::kResource);
}

TEST_CASE("a full disk is an error and leaves nothing behind") {
  const std::string directory = testing::temporary_directory(), path = directory + "/file";
  std::ofstream(path) << "old";
  rlimit old_limit;
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &old_limit) == 0);
  const rlimit small{4096, old_limit.rlim_max};
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &small);
  ErrorKind kind = ErrorKind::kInternal;
  try {
    write_file_atomically(path, std::string(100'000, 'x'));
  } catch (const Error& error) {
    kind = error.kind();
  }
  ::setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  CHECK(kind == ErrorKind::kIo);
  CHECK(read_file(path, 10) == "old");
  CHECK(count_files(directory) == 1);
}

}  // namespace
}  // namespace lumen::io
