// A tensor of a file that is to be written.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lib/tensor/array.h"

namespace lumen::io {

struct PendingTensor {
  std::string name;
  DType dtype;
  Shape shape;
  std::function<Array()> make;  // its values, of that type and shape, asked for once

  uint64_t bytes() const { return row_bytes(dtype, shape.elements()); }
};

using PendingTensors = std::vector<const PendingTensor*>;

// `tensors` in their order as the contents of one or more files, of at most `most_bytes` each: a
// tensor that is larger has a file of its own.
std::vector<PendingTensors> divide(const std::vector<PendingTensor>& tensors, uint64_t most_bytes);

}  // namespace lumen::io
