#include "lib/io/write_gguf.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/io/gguf.h"
#include "lib/io/mapped_file.h"
#include "lib/io/test_files.h"

namespace lumen::io {
namespace {

TEST_CASE("what GgufWriter writes is read back") {
  GgufWriter writer;
  writer.set("general.architecture", std::string("llama"));
  writer.set("count", uint32_t{7});
  writer.set("ratio", 0.5f);
  writer.set("flag", true);
  writer.set("words", std::vector<std::string>{"a", "", "ccc"});
  writer.set("numbers", std::vector<int32_t>{-1, 2});
  const Array matrix = Array::from<float>(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  const Array blocks = Array::zeros(DType::kQ8_0, {3, 64});
  writer.add("q.weight", blocks);
  writer.add("m.weight", matrix);
  const std::string path = testing::temporary_directory() + "/written.gguf";
  writer.write(path);
  CHECK(writer.bytes() == std::filesystem::file_size(path));

  const auto file = read_gguf(path);
  CHECK(file->metadata.get_string("general.architecture") == "llama");
  CHECK(file->metadata.get_int("count", 0, 10) == 7);
  CHECK(file->metadata.get_number("ratio") == 0.5);
  CHECK(file->metadata.find("words")->size() == 3);
  CHECK(file->metadata.find("numbers")->int_at(0) == -1);
  REQUIRE(file->tensors.size() == 2);
  const Array m = file->array(*file->find_tensor("m.weight"));
  CHECK(m.shape() == matrix.shape());
  CHECK(std::equal(matrix.data(), matrix.data() + matrix.bytes(), m.data()));
  const Array q = file->array(*file->find_tensor("q.weight"));
  CHECK(q.dtype() == DType::kQ8_0);
  CHECK(q.shape() == blocks.shape());
}

TEST_CASE("parts of a GGUF file appear together, or none does") {
  const std::string directory = testing::temporary_directory(), path = directory + "/m.gguf";
  const auto writer_of = [](bool fails) {
    GgufWriter writer;
    writer.set("name", std::string("x"));
    for (const char* tensor : {"a", "b", "c"}) {
      writer.add(tensor, DType::kF32, {64}, [=] {
        if (fails && *tensor == 'c') fail(ErrorKind::kMalformed, "no c");
        return Array::from<float>(std::vector<float>(64, static_cast<float>(*tensor)), {64});
      });
    }
    return writer;
  };
  const GgufWriter writer = writer_of(false);
  CHECK(writer.parts(path, 768) == std::vector{path});
  const std::vector<std::string> paths = writer.parts(path, 512);
  REQUIRE(paths ==
          std::vector{directory + "/m-00001-of-00002.gguf", directory + "/m-00002-of-00002.gguf"});
  CHECK(writer.parts(path, 1).size() == 3);  // a tensor is never divided
  CHECK_THROWS_AS(writer_of(true).write_parts(path, 512), Error);
  CHECK(names_in(directory).empty());
  writer.write_parts(path, 512);
  CHECK(names_in(directory).size() == 2);
  const auto read = read_gguf(paths[1]);  // any part opens all
  REQUIRE(read->tensors.size() == 3);
  CHECK(read->metadata.get_string("name") == "x");
  const Array last = read->array(*read->find_tensor("c"));
  CHECK(last.as<float>()[63] == 'c');
  CHECK_THROWS_AS(writer_of(true).write_parts(path, 512), Error);
  CHECK(read_gguf(paths[0])->tensors.size() == 3);  // what was there is there
}

// Writes a model of three parts whose tensors all have the value `value`.
void write_parts_of(float value, const std::string& path) {
  GgufWriter writer;
  for (const char* tensor : {"a", "b", "c"}) {
    writer.add(tensor, Array::from<float>(std::vector<float>(64, value), {64}));
  }
  writer.write_parts(path, 1);
}

// 1 or 2, which all parts have; 0 if they are refused.
int read_parts_of(const std::string& path) {
  std::set<float> values;
  try {
    const auto file = read_gguf(path);
    for (const GgufTensor& tensor : file->tensors) {
      const Array array = file->array(tensor);
      values.insert(array.as<float>()[63]);
    }
  } catch (const Error&) {
    return 0;
  }
  REQUIRE(values.size() == 1);
  return static_cast<int>(*values.begin());
}

TEST_CASE("parts of two models are never read together, whoever replaces them and is killed") {
  const std::string path = testing::temporary_directory() + "/m.gguf";
  const std::string part = path.substr(0, path.size() - 5) + "-00002-of-00003.gguf";
  write_parts_of(1, path);
  int refused = 0, read = 0;
  for (int round = 0; round < 12; ++round) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::alarm(60);  // whatever becomes of this process
      for (int i = 0;; ++i) write_parts_of(static_cast<float>(1 + i % 2), path);
    }
    for (int i = 0; i < 40 + 7 * round; ++i) (read_parts_of(part) == 0 ? refused : read) += 1;
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const int left = read_parts_of(part);
    CAPTURE(round, left);
    CHECK((left > 0 || !is_regular_file(path.substr(0, path.size() - 5) + "-00001-of-00003.gguf")));
  }
  CHECK(refused + read > 0);
  write_parts_of(2, path);
  CHECK(read_parts_of(part) == 2);
}

TEST_CASE("GgufWriter copies every kind of value, and asks for tensors one at a time") {
  LUMEN_SHARED_DATA(path, "models/gguf-derived/stories260K-q5_1.gguf");
  const auto source = read_gguf(path);
  GgufWriter writer;
  writer.set("words", std::vector<std::string>{"a", "", "ccc"});
  writer.set("flag", true);
  for (size_t i = 0; i < source->metadata.size(); ++i) writer.copy(source->metadata[i]);
  int alive = 0, most = 0;
  for (const GgufTensor& tensor : source->tensors) {
    writer.add(tensor.name, *tensor.dtype, tensor.shape, [&] {
      most = std::max(most, ++alive);
      auto owner = std::shared_ptr<Array>(new Array(source->array(tensor)), [&](Array* array) {
        --alive;
        delete array;
      });
      auto buffer = std::make_shared<Buffer>(*owner->buffer());
      buffer->owner = owner;
      return Array::view(buffer, owner->data() - buffer->data, *tensor.dtype, tensor.shape);
    });
  }
  CHECK(most == 0);
  const std::string copy_path = testing::temporary_directory() + "/copy.gguf";
  writer.write(copy_path);
  CHECK(most == 1);
  CHECK(alive == 0);

  const auto copy = read_gguf(copy_path);
  REQUIRE(copy->metadata.size() == source->metadata.size() + 2);
  GgufWriter again;  // copies of copies say the same
  for (size_t i = 0; i < copy->metadata.size(); ++i) again.copy(copy->metadata[i]);
  for (const GgufTensor& tensor : copy->tensors) again.add(tensor.name, copy->array(tensor));
  CHECK(again.header() == writer.header());
  for (size_t i = 0; i < source->metadata.size(); ++i) {
    const GgufValue want = source->metadata[i], got = *copy->metadata.find(want.key());
    CHECK(got.type() == want.type());
    if (want.is_string()) CHECK(got.as_string() == want.as_string());
    if (want.is_array()) CHECK(got.size() == want.size());
    if (!want.is_array() && !want.is_string()) CHECK(got.encoded() == want.encoded());
  }
  for (const GgufTensor& tensor : source->tensors) {
    const Array want = source->array(tensor), got = copy->array(*copy->find_tensor(tensor.name));
    CHECK(
        std::equal(want.data(), want.data() + want.bytes(), got.data(), got.data() + got.bytes()));
  }

  GgufWriter failing;
  failing.add("a", DType::kF32, {1}, [&]() -> Array { fail(ErrorKind::kMalformed, "no tensor"); });
  const std::string none = testing::temporary_directory() + "/none.gguf";
  CHECK(testing::refusal(ErrorKind::kMalformed, [&] { failing.write(none); }) == "no tensor");
  CHECK_FALSE(is_regular_file(none));
}

}  // namespace
}  // namespace lumen::io
