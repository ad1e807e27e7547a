#include "lib/nn/head_products.h"

#include "lib/kernels/attention.h"
#include "lib/ops/ops.h"

namespace lumen::nn {

Tensor by_heads(const Tensor& x, const Tensor& matrices) {
  const int64_t batch = x.dim(0), tokens = x.dim(1), heads = matrices.dim(0);
  const int64_t rows = batch * tokens, in = matrices.dim(1), out = matrices.dim(2);
  const Tensor of_heads = graph::permute(x, {2, 0, 1, 3});
  const Tensor products =
      rows <= kernels::kFewTokens
          ? ops::matmul(graph::reshape(of_heads, {x.dim(2), rows, 1, in}),
                        graph::reshape(matrices, {heads, 1, in, out}))
          : ops::matmul(graph::reshape(of_heads, {x.dim(2), rows, in}), matrices);
  return graph::permute(graph::reshape(products, {heads, batch, tokens, out}), {1, 2, 0, 3});
}

}  // namespace lumen::nn
