#include "lib/io/gguf.h"

#include <malloc.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/io/test_clock.h"
#include "lib/io/test_files.h"
#include "lib/io/write_gguf.h"

namespace lumen::io {
namespace {

using testing::contains;

std::shared_ptr<const GgufFile> parse(const std::string& bytes, const GgufOptions& options = {}) {
  return parse_gguf(buffer_of(bytes), "test.gguf", options);
}

// The message with which `bytes` are refused, which must be of kind kMalformed.
std::string gguf_refusal(const std::string& bytes) {
  return testing::refusal(ErrorKind::kMalformed, [&] { parse(bytes); });
}

TEST_CASE("a GGUF file that ends in zeros was not written to its end") {
  GgufBuilder builder;
  builder.tensor("a", {32, 4}, 0, 32 * 4 * 4).tensor("b", {32}, 0, 32 * 4);
  CHECK(contains(gguf_refusal(builder.finish(3, 0)), "tensor 'b', the last of the file, is zero"));
  std::string half = builder.finish();
  std::fill(half.end() - 64, half.end(), '\0');
  parse(half);
  builder.tensor("c.bias", {32}, 0, 32 * 4);
  parse(builder.finish(3, 0));  // biases may well be zero
  GgufBuilder adapter;
  adapter.tensor("b.lora_a", {32, 4}, 0, 32 * 4 * 4).tensor("b.lora_b", {4, 32}, 0, 32 * 4 * 4);
  parse(adapter.finish(3, 0));  // so is this before the first step
}

TEST_CASE("tensors of zeros at the end of a GGUF file are read if the zeros begin with a tensor") {
  GgufBuilder builder;
  builder.tensor("a", {32, 4}, 0, 32 * 4 * 4).tensor("b", {32, 8}, 0, 32 * 8 * 4);
  builder.tensor("c", {32, 2}, 0, 32 * 2 * 4);
  const std::string whole = builder.finish();
  const auto zero_from_end = [&](size_t bytes) {
    std::string file = whole;
    std::fill(file.end() - static_cast<std::ptrdiff_t>(bytes), file.end(), '\0');
    return file;
  };
  const size_t c = 32 * 2 * 4, b = c + 32 * 8 * 4, a = b + 32 * 4 * 4;
  CHECK(parse(zero_from_end(c))->tensors.size() == 3);
  CHECK(parse(zero_from_end(b))->tensors.size() == 3);
  for (const size_t zeros : {c + 64, b - 64, b + 64, a - 64, a}) {
    CAPTURE(zeros);
    CHECK(
        contains(gguf_refusal(zero_from_end(zeros)), "tensor 'c', the last of the file, is zero"));
  }
}

TEST_CASE("GGUF metadata of every type") {
  GgufBuilder builder;
  builder.key<uint8_t>("u8", 0, 200)
      .key<int8_t>("i8", 1, -5)
      .key<uint16_t>("u16", 2, 60000)
      .key<int16_t>("i16", 3, -300)
      .key<uint32_t>("u32", 4, 4000000000u)
      .key<int32_t>("i32", 5, -7)
      .key<float>("f32", 6, 0.5f)
      .key<uint8_t>("bool", 7, 1)
      .key("string", std::string_view("a\0b", 3))
      .key<uint64_t>("u64", 10, ~uint64_t{0})
      .key<int64_t>("i64", 11, int64_t{-1} << 60)
      .key<double>("f64", 12, 0.25)
      .strings("strings", {"x", "", "longer text"});
  const auto file = parse(builder.finish());
  const GgufMetadata& metadata = file->metadata;
  REQUIRE(metadata.size() == 13);
  CHECK(metadata[0].key() == "u8");
  CHECK(metadata.find("u8")->as_int() == 200);
  CHECK(metadata.find("i8")->as_int() == -5);
  CHECK(metadata.find("u16")->as_int() == 60000);
  CHECK(metadata.find("i16")->as_int() == -300);
  CHECK(metadata.find("u32")->as_int() == 4000000000);
  CHECK(metadata.find("i32")->as_number() == -7);
  CHECK(metadata.find("f32")->as_number() == 0.5);
  CHECK(metadata.find("bool")->as_bool());
  CHECK(metadata.find("string")->as_string() == std::string_view("a\0b", 3));
  CHECK(metadata.find("i64")->as_int() == int64_t{-1} << 60);
  CHECK(metadata.find("f64")->as_number() == 0.25);
  const auto strings = *metadata.find("strings");
  REQUIRE(strings.size() == 3);
  CHECK(strings.string_at(0) == "x");
  CHECK(strings.string_at(1) == "");
  CHECK(strings.string_at(2) == "longer text");
  CHECK_FALSE(metadata.find("absent").has_value());
  CHECK(metadata.get_int("absent", 0, 9, 4) == 4);
  CHECK_THROWS_AS(metadata.find("u64")->as_int(), Error);
  CHECK_THROWS_AS(metadata.find("f32")->as_int(), Error);
  CHECK_THROWS_AS(metadata.find("strings")->as_string(), Error);
  CHECK_THROWS_AS(strings.int_at(0), Error);
  CHECK_THROWS_AS(metadata.get_int("u8", 0, 100), Error);
  CHECK_THROWS_WITH(metadata.get_string("u8"),
                    "key 'u8': found a value of type u8, expected a string");
  CHECK_THROWS_WITH(metadata.get_string("absent"), "the key 'absent' is missing");
}

TEST_CASE("GGUF tensors") {
  GgufBuilder builder;
  builder.tensor("a", {64, 3}, 8, 3 * 68).tensor("b", {5}, 0, 20);
  const auto file = parse(builder.finish());
  REQUIRE(file->tensors.size() == 2);
  const GgufTensor* a = file->find_tensor("a");
  REQUIRE(a != nullptr);
  CHECK(a->shape == Shape{3, 64});
  CHECK(a->dtype == DType::kQ8_0);
  CHECK(a->bytes == 204);
  CHECK(file->array(*a).bytes() == 204);
  CHECK(file->find_tensor("c") == nullptr);
  CHECK(parse(builder.finish(2))->version == 2);
}

TEST_CASE("a type of tensors that Lumen lacks is named") {
  GgufBuilder builder;
  builder.tensor("t", {256, 2}, 22, 2 * 82);
  const auto file = parse(builder.finish());
  const std::string message =
      testing::refusal(ErrorKind::kUnsupported, [&] { file->array(file->tensors[0]); });
  CHECK(contains(message, "tensor 't' has the type IQ2_S"));
  GgufBuilder other;
  other.tensor("t", {256, 2}, 140, 2 * 176);
  CHECK(contains(testing::refusal(ErrorKind::kUnsupported, [&] { parse(other.finish()); }),
                 "tensor 't': type 140, one of ik_llama.cpp's own"));
}

TEST_CASE("GGUF files that are refused") {
  CHECK(contains(gguf_refusal("GGU"), "not a GGUF file"));
  CHECK(contains(gguf_refusal("<!DOCTYPE html><html>"), "HTML"));
  CHECK(contains(gguf_refusal("version https://git-lfs.github.com/spec/v1\noid sha256:0\n"),
                 "git lfs"));
  CHECK(contains(gguf_refusal(GgufBuilder().finish(1)), "version 1"));
  const auto one = [](std::vector<uint64_t> dims, uint32_t type, uint64_t bytes) {
    return gguf_refusal(GgufBuilder().tensor("t", dims, type, bytes).finish());
  };
  CHECK(contains(one({0, 4}, 0, 0), "zero"));
  CHECK(contains(one({1ull << 32, 1ull << 32}, 0, 0), "64 bits"));
  CHECK(contains(one({1ull << 16, 1ull << 16, 1ull << 16, 1ull << 16}, 0, 0), "64 bits"));
  CHECK(contains(one({1ull << 62}, 0, 0), "64 bits"));
  CHECK(contains(one({(1ull << 62) - 1}, 0, 0), "64 bits"));
  CHECK(contains(one({1ull << 40}, 0, 0), "past the end"));
  CHECK(contains(one({1ull << 63}, 0, 0), "out of range"));
  CHECK(contains(one({33}, 8, 36), "no multiple"));
  CHECK(contains(one({32}, 4, 4), "unknown type"));
  CHECK(contains(one({}, 0, 4), "0 dimensions"));
  CHECK(contains(one({1, 1, 1, 1, 1}, 0, 4), "5 dimensions"));
  CHECK(contains(gguf_refusal(GgufBuilder().u32("k", 1).u32("k", 1).finish()), "twice"));
  CHECK(contains(gguf_refusal(GgufBuilder().u32("", 1).finish()), "0 bytes"));
  CHECK(contains(gguf_refusal(GgufBuilder().tensor("t", {1}, 0, 4).tensor("t", {1}, 0, 4).finish()),
                 "twice"));
  CHECK(contains(gguf_refusal(GgufBuilder().tensor("a", {9}, 0, 4).tensor("b", {1}, 0, 4).finish()),
                 "overlap"));
  for (const uint32_t alignment : {0u, 3u, 65536u * 2, ~0u}) {
    CHECK(contains(gguf_refusal(GgufBuilder().u32("general.alignment", alignment).finish()),
                   "power"));
  }
  CHECK(contains(gguf_refusal(GgufBuilder().key("general.alignment", "32").finish()), "power"));
  std::string good = GgufBuilder().tensor("t", {8}, 0, 32).finish();
  CHECK(gguf_refusal(good) == "accepted");
  CHECK(contains(gguf_refusal(good + "PK\x03\x04"), "but the file has"));
  CHECK_NOTHROW(parse(good + "x", {.allow_trailing = true, .header_only = false}));
  for (size_t length = 0; length < good.size(); ++length) {
    CHECK(gguf_refusal(good.substr(0, length)) != "accepted");
  }
}

// A file of the tensors "t0", "t1", … of 8 numbers each, which lie at `offsets` of 1 KiB of data.
std::string placed(const std::vector<uint64_t>& offsets) {
  GgufBuilder builder;
  for (size_t i = 0; i < offsets.size(); ++i) {
    builder.tensor(str("t", i), {8}, 0, i + 1 < offsets.size() ? 32 : 1024 - 32 * i);
  }
  std::string file = builder.finish();
  size_t at = 0;
  for (size_t i = 0; i < offsets.size(); ++i) {
    at = file.find(str("t", i), at) + 2 + 4 + 8 + 4;
    std::memcpy(file.data() + at, &offsets[i], sizeof(uint64_t));
  }
  return file;
}

TEST_CASE("GGUF tensors may lie apart and in any order, but not on each other") {
  std::string file = placed({992, 96, 512});
  for (size_t i = 0; i < 3; ++i) {
    const size_t place = file.size() - 1024 + std::vector<size_t>{992, 96, 512}[i];
    std::fill_n(file.begin() + static_cast<ptrdiff_t>(place), 32, static_cast<char>('a' + i));
  }
  const auto read = parse(file);
  for (size_t i = 0; i < 3; ++i) {
    const Array array = read->array(read->tensors[i]);
    CHECK(static_cast<char>(array.data()[0]) == static_cast<char>('a' + i));
    CHECK(static_cast<char>(array.data()[31]) == static_cast<char>('a' + i));
  }
  CHECK(contains(gguf_refusal(placed({992, 96, 96})), "overlap those of 't1'"));
  CHECK(contains(gguf_refusal(placed({0, 0, 992})), "overlap those of 't0'"));
  CHECK(contains(gguf_refusal(placed({0, 40, 992})), "a multiple of the alignment, 32"));
  CHECK(contains(gguf_refusal(placed({0, 1024, 992})), "past the end of the file"));
  CHECK(gguf_refusal(placed({0, ~uint64_t{0} - 31, 992})) != "accepted");
  CHECK(contains(gguf_refusal(placed({0, 32, 64})), "but the file has"));
  GgufBuilder wide;  // 32 bytes apart, of 36 each
  wide.tensor("a", {9}, 0, 4).tensor("b", {1}, 0, 4);
  CHECK(contains(gguf_refusal(wide.finish()), "tensor 'b': its data, from byte "));
}

// The value of an array of `count` values of a type, which follow.
std::string array_value(uint32_t type, uint64_t count, const std::string& values) {
  std::string out;
  append_raw(out, type);
  append_raw(out, count);
  return out + values;
}

TEST_CASE("arrays of arrays are passed over, and copied as they are") {
  const std::string text("\2\0\0\0\0\0\0\0ab", 10);
  const std::string inner = array_value(9, 2, array_value(4, 1, "1234") + array_value(8, 1, text));
  GgufBuilder builder;
  builder.raw("nested", 9, array_value(9, 2, inner + array_value(0, 0, "")))
      .u32("after", 7)
      .raw("last", 9, array_value(9, 1, array_value(5, 1, "5678")))
      .tensor("t", {8}, 0, 32);
  const auto file = parse(builder.finish());
  const auto nested = *file->metadata.find("nested");
  CHECK(nested.element_type() == GgufType::kArray);
  CHECK(nested.size() == 2);
  CHECK(nested.encoded() == inner + array_value(0, 0, ""));
  CHECK(file->metadata.find("last")->encoded() == array_value(5, 1, "5678"));
  CHECK(file->metadata.get_int("after", 0, 9) == 7);
  CHECK_THROWS_WITH(nested.int_at(0),
                    "key 'nested': found an array of array, expected an array of integers");
  CHECK_THROWS_AS(nested.number_at(1), Error);
  CHECK_THROWS_AS(nested.bool_at(0), Error);
  CHECK_THROWS_AS(nested.string_at(0), Error);

  GgufWriter writer;
  writer.copy(nested);
  writer.copy(*file->metadata.find("last"));
  writer.add("t", file->array(file->tensors[0]));
  const std::string path = testing::temporary_directory() + "/nested.gguf";
  writer.write(path);
  CHECK(read_gguf(path)->metadata.find("nested")->encoded() == nested.encoded());
  CHECK(read_gguf(path)->metadata.find("last")->encoded() == array_value(5, 1, "5678"));
}

TEST_CASE("arrays of arrays that are too deep, too many or cut are refused") {
  const auto of = [](const std::string& value) {
    return gguf_refusal(GgufBuilder().raw("k", 9, value).finish());
  };
  const auto deep = [](int depth) {
    std::string value = array_value(0, 0, "");
    for (int i = 1; i < depth; ++i) value = array_value(9, 1, value);
    return value;
  };
  CHECK(of(deep(16)) == "accepted");
  CHECK(contains(of(deep(17)), "arrays lie in each other more than 16 deep"));
  CHECK(contains(of(deep(2'000)), "more than 16 deep"));
  CHECK(contains(of(array_value(9, 1 << 20, "")), "1048576 arrays of at least 12 bytes"));
  CHECK(contains(of(array_value(9, 1ull << 40, "")), "the limit is "));
  CHECK(contains(of(array_value(9, 1, array_value(9, 1ull << 20, ""))), "do not fit"));
  CHECK(contains(of(array_value(9, 1, array_value(10, 1 << 20, ""))), "do not fit"));
  CHECK(contains(of(array_value(9, 1, array_value(8, 1 << 20, ""))), "do not fit"));
  CHECK(contains(of(array_value(9, 1, array_value(99, 1, ""))), "value type 99"));
  // Wide and deep, with all counts true: as long as the file.
  std::string wide;
  for (int i = 0; i < 100'000; ++i) wide += array_value(9, 0, "");
  const std::string file = GgufBuilder().raw("k", 9, array_value(9, 100'000, wide)).finish();
  const double time = milliseconds([&] { parse(file); });
  if (kMeasured) CHECK(time < 50);
}

TEST_CASE("names in errors are made safe to print") {
  const std::string message = gguf_refusal(GgufBuilder().key<uint32_t>("\x1b[31m", 99, 1).finish());
  CHECK(contains(message, "value type 99"));
  CHECK_FALSE(contains(message, "\x1b"));
}

TEST_CASE("large GGUF headers take linear time") {
  std::string tensors[2], keys[2];
  for (const int size : {0, 1}) {
    GgufBuilder tensor_file, key_file;
    for (int i = 0; i < (size == 0 ? 2'500 : 40'000); ++i) {
      tensor_file.tensor(str("blk.", i, ".attn_q.weight"), {8}, 0, 32);
      key_file.u32(str("key.number.", i), 1);
    }
    tensors[size] = tensor_file.finish();
    keys[size] = key_file.finish();
  }
  const auto read = [](const std::string& file) { parse(file); };
  if (kMeasured) CHECK(growth(tensors[0], tensors[1], read) < kLinearGrowth);
  if (kMeasured) CHECK(growth(keys[0], keys[1], read) < kLinearGrowth);
}

TEST_CASE("huge counts are refused at once") {
  std::string file = GgufBuilder().strings("k", {"a"}).tensor("t", {8}, 0, 32).finish();
  const size_t array_count = file.find("k\x09") + 9;
  for (const size_t place : {size_t{8}, size_t{16}, size_t{24}, array_count}) {
    for (const uint64_t count :
         {uint64_t{1} << 29, uint64_t{1} << 32, ~uint64_t{0}, ~uint64_t{0} >> 1}) {
      std::string hostile = file;
      std::memcpy(hostile.data() + place, &count, sizeof count);
      const double time = milliseconds([&] { CHECK(gguf_refusal(hostile) != "accepted"); });
      if (kMeasured) CHECK(time < 10);
    }
  }
}

TEST_CASE("a header alone gives no data") {
  const std::string file = GgufBuilder().tensor("t", {1000}, 0, 4000).finish();
  const auto header = parse(file.substr(0, 200), {.allow_trailing = false, .header_only = true});
  CHECK(header->tensors[0].bytes == 4000);
  CHECK_THROWS_AS(header->array(header->tensors[0]), Error);
}

TEST_CASE("a large file is opened by its header") {
  const std::string path = testing::temporary_directory() + "/large.gguf";
  const uint64_t elements = uint64_t{1} << 30, bytes = 4 * elements;
  const std::string header = GgufBuilder().tensor("t.bias", {elements}, 0, 0).finish();
  std::ofstream(path, std::ios::binary) << header;
  REQUIRE(::truncate(path.c_str(), static_cast<int64_t>(header.size() + bytes)) == 0);
  const double time = milliseconds([&] { CHECK(read_gguf(path)->file_bytes > bytes); });
  if (kMeasured) CHECK(time < 10);
}

#ifdef __GLIBC__
// Heap bytes that the parsed file keeps.
size_t kept_bytes(const std::string& bytes) {
  const auto buffer = buffer_of(bytes);
  const auto in_use = [] { return ::mallinfo2().uordblks + ::mallinfo2().hblkhd; };
  const size_t before = in_use();
  const auto file = parse_gguf(buffer, "t.gguf");
  return in_use() - before;
}

TEST_CASE("metadata take at most four times the header, and a mebibyte") {
  GgufBuilder keys, tensors, strings;
  for (int i = 0; i < 65'536; ++i) keys.key<uint8_t>(str(i), 0, 1);
  for (int i = 0; i < 100'000; ++i) tensors.tensor(str(i), {1}, 0, 4);
  strings.strings("k", std::vector<std::string>(1'000'000));
  for (const std::string& file : {keys.finish(), strings.finish()}) {
    if (kMeasured) CHECK(kept_bytes(file) <= 4 * file.size() + (1 << 20));
  }
  const std::string file = tensors.finish();
  const size_t header = file.size() - 100'000 * 32;  // data of 4 bytes are 32 bytes apart
  if (kMeasured) CHECK(kept_bytes(file) <= 4 * header + (1 << 20));
}
#endif

TEST_CASE("later parts of split models are told by their names") {
  CHECK(is_later_part("a/model-00002-of-00003.gguf"));
  for (const char* name : {"model.gguf", "model-00001-of-00003.gguf", "model-00004-of-00003.gguf",
                           "-00002-of-00003.gguf", "model-2-of-3.gguf", ""}) {
    CAPTURE(name);
    CHECK_FALSE(is_later_part(name));
  }
}

TEST_CASE("split GGUF models open from any part") {
  const std::string directory = testing::temporary_directory();
  const auto part = [&](uint32_t number, uint32_t count, const std::string& tensor,
                        int32_t tensors = 3) {
    GgufBuilder builder;
    builder.key<uint16_t>("split.no", 2, static_cast<uint16_t>(number))
        .key<uint16_t>("split.count", 2, static_cast<uint16_t>(count))
        .key<int32_t>("split.tensors.count", 5, tensors);
    if (number == 0) builder.key("general.architecture", "llama");
    return builder.tensor(tensor, {8}, 0, 32).finish();
  };
  const auto path = [&](int number) { return str(directory, "/m-0000", number, "-of-00003.gguf"); };
  const auto write = [&](int number, const std::string& bytes) {
    std::ofstream(path(number), std::ios::binary) << bytes;
  };
  for (int i = 0; i < 3; ++i) write(i + 1, part(i, 3, str("t", i)));
  for (int i = 1; i <= 3; ++i) {
    const auto file = read_gguf(path(i));
    CHECK(file->tensors.size() == 3);
    CHECK(file->parts.size() == 3);
    CHECK(file->part_paths == std::vector<std::string>{path(1), path(2), path(3)});
    CHECK(file->metadata.get_string("general.architecture") == "llama");
    CHECK(file->find_tensor("t2")->part == 2);
    CHECK(file->array(*file->find_tensor("t2")).elements() == 8);
  }
  const auto refused = [&] {
    try {
      read_gguf(path(1));
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  write(2, part(1, 3, "t0"));
  const char* mixed = "they are not of one model, or of two splits of it";
  CHECK(contains(refused(), str("the tensor 't0' is in parts 1 and 2: ", mixed)));
  write(2, part(1, 3, "t1", 5));
  CHECK(
      contains(refused(), "00002-of-00003.gguf: it is of a model of 5 tensors, part 1 of one of"));
  CHECK(contains(refused(), mixed));
  for (int i = 0; i < 3; ++i) write(i + 1, part(i, 3, str("t", i), 7));
  CHECK(contains(refused(), "the 3 parts have 3 tensors, key 'split.tensors.count' says 7: they"));
  for (int i = 0; i < 3; ++i) write(i + 1, part(i, 3, str("t", i)));
  write(2, part(2, 3, "t1"));
  CHECK(contains(refused(), "says part 2"));
  write(2, part(1, 2, "t1"));
  CHECK(contains(refused(), "of 2"));
  std::remove(path(2).c_str());
  CHECK(contains(refused(), "no such file; it is part "));
  std::ofstream(directory + "/alone.gguf", std::ios::binary) << part(0, 3, "t0");
  CHECK_THROWS_AS(read_gguf(directory + "/alone.gguf"), Error);
}

}  // namespace
}  // namespace lumen::io
