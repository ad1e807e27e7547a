// What the meanings of convolution and pooling are made of: regular samples of an axis.
#pragma once

#include <array>
#include <string_view>

#include "lib/graph/tensor.h"
#include "lib/graph/views.h"

namespace lumen::ops {

// Along height and width.
using Pair = std::array<int64_t, 2>;

// [batch, channels, length] as an image of one row. Throws Error(kMalformed), naming `op`, if x has
// another rank.
graph::Tensor as_image(std::string_view op, const graph::Tensor& x);

// body(x) for an x of `rank` axes, of which the first is the batch; one without a batch is given
// one, which the result loses again.
template <class Body>
graph::Tensor with_batch(const graph::Tensor& x, int rank, const Body& body) {
  if (!x.defined() || x.rank() != rank - 1) return body(x);
  Shape one = {1}, rest;
  for (int i = 0; i < x.rank(); ++i) one.push_back(x.dim(i));
  const graph::Tensor y = body(graph::reshape(x, one));
  for (int i = 1; i < y.rank(); ++i) rest.push_back(y.dim(i));
  return graph::reshape(y, rest);
}

// The reverse of as_image.
graph::Tensor as_signal(const graph::Tensor& x);

// Elements begin, begin + step, … of `axis`, `count` of them (zeros beyond the end).
graph::Tensor subsample(const graph::Tensor& x, int axis, int64_t begin, int64_t count,
                        int64_t step);

// The reverse: zeros of extent `extent` along `axis` but for x at begin, begin + step, ….
graph::Tensor spread(const graph::Tensor& x, int axis, int64_t begin, int64_t extent, int64_t step);

}  // namespace lumen::ops
