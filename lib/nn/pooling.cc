#include "lib/nn/pooling.h"

#include "lib/base/error.h"

namespace lumen::nn {

Tensor Flatten::operator()(const Tensor& x) const {
  const int begin = graph::checked_axis("flatten", x.shape(), first);
  const int end = graph::checked_axis("flatten", x.shape(), last);
  if (begin > end) fail(ErrorKind::kMalformed, "flatten: axis ", first, " is after axis ", last);
  Shape shape;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (axis <= begin || axis > end) {
      shape.push_back(x.dim(axis));
    } else {
      shape[-1] *= x.dim(axis);
    }
  }
  return graph::reshape(x, shape);
}

}  // namespace lumen::nn
