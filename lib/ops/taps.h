// What the meanings of convolution and pooling are made of: regular samples of an axis.
#pragma once

#include <array>
#include <string_view>

#include "lib/graph/tensor.h"

namespace lumen::ops {

// Along height and width.
using Pair = std::array<int64_t, 2>;

// [batch, channels, length] as an image of one row. Throws Error(kMalformed), naming `op`, if x has
// another rank.
graph::Tensor as_image(std::string_view op, const graph::Tensor& x);

// The reverse.
graph::Tensor as_signal(const graph::Tensor& x);

// Elements begin, begin + step, … of `axis`, `count` of them (zeros beyond the end).
graph::Tensor subsample(const graph::Tensor& x, int axis, int64_t begin, int64_t count,
                        int64_t step);

// The reverse: zeros of extent `extent` along `axis` but for x at begin, begin + step, ….
graph::Tensor spread(const graph::Tensor& x, int axis, int64_t begin, int64_t extent, int64_t step);

}  // namespace lumen::ops
