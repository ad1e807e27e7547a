#include "lib/tensor/shape.h"

#include "lib/base/strings.h"

namespace lumen {

Strides contiguous_strides(const Shape& shape) {
  Strides strides{};
  int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

std::string to_string(const Shape& shape) {
  std::string out = "[";
  for (int i = 0; i < shape.rank(); ++i) out += str(i ? ", " : "", shape[i]);
  return out + "]";
}

}  // namespace lumen
