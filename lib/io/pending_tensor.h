// A tensor of a file that is to be written.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lib/tensor/array.h"

namespace lumen::io {

struct PendingTensor {
  std::string name;
  DType dtype;
  Shape shape;
  std::function<Array()> make;  // its values, of that type and shape, asked for once

  uint64_t bytes() const { return row_bytes(dtype, shape.elements()); }
};

}  // namespace lumen::io
