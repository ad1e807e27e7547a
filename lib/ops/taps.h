// What the meanings of convolution and pooling are made of: regular samples of an axis.
#pragma once

#include "lib/graph/tensor.h"

namespace lumen::ops {

// Elements begin, begin + step, … of `axis`, `count` of them (zeros beyond the end).
graph::Tensor subsample(const graph::Tensor& x, int axis, int64_t begin, int64_t count,
                        int64_t step);

// The reverse: zeros of extent `extent` along `axis` but for x at begin, begin + step, ….
graph::Tensor spread(const graph::Tensor& x, int axis, int64_t begin, int64_t extent, int64_t step);

}  // namespace lumen::ops
