#include "lib/io/mapped_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/io/model_files.h"
#include "lib/io/safetensors.h"
#include "lib/io/test_files.h"

namespace lumen::io {
namespace {

ErrorKind kind_of_map(const std::string& path) {
  try {
    map_file(path);
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find('\n') == std::string::npos);
    return error.kind();
  }
  return ErrorKind::kInternal;
}

TEST_CASE("a file is mapped and outlives its name") {
  const std::string path = testing::temporary_directory() + "/file";
  std::ofstream(path) << "hello";
  const auto buffer = map_file(path);
  ::unlink(path.c_str());
  REQUIRE(buffer->bytes == 5);
  CHECK_FALSE(buffer->writable);
  CHECK(std::memcmp(buffer->data, "hello", 5) == 0);
}

TEST_CASE("a pipe that is named by its descriptor is read to its end") {
  for (const char* folder : {"/dev/fd/", "/proc/self/fd/"}) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const std::string text(300'000, 'x'), path = folder + std::to_string(ends[0]);
    CHECK(names_descriptor(path));
    std::thread writer([&] {
      for (size_t done = 0; done < text.size();) {
        done += static_cast<size_t>(std::max<ssize_t>(
            0,
            ::write(ends[1], text.data() + done, std::min<size_t>(text.size() - done, 100'000))));
      }
      ::close(ends[1]);
    });
    CHECK(read_file(path, text.size()) == text);
    writer.join();
    ::close(ends[0]);
    REQUIRE(::pipe(ends) == 0);
    REQUIRE(::write(ends[1], text.data(), 1000) == 1000);
    CHECK(testing::contains(
        testing::refusal(ErrorKind::kMalformed,
                         [&] { read_file(folder + std::to_string(ends[0]), 999); }),
        "longer than the limit of 999 bytes"));
    ::close(ends[0]);
    ::close(ends[1]);
  }
  const std::string other = testing::temporary_directory() + "/fifo";
  REQUIRE(::mkfifo(other.c_str(), 0600) == 0);
  testing::refusal(ErrorKind::kMissing, [&] { read_file(other, 10); });  // does not wait
  for (const char* name : {"/dev/fd/", "/dev/fd/x", "/dev/fd/-1", "/dev/fd/99999999999", "fd/3"}) {
    CHECK_FALSE(names_descriptor(name));
  }
}

// Resident KiB of the mapping that begins at `address`.
int64_t resident(const void* address) {
  std::ostringstream start;
  start << std::hex << reinterpret_cast<uintptr_t>(address) << '-';
  std::ifstream maps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.starts_with(start.str())) inside = true;
    if (!inside || !line.starts_with("Rss:")) continue;
    int64_t kib = -1;
    std::istringstream(line.substr(4)) >> kib;
    return kib;
  }
  return -1;
}

TEST_CASE("pages of a file are given back, and read again when they are wanted") {
  constexpr size_t kBytes = size_t{4} << 20;
  const std::string path = testing::temporary_directory() + "/pages";
  std::ofstream(path) << std::string(kBytes, 'x');
  const auto buffer = map_file(path);
  auto sum = [&] { return std::count(buffer->data, buffer->data + kBytes, std::byte{'x'}); };
  CHECK(sum() == int64_t{kBytes});
  CHECK(resident(buffer->data) == int64_t{kBytes / 1024});
  drop_pages(*buffer, {buffer->data + 100, kBytes - 200});
  CHECK(resident(buffer->data) <= 128);  // the first and the last page, of whatever size
  CHECK(sum() == int64_t{kBytes});

  // Memory that is no file is left alone.
  Array array = Array::zeros(DType::kU8, {static_cast<int64_t>(kBytes)});
  array.as_mutable<uint8_t>()[kBytes / 2] = 7;
  drop_pages(*array.buffer(), {array.data(), kBytes});
  CHECK(array.as<uint8_t>()[kBytes / 2] == 7);
}

TEST_CASE("what is no regular file is refused without waiting") {
  const std::string directory = testing::temporary_directory();
  const std::string fifo = directory + "/fifo", loop = directory + "/loop";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  REQUIRE(::symlink("loop", loop.c_str()) == 0);
  for (const std::string& path :
       {directory, fifo, loop, directory + "/absent", directory + "/fifo/x",
        std::string("/dev/zero"), std::string("/dev/null"), std::string(5000, 'x'),
        std::string("")}) {
    CAPTURE(path);
    CHECK(kind_of_map(path) == ErrorKind::kMissing);
    CHECK_THROWS_AS(read_file(path, 10), Error);
    CHECK_FALSE(is_regular_file(path));
  }
  std::ofstream(directory + "/empty");
  CHECK(kind_of_map(directory + "/empty") == ErrorKind::kMalformed);
  CHECK(read_file(directory + "/empty", 10).empty());
}

TEST_CASE("the names in a directory come sorted, and what cannot be read is told") {
  const std::string directory = testing::temporary_directory();
  for (const char* name : {"/b", "/.a", "/c"}) std::ofstream(directory + name) << "x";
  CHECK(names_in(directory) == std::vector<std::string>{".a", "b", "c"});
  std::error_code error;
  CHECK(names_in(directory + "/none", error).empty());
  CHECK(error == std::errc::no_such_file_or_directory);
  CHECK(
      testing::contains(testing::refusal(ErrorKind::kMissing, [&] { names_in(directory + "/b"); }),
                        "b: the directory cannot be read: Not a directory"));
}

TEST_CASE("read_file reads all, within its limit") {
  const std::string path = testing::temporary_directory() + "/file";
  std::ofstream(path) << "12345";
  CHECK(read_file(path, 5) == "12345");
  CHECK_THROWS_AS(read_file(path, 4), Error);
}

TEST_CASE("a path is printed without escape sequences") {
  CHECK(place_of("a/b.gguf") == "a/b.gguf");
  CHECK(place_of("\x1b[2J").find('\x1b') == std::string::npos);
}

TEST_CASE("numbers that look like a pickle are not taken for one") {
  const std::string directory = testing::temporary_directory();
  // A safetensors header of 0x0480 bytes.
  std::string header = R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})";
  header.resize(0x0480, ' ');
  CHECK(parse_safetensors(buffer_of(safetensors_file(header, 1)), "t")->tensors.size() == 1);
  // A llama2.c model of dim 640 = 0x0280: embedding, norms, attention, feed-forward, final norm
  // and rotary tables, all zero in a file with holes.
  const std::string path = directory + "/model.bin";
  std::string fields;
  for (const int32_t field : {640, 64, 1, 10, 10, 5, 4}) append_raw(fields, field);
  std::ofstream(path, std::ios::binary) << fields;
  const int64_t elements = 5 * 640 + 2 * 640 + 4 * 640 * 640 + 3 * 640 * 64 + 640 + 4 * 64;
  REQUIRE(::truncate(path.c_str(), 28 + 4 * elements) == 0);
  CHECK(open_model(path).config["hidden_size"] == 640);
}

}  // namespace
}  // namespace lumen::io
