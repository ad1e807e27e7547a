#include "lib/io/importance_matrix.h"

#include <cmath>
#include <limits>

#include "lib/base/testing.h"
#include "lib/io/atomic_file.h"
#include "lib/io/write_gguf.h"

namespace lumen::io {
namespace {

using testing::contains;
using testing::refusal;

template <typename T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void append_entry(std::string& bytes, const std::string& name, int32_t calls,
                  const std::vector<float>& values) {
  append(bytes, static_cast<int32_t>(name.size()));
  bytes += name;
  append(bytes, calls);
  append(bytes, static_cast<int32_t>(values.size()));
  for (const float value : values) append(bytes, value);
}

// A file of two entries, with what newer programs put behind them.
std::string older_file() {
  std::string bytes;
  append<int32_t>(bytes, 2);
  append_entry(bytes, "blk.0.attn_q.weight", 2, {2, 0, 8});
  append_entry(bytes, "output.weight", 0, {1, 2});
  append<int32_t>(bytes, 7);
  append<int32_t>(bytes, 5);
  return bytes + "a.txt";
}

ImportanceMatrix read(const std::string& bytes) {
  const std::string path = testing::temporary_directory() + "/imatrix.dat";
  write_file_atomically(path, bytes);
  return read_importance_matrix(path);
}

TEST_CASE("an importance matrix in the older format") {
  const std::string whole = older_file();
  const ImportanceMatrix matrix = read(whole);
  REQUIRE(matrix.columns.size() == 2);
  CHECK(matrix.columns.at("blk.0.attn_q.weight") == std::vector<float>{1, 0, 4});
  CHECK(matrix.columns.at("output.weight") == std::vector<float>{1, 2});
  CHECK(matrix.chunks == 7);
  CHECK(matrix.texts == std::vector<std::string>{"a.txt"});
  const ImportanceMatrix oldest = read(whole.substr(0, whole.size() - 13));
  CHECK(oldest.columns == matrix.columns);
  CHECK(oldest.chunks == 0);
  for (size_t size = 0; size < whole.size(); ++size) {
    if (size == whole.size() - 13) continue;
    INFO(size);
    CHECK_THROWS_AS(read(whole.substr(0, size)), Error);
  }
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { read(whole + "x"); }), "1 bytes too many"));
}

TEST_CASE("numbers of a hostile importance matrix are not believed") {
  const auto refused = [](const std::string& bytes) {
    return refusal(ErrorKind::kMalformed, [&] { read(bytes); });
  };
  std::string many;
  append<int32_t>(many, 1'000'000);
  CHECK(contains(refused(many + std::string(100, 'x')), "imatrix.dat: byte 4: 1000000 entries"));
  std::string negative;
  append<int32_t>(negative, -1);
  CHECK(contains(refused(negative), "byte 0: -1 entries, expected 1 to"));
  const auto of_values = [](const std::vector<float>& values, const char* again = nullptr) {
    std::string bytes;
    append<int32_t>(bytes, again ? 2 : 1);
    append_entry(bytes, "a", 1, values);
    if (again) append_entry(bytes, again, 1, values);
    return bytes;
  };
  CHECK(read(of_values({0, 1}, "b")).columns.size() == 2);
  CHECK(contains(refused(of_values({0, 1}, "a")), "'a' is there twice"));
  for (const float bad : {-1.0f, NAN, INFINITY}) {
    CHECK(contains(refused(of_values({1, bad})), "the values of 'a' have"));
  }
  std::string wide = of_values({1, 2});
  wide[13] = wide[14] = '\x7F';  // of the columns
  CHECK(contains(refused(wide), "columns of at least 4 bytes do not fit"));
}

TEST_CASE("an importance matrix in GGUF") {
  const std::string path = testing::temporary_directory() + "/a.gguf";
  const auto write = [&](const std::string& type, const std::string& counts_name,
                         const std::vector<float>& counts) {
    GgufWriter writer;
    writer.set("general.type", type);
    writer.set("imatrix.chunk_count", uint32_t{3});
    writer.set("imatrix.datasets", std::vector<std::string>{"a.txt", "b.txt"});
    writer.add("blk.0.attn_q.weight.in_sum2",
               Array::from<float>(std::vector<float>{4, 0, 8, 6}, {1, 4}));
    writer.add(counts_name, Array::from<float>(counts, {static_cast<int64_t>(counts.size()), 1}));
    writer.write(path);
  };
  write("imatrix", "blk.0.attn_q.weight.counts", {2});
  const ImportanceMatrix matrix = read_importance_matrix(path);
  REQUIRE(matrix.columns.size() == 1);
  CHECK(matrix.columns.at("blk.0.attn_q.weight") == std::vector<float>{2, 0, 4, 3});
  CHECK(matrix.chunks == 3);
  CHECK(matrix.texts == std::vector<std::string>{"a.txt", "b.txt"});
  CHECK(is_importance_matrix(*read_if_gguf(path)));
  write("imatrix", "blk.0.attn_q.weight.counts", {2, 0});  // two matrices, one never used
  CHECK(read_importance_matrix(path).columns.begin()->second == std::vector<float>{2, 0, 8, 6});
  const auto refused = [&](ErrorKind kind) {
    return refusal(kind, [&] { read_importance_matrix(path); });
  };
  write("imatrix", "blk.0.attn_q.weight.counts", {1, 1, 1});
  CHECK(contains(refused(ErrorKind::kMalformed), "in_sum2' has 4 numbers, "));
  write("imatrix", "blk.0.attn_k.weight.counts", {1});
  CHECK(contains(refused(ErrorKind::kMalformed), "has no 'blk.0.attn_q.weight.counts' beside it"));
  write("model", "blk.0.attn_q.weight.counts", {2});
  CHECK(contains(refused(ErrorKind::kUnsupported),
                 "a.gguf: is no importance matrix: general.type is 'model', expected 'imatrix'"));
  CHECK_THROWS_AS(read_importance_matrix(path + ".none"), Error);
}

}  // namespace
}  // namespace lumen::io
