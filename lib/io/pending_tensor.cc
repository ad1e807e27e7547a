#include "lib/io/pending_tensor.h"

#include <algorithm>

namespace lumen::io {

std::vector<PendingTensors> divide(const std::vector<PendingTensor>& tensors, uint64_t most_bytes) {
  std::vector<PendingTensors> files(1);
  uint64_t filled = 0;
  for (const PendingTensor& tensor : tensors) {
    if (!files.back().empty() && tensor.bytes() > most_bytes - std::min(filled, most_bytes)) {
      files.emplace_back();
      filled = 0;
    }
    files.back().push_back(&tensor);
    filled += tensor.bytes();
  }
  return files;
}

}  // namespace lumen::io
