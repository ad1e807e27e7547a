#include "lib/nn/latent_rows.h"

#include "lib/base/limits.h"
#include "lib/nn/parameters.h"
#include "lib/ops/ops.h"

namespace lumen::nn {

Shape LatentRows::shape(const Shape& joined) const {
  const int64_t rank = joined[1];
  if (are_keys) return {heads, rank, key_dim};
  return {heads, joined[0] / heads - key_dim, rank};
}

Array LatentRows::of(const Array& joined) const {
  const int64_t rows = joined.shape()[0] / heads, rank = joined.shape()[1];
  const Tensor all = graph::reshape(graph::constant(float32_copy(joined)), {heads, rows, rank});
  const Tensor part = are_keys ? graph::permute(graph::slice(all, 1, 0, key_dim), {0, 2, 1})
                               : graph::slice(all, 1, key_dim, rows);
  return graph::contiguous(part).eval();
}

LatentRows latent_rows(const io::Json& config, bool are_keys) {
  return {io::get_int(config, "num_attention_heads", 1, limits::kHeads),
          io::get_int(config, "qk_nope_head_dim", 1, limits::kDim), are_keys};
}

}  // namespace lumen::nn
