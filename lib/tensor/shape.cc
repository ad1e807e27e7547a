#include "lib/tensor/shape.h"

#include "lib/base/error.h"

namespace lumen {

void Shape::refuse_rank() {
  fail(ErrorKind::kMalformed, "a tensor has at most ", kMaxRank, " axes");
}

void check_extents(std::string_view what, const Shape& shape) {
  int64_t room = Shape::kMaxElements;
  for (int64_t dim : shape) {
    if (dim < 0 || dim > room) {
      fail(ErrorKind::kMalformed, what, ": nothing has the shape ", to_string(shape),
           "; extents are at least 0, elements at most ", Shape::kMaxElements);
    }
    room /= std::max<int64_t>(dim, 1);
  }
}

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
