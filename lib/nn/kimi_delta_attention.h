// Kimi Delta Attention (Kimi Team 2025, "Kimi Linear"), in place of attention in most layers of
// Kimi Linear: a Gated DeltaNet whose state decays row by row.
#pragma once

#include <vector>

#include "lib/nn/causal_convolution.h"
#include "lib/nn/kv_cache.h"
#include "lib/nn/layers.h"
#include "lib/nn/linear_attention.h"

namespace lumen::nn {

struct Pass;

struct KimiDeltaAttentionShape {
  int64_t hidden;
  int64_t heads, head_dim;  // of q, k and v
  int64_t kernel;           // of the convolutions: at least 2 taps
  double eps;               // of the norm

  int64_t inner() const { return heads * head_dim; }
};

// q = silu(q_conv1d(q_proj x)), a causal convolution of each channel, k and v likewise; q and k
// divided by their lengths, q by √head_dim, too; decay = exp(−exp(A_log) · softplus(f_b_proj
// f_a_proj x + dt_bias)) of each row of a head's state, beta = sigmoid(b_proj x);
// o_proj(o_norm(ops::gated_delta_rule) · sigmoid(g_b_proj g_a_proj x)) with an RMSNorm of each
// head. Parameters: those names, A_log [1, 1, heads, 1] (or A, as of DecayRates) and dt_bias [heads
// · head_dim].
class KimiDeltaAttention {
 public:
  KimiDeltaAttention(const Parameters& parameters, const KimiDeltaAttentionShape& shape);
  // x [batch, tokens, hidden] → the same. `layer` counts the layers of this kind.
  Tensor operator()(const Tensor& x, const Pass& pass, int64_t layer) const;

  // What the cache holds of `layers` of them.
  static KvCacheShape::Recurrent cache_shape(const KimiDeltaAttentionShape& shape, int64_t layers);

 private:
  KimiDeltaAttentionShape shape_;
  std::vector<Linear> qkv_;
  CausalConvolution convolution_;
  Linear forget_a_, forget_b_;
  Tensor dt_bias_;
  DecayRates rates_;
  Linear beta_;
  Linear gate_a_, gate_b_;
  RmsNorm norm_;
  Linear o_proj_;
};

}  // namespace lumen::nn
