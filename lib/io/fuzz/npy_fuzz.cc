// Fuzz target: .npy files. An accepted array has no more elements than the file has bytes.
#include "lib/io/fuzz/fuzzing.h"
#include "lib/io/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen::io;
  expect_refusal_or_success([&] {
    const auto array = parse_npy(std::as_bytes(std::span(data, size)), "fuzz.npy");
    require(array.shape().elements() <= static_cast<int64_t>(size));
    touch(array);
  });
  return 0;
}
