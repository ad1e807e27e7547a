// The KV cache: keys and values of all layers in one contiguous block, allocated once, and the
// states of layers that keep one of fixed size in place of them.
#pragma once

#include <span>
#include <vector>

#include "lib/base/function_ref.h"
#include "lib/graph/tensor.h"

namespace lumen::nn {

struct KvCacheShape {
  int64_t layers, batch, kv_heads, context, head_dim;  // of layers with keys and values

  // Of layers with linear attention (linear_attention.h): the inputs that the convolution still
  // sees, and a matrix per head; of those with a short convolution
  // (short_convolution.h) the inputs alone.
  struct Recurrent {
    int64_t layers = 0, past_inputs = 0, channels = 0, heads = 0, key_dim = 0, value_dim = 0;
  };
  Recurrent recurrent{};

  bool has_values = true;  // else what k holds is the values, too (latent_attention.h)

  struct Heads {
    int64_t kv_heads, head_dim;
  };
  std::vector<Heads> own_heads{};  // of each layer; empty: kv_heads and head_dim of all
  Heads heads(int64_t layer) const {
    return own_heads.empty() ? Heads{kv_heads, head_dim} : own_heads[static_cast<size_t>(layer)];
  }
};

// For each layer, k and v as states [batch, kv_heads, context, head_dim], or k alone; layers of
// each kind are counted from 0. Plans that append to it share it; which positions are filled is the
// caller's knowledge. Copies share the memory.
class KvCache {
 public:
  // f32, f16, bf16 or q8_0 (head_dim a multiple of 32). Throws Error(kUnsupported) for another
  // combination, Error(kResource) if there is not enough memory.
  KvCache(const KvCacheShape& shape, DType dtype);

  const graph::Tensor& k(int64_t layer) const { return k_[layer]; }
  const graph::Tensor& v(int64_t layer) const { return v_[layer]; }
  // Of such layers, float32 whatever the type of the cache: [batch, 1, past_inputs, channels] and
  // [batch, heads, key_dim, value_dim], both after the last position that was appended.
  const graph::Tensor& past_inputs(int64_t layer) const { return past_inputs_[layer]; }
  const graph::Tensor& matrices(int64_t layer) const { return matrices_[layer]; }
  const KvCacheShape& shape() const { return shape_; }

  // The same memory for plans of another batch: batch row b uses the row slots[b] (int32 [batch],
  // all different).
  KvCache with_slots(graph::Tensor slots) const;
  // Undefined: batch row b uses row b.
  const graph::Tensor& slots() const { return slots_; }

  // The memory of the first `positions` rows of k and v of batch row `slot`: for each layer, for k
  // and, if there is one, v, for each head a piece.
  void for_each_piece(int64_t slot, int64_t positions,
                      FunctionRef<void(std::span<std::byte>)> visit) const;

  static uint64_t bytes(const KvCacheShape& shape, DType dtype);

 private:
  KvCacheShape shape_;
  std::vector<graph::Tensor> k_, v_, past_inputs_, matrices_;
  graph::Tensor slots_;
};

}  // namespace lumen::nn
