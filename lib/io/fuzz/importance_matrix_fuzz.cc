// Fuzz target: importance matrices of both formats. What is accepted has finite values from 0.
#include <cmath>

#include "lib/io/fuzz/fuzzing.h"
#include "lib/io/importance_matrix.h"
#include "lib/io/test_files.h"

namespace lumen::io {
namespace {

void check(const ImportanceMatrix& matrix) {
  require(!matrix.columns.empty() && matrix.chunks >= 0);
  for (const auto& [name, values] : matrix.columns) {
    for (const float value : values) require(std::isfinite(value) && value >= 0);
  }
}

}  // namespace
}  // namespace lumen::io

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen::io;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  expect_refusal_or_success([&] {
    const auto buffer = buffer_of(bytes);
    if (bytes.starts_with("GGUF")) {
      check(importance_matrix_of(*parse_gguf(buffer, "fuzz.gguf"), "fuzz.gguf"));
    } else {
      check(parse_older_importance_matrix({buffer->data, buffer->bytes}, "fuzz.dat"));
    }
  });
  return 0;
}
