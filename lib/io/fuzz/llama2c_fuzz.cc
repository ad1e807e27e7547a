// Fuzz target: llama2.c checkpoints. Every array of an accepted file lies inside it.
#include "lib/io/fuzz/fuzzing.h"
#include "lib/io/llama2c.h"
#include "lib/io/test_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen::io;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  expect_refusal_or_success([&] {
    const Llama2cFile file = parse_llama2c(buffer_of(bytes), "fuzz.bin");
    uint64_t total = 0;
    for (const auto& [name, array] : file.tensors) {
      touch(array);
      total += array.bytes();
    }
    require(total <= size);
  });
  return 0;
}
