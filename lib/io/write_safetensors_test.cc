#include "lib/io/write_safetensors.h"

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/io/json.h"
#include "lib/io/mapped_file.h"
#include "lib/io/safetensors.h"

namespace lumen::io {
namespace {

// Tensors a to e of 10 float32 each, but for d with 100.
SafetensorsWriter five_tensors(int& made) {
  SafetensorsWriter writer(SafetensorsWriter::Metadata{{"format", "pt"}});
  for (const char* name : {"a", "b", "c", "d", "e"}) {
    const Shape shape = {*name == 'd' ? 100 : 10};
    writer.add(name, DType::kF32, shape, [&made, shape, name] {
      ++made;
      Array array = Array::zeros(DType::kF32, shape);
      array.as_mutable<float>()[0] = static_cast<float>(*name);
      return array;
    });
  }
  return writer;
}

}  // namespace

TEST_CASE("models are written in shards of a size") {
  int made = 0;
  const SafetensorsWriter writer = five_tensors(made);
  CHECK(writer.bytes() == 560);
  CHECK(writer.shards(560) == 1);
  CHECK(writer.shards(559) == 2);
  CHECK(writer.shards(80) == 4);  // a b, c, d (which is larger), e
  CHECK(writer.shards(1) == 5);
  const std::string directory = testing::temporary_directory();
  writer.write_model(directory, 80);
  CHECK(made == 5);
  const auto file = read_safetensors_index(directory + "/model.safetensors.index.json");
  REQUIRE(file->tensors.size() == 5);
  for (const SafetensorsTensor& tensor : file->tensors) {
    const Array array = file->array(tensor);
    CHECK(array.as<float>()[0] == static_cast<float>(tensor.name[0]));
  }
  CHECK(read_safetensors(directory + "/model-00001-of-00004.safetensors")->tensors.size() == 2);
  const Json index = read_json(directory + "/model.safetensors.index.json");
  CHECK(index["metadata"]["total_size"] == 560);
  CHECK(index["weight_map"]["d"] == "model-00003-of-00004.safetensors");
  const std::string whole = testing::temporary_directory();
  writer.write_model(whole, 1000);
  CHECK(read_safetensors(whole + "/model.safetensors")->metadata.size() == 1);
  CHECK_FALSE(is_regular_file(whole + "/model.safetensors.index.json"));
}

TEST_CASE("what safetensors cannot hold is refused before anything is written") {
  SafetensorsWriter writer;
  CHECK(testing::contains(testing::refusal(ErrorKind::kUnsupported,
                                           [&] { writer.add("a", DType::kQ8_0, {32}, nullptr); }),
                          "no type for q8_0"));
}

}  // namespace lumen::io
