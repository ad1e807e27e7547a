#include "lib/ops/taps.h"

#include <algorithm>

#include "lib/base/error.h"

namespace lumen::ops {

using graph::pad;
using graph::reshape;
using graph::slice;
using graph::Tensor;

Tensor as_image(std::string_view op, const Tensor& x) {
  graph::check_defined(x, op, "x");
  if (x.rank() != 3)
    fail(ErrorKind::kMalformed, op, " of ", to_string(x.shape()), ": needs rank 3");
  return reshape(x, {x.dim(0), x.dim(1), 1, x.dim(2)});
}

Tensor as_signal(const Tensor& x) {
  return reshape(x, {x.dim(0), x.dim(1), x.dim(3)});
}

Tensor subsample(const Tensor& x, int axis, int64_t begin, int64_t count, int64_t step) {
  const int64_t end = begin + count * step;
  const Tensor whole = end > x.dim(axis) ? pad(x, axis, 0, end - x.dim(axis)) : x;
  Shape split, shape = x.shape();
  for (int i = 0; i < x.rank(); ++i) {
    split.push_back(i == axis ? count : x.dim(i));
    if (i == axis) split.push_back(step);
  }
  shape[axis] = count;
  return reshape(slice(reshape(slice(whole, axis, begin, end), split), axis + 1, 0, 1), shape);
}

Tensor spread(const Tensor& x, int axis, int64_t begin, int64_t extent, int64_t step) {
  Shape split, shape = x.shape();
  for (int i = 0; i < x.rank(); ++i) {
    split.push_back(x.dim(i));
    if (i == axis) split.push_back(1);
  }
  shape[axis] = x.dim(axis) * step;
  const Tensor spaced = reshape(pad(reshape(x, split), axis + 1, 0, step - 1), shape);
  const int64_t used = std::min(shape[axis], extent - begin);
  return pad(slice(spaced, axis, 0, used), axis, begin, extent - begin - used);
}

}  // namespace lumen::ops
