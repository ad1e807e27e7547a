#include "lib/io/safetensors.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/io/test_clock.h"
#include "lib/io/test_files.h"
#include "lib/io/write_safetensors.h"

namespace lumen::io {
namespace {

using testing::contains;

std::string header_refusal(const std::string& header, size_t data_bytes) {
  return testing::refusal(ErrorKind::kMalformed, [&] {
    parse_safetensors(buffer_of(safetensors_file(header, data_bytes)), "t.safetensors");
  });
}

TEST_CASE("safetensors values, also at odd offsets") {
  LUMEN_SHARED_DATA(path, "formats/bad-safetensors/a09_odd_alignment.safetensors");
  const auto file = read_safetensors(path);
  REQUIRE(file->tensors.size() == 2);
  for (const auto& tensor : file->tensors) {
    if (tensor.name != "a") continue;
    const Array array = file->array(tensor);
    CHECK(array.as<double>()[0] == 2.5);
    return;
  }
  FAIL("no tensor 'a'");
}

TEST_CASE("safetensors of every type") {
  LUMEN_SHARED_DATA(path, "formats/bad-safetensors/a11_every_dtype.safetensors");
  const auto file = read_safetensors(path);
  for (const auto& tensor : file->tensors) {
    CAPTURE(tensor.type);
    if (tensor.type == "BF16") {
      const Array array = file->array(tensor);
      CHECK(to_float(array.as<bf16>()[2]) == -123.5f);
    }
    if (!tensor.dtype) CHECK_THROWS_AS(file->array(tensor), Error);
  }
}

TEST_CASE("safetensors metadata may be null, as in files of MLX") {
  const std::string entry = R"("a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})";
  const auto file = parse_safetensors(
      buffer_of(safetensors_file(R"({"__metadata__": null, )" + entry, 8)), "t.safetensors");
  CHECK(file->metadata.empty());
  CHECK(file->tensors.size() == 1);
  CHECK(contains(header_refusal(R"({"__metadata__": true, )" + entry, 8), "expected an object"));
}

TEST_CASE("a safetensors file that ends in its header is one") {
  const std::string path = testing::temporary_directory() + "/cut.safetensors";
  std::ofstream(path) << std::string("\x90\x01\0\0\0\0\0\0{\"a\": ", 14);
  CHECK(contains(testing::refusal(ErrorKind::kMalformed, [&] { read_safetensors(path); }),
                 "a header of 400 bytes in a file of 14 bytes (truncated download?)"));
}

TEST_CASE("safetensors that are refused") {
  CHECK(header_refusal(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})", 8) ==
        "accepted");
  CHECK(header_refusal(R"({"a": {"dtype": "F32", "shape": [0, 3], "data_offsets": [0, 0]}})", 0) ==
        "accepted");
  CHECK(contains(
      header_refusal(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})", 9),
      "the file has"));
  CHECK(contains(
      header_refusal(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}})", 8),
      "needs 8 bytes"));
  CHECK(contains(
      header_refusal(R"({"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}})", 8),
      "expected an integer"));
  CHECK(contains(header_refusal(R"({"a": {"dtype": "F32", "shape": [4611686018427387904, 4, 0],
                              "data_offsets": [0, 0]}})",
                                0),
                 "64 bits"));
  CHECK(
      contains(header_refusal(R"({"a": {"dtype": "F4", "shape": [1], "data_offsets": [0, 0]}})", 0),
               "whole number"));
  CHECK(contains(header_refusal(R"({"a": 1})", 0), "expected an object"));
  CHECK(contains(header_refusal("[]", 0), "expected an object"));
  CHECK(contains(header_refusal(R"({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
                             "a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}})",
                                2),
                 "twice"));
}

TEST_CASE("a safetensors file without a header is told by its length") {
  const std::string bytes = std::string(8, '\0') + "{}";
  CHECK(contains(testing::refusal(ErrorKind::kMalformed,
                                  [&] { parse_safetensors(buffer_of(bytes), "a.safetensors"); }),
                 "a header of 0 bytes in a file of 10 bytes; the limits are 2 and 100000000"));
}

TEST_CASE("large safetensors headers take linear time") {
  std::shared_ptr<const Buffer> files[2];
  for (const int size : {0, 1}) {
    std::string header = "{";
    for (int i = 0; i < (size == 0 ? 2'500 : 40'000); ++i) {
      header += str(i > 0 ? "," : "", "\"model.layers.", i,
                    ".weight\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[", i * 8, ",",
                    i * 8 + 8, "]}");
    }
    files[size] = buffer_of(safetensors_file(header + "}", size == 0 ? 20'000 : 320'000));
  }
  CHECK(parse_safetensors(files[1], "t")->tensors.size() == 40'000);
  const auto read = [](const auto& file) { parse_safetensors(file, "t"); };
  if (kMeasured) CHECK(growth(files[0], files[1], read) < kLinearGrowth);
}

TEST_CASE("shards must be beside their index and hold what it says") {
  const std::string directory = testing::temporary_directory();
  const auto write = [&](const std::string& name, const std::string& content) {
    std::ofstream(directory + "/" + name, std::ios::binary) << content;
  };
  const auto shard = [](const std::string& tensor) {
    return safetensors_file(
        str("{\"", tensor, "\": {\"dtype\": \"U8\", \"shape\": [3], \"data_offsets\": [0, 3]}}"),
        3);
  };
  const std::string index = directory + "/model.safetensors.index.json";
  const auto refused = [&](const std::string& map) {
    write("model.safetensors.index.json", str("{\"weight_map\": ", map, "}"));
    try {
      read_safetensors_index(index);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  write("1.safetensors", shard("a"));
  write("2.safetensors", shard("b"));
  CHECK(refused(R"({"a": "1.safetensors", "b": "2.safetensors"})") == "accepted");
  CHECK(contains(refused(R"({"a": "1.safetensors"})"), "accepted"));
  CHECK(contains(refused(R"({"a": "../1.safetensors"})"), "plain file name"));
  CHECK(contains(refused(R"({"a": "/etc/passwd"})"), "plain file name"));
  CHECK(contains(refused(R"({"a": ".."})"), "plain file name"));
  CHECK(contains(refused(R"({"a": 1})"), "expected a file name"));
  CHECK(contains(refused(R"({"a": "3.safetensors", "b": "2.safetensors", "c": "4.safetensors"})"),
                 "2 of 3 shards are missing: '3.safetensors', '4.safetensors'; download"));
  CHECK(contains(refused(R"({"b": "1.safetensors"})"), "not in the index"));
  CHECK(contains(refused(R"({"a": "2.safetensors", "b": "1.safetensors"})"), "is mapped to"));
  CHECK(contains(refused(R"({"a": "1.safetensors", "c": "1.safetensors"})"), "missing"));
  CHECK(contains(refused(R"({"a": "model.safetensors.index.json"})"), "header of"));
}

TEST_CASE("what write_safetensors writes is read back") {
  const std::string path = testing::temporary_directory() + "/written.safetensors";
  std::map<std::string, Array> tensors;
  tensors["b"] = Array::from<float>(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  tensors["a"] = Array::from<int32_t>(std::vector<int32_t>{7}, {});
  tensors["half"] = Array::zeros(DType::kF16, {3});
  tensors["none"] = Array::zeros(DType::kF64, {0, 4});
  write_safetensors(path, tensors, {{"format", "pt"}});
  const auto file = read_safetensors(path);
  CHECK(file->metadata.at(0).second == "pt");
  REQUIRE(file->tensors.size() == tensors.size());
  for (const SafetensorsTensor& tensor : file->tensors) {
    const Array& want = tensors.at(tensor.name);
    const Array got = file->array(tensor);
    CHECK(got.dtype() == want.dtype());
    CHECK(got.shape() == want.shape());
    CHECK(std::equal(want.data(), want.data() + want.bytes(), got.data()));
  }
}

}  // namespace
}  // namespace lumen::io
