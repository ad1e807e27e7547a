// Fuzz target: safetensors files. The tensors of accepted files partition the data section.
#include "lib/io/fuzz/fuzzing.h"
#include "lib/io/safetensors.h"
#include "lib/io/test_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen::io;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  expect_refusal_or_success([&] {
    const auto file = parse_safetensors(buffer_of(bytes), "fuzz.safetensors");
    uint64_t end = file->tensors.empty() ? size : file->tensors[0].offset;
    for (const SafetensorsTensor& tensor : file->tensors) {
      require(tensor.offset == end);
      end += tensor.bytes;
      if (tensor.dtype) touch(file->array(tensor));
    }
    require(end == size);
  });
  return 0;
}
