// Products with a matrix for each head.
#pragma once

#include "lib/graph/tensor.h"

namespace lumen::nn {

using graph::Tensor;

// x [batch, tokens, heads or 1, in] by the matrix of each head, `matrices` [heads, in, out]:
// [batch, tokens, heads, out]. Few tokens are multiplied one by one, so that each gets the bits
// that it would get alone.
Tensor by_heads(const Tensor& x, const Tensor& matrices);

}  // namespace lumen::nn
