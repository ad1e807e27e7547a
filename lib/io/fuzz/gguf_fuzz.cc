// Fuzz target: GGUF files. Accepted files give every value, and tensors that partition the data.
#include "lib/io/fuzz/fuzzing.h"
#include "lib/io/gguf.h"
#include "lib/io/test_files.h"

namespace lumen::io {
namespace {

void read_values(const GgufMetadata& metadata) {
  for (size_t i = 0; i < metadata.size(); ++i) {
    const GgufValue value = metadata[i];
    require(metadata.find(value.key())->key() == value.key());
    if (value.is_string()) {
      (void)value.as_string();
    } else if (!value.is_array()) {
      expect_refusal_or_success([&] { value.as_int(); });
      (void)value.as_number();
    } else {
      for (size_t k = 0; k < value.size(); ++k) {
        if (value.element_type() == GgufType::kString) {
          (void)value.string_at(k);
        } else if (value.element_type() != GgufType::kBool) {
          (void)value.number_at(k);
        }
      }
    }
  }
}

void check_tensors(const GgufFile& file) {
  uint64_t end = 0;
  for (const GgufTensor& tensor : file.tensors) {
    require(tensor.offset >= end &&
            tensor.offset - end < file.alignment + (end == 0 ? tensor.offset : 0));
    end = tensor.offset + tensor.bytes;
    require(end <= file.file_bytes);
    require(file.find_tensor(tensor.name) == &tensor);
    if (tensor.dtype) touch(file.array(tensor));
  }
}

}  // namespace
}  // namespace lumen::io

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen::io;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  expect_refusal_or_success([&] {
    const auto file = parse_gguf(buffer_of(bytes), "fuzz.gguf");
    read_values(file->metadata);
    check_tensors(*file);
  });
  return 0;
}
