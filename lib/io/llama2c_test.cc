#include "lib/io/llama2c.h"

#include <array>
#include <string>

#include "lib/base/error.h"
#include "lib/base/testing.h"
#include "lib/io/test_files.h"

namespace lumen::io {
namespace {

// dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, max_seq_len
using Fields = std::array<int32_t, 7>;

std::string checkpoint(const Fields& fields, size_t elements) {
  std::string file;
  for (const int32_t field : fields) append_raw(file, field);
  return file + std::string(elements * 4, '\0');
}

// Elements of the weights, without a classifier of its own.
size_t elements(const Fields& f) {
  const size_t dim = f[0], hidden = f[1], layers = f[2], kv = f[0] / f[3] * f[4];
  return f[5] * dim + layers * (2 * dim + 2 * dim * dim + 2 * kv * dim + 3 * hidden * dim) + dim +
         f[6] * dim / f[3];
}

TEST_CASE("llama2.c checkpoints") {
  const Fields fields = {8, 12, 2, 2, 1, 5, 6};
  const Llama2cFile file = parse_llama2c(buffer_of(checkpoint(fields, elements(fields))), "m.bin");
  CHECK(file.tied);
  CHECK(file.tensors.size() == 2 * 9 + 2);
  CHECK(file.tensors.at("model.layers.1.self_attn.k_proj.weight").shape() == Shape{4, 8});
  Fields untied = fields;
  untied[5] = -5;
  const std::string bytes = checkpoint(untied, elements(fields) + 5 * 8);
  const Llama2cFile other = parse_llama2c(buffer_of(bytes), "m.bin");
  CHECK_FALSE(other.tied);
  CHECK(other.vocab == 5);
  CHECK(other.tensors.at("lm_head.weight").shape() == Shape{5, 8});
}

TEST_CASE("hostile llama2.c headers are refused") {
  const Fields fields = {8, 12, 2, 2, 1, 5, 6};
  const size_t count = elements(fields);
  const auto refused = [](const std::string& bytes) {
    try {
      parse_llama2c(buffer_of(bytes), "m.bin");
    } catch (const Error& error) {
      CHECK((error.kind() == ErrorKind::kMalformed || error.kind() == ErrorKind::kUnsupported));
      return true;
    }
    return false;
  };
  CHECK(refused(checkpoint(fields, count - 1)));
  CHECK(refused(checkpoint(fields, count + 1)));
  for (size_t i = 0; i < 7; ++i) {
    for (const int32_t value : {0, -1, 3, 1 << 20, 1 << 30, INT32_MAX, INT32_MIN}) {
      Fields hostile = fields;
      hostile[i] = value;
      CAPTURE(i, value);
      if (hostile != fields) CHECK(refused(checkpoint(hostile, count)));
    }
  }
  std::string version2(256 + 64, '\0');
  version2.replace(0, 8, std::string("24ka\x02\0\0\0", 8));
  CHECK(refused(version2));
  version2[4] = 7;
  CHECK(refused(version2));
  for (size_t length = 0; length < 28; ++length) CHECK(refused(std::string(length, '\x01')));
}

}  // namespace
}  // namespace lumen::io
