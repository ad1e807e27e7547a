// Fuzz target: PyTorch checkpoints, and pickles alone. Accepted tensors lie in the file.
#include "lib/io/fuzz/fuzzing.h"
#include "lib/io/pickle.h"
#include "lib/io/test_files.h"
#include "lib/io/torch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen::io;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const auto read = [](const std::string& file_bytes) {
    expect_refusal_or_success([&] {
      const auto file = parse_torch(buffer_of(file_bytes), "fuzz.pt");
      for (const TorchTensor& tensor : file->tensors) {
        if (tensor.dtype && tensor.shape.elements() > 0) touch(file->array(tensor));
      }
    });
  };
  read(bytes);
  // Most mutations of an archive break its structure; as its pickle they reach further.
  read(zip_file({{"f/data.pkl", bytes}, {"f/data/0", std::string(64, '\1')}}));
  return 0;
}
