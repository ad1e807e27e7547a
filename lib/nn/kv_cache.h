// The KV cache: keys and values of all layers in one contiguous block, allocated once.
#pragma once

#include <vector>

#include "lib/graph/tensor.h"

namespace lumen::nn {

struct KvCacheShape {
  int64_t layers, batch, kv_heads, context, head_dim;
};

// For each layer, k and v as states [batch, kv_heads, context, head_dim]. Plans that append to it
// share it; which positions are filled is the caller's knowledge.
class KvCache {
 public:
  // f32, f16, bf16 or q8_0 (head_dim a multiple of 32). Throws Error(kUnsupported) for another
  // combination, Error(kResource) if there is not enough memory.
  KvCache(const KvCacheShape& shape, DType dtype);

  const graph::Tensor& k(int64_t layer) const { return k_[layer]; }
  const graph::Tensor& v(int64_t layer) const { return v_[layer]; }
  const KvCacheShape& shape() const { return shape_; }

  static uint64_t bytes(const KvCacheShape& shape, DType dtype);

 private:
  KvCacheShape shape_;
  std::vector<graph::Tensor> k_, v_;
};

}  // namespace lumen::nn
