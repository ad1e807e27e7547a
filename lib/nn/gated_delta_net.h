// Gated DeltaNet (Yang et al. 2024), the linear attention of Qwen3-Next, Qwen3.5 and OLMo Hybrid:
// each head keeps a matrix in place of keys and values, whatever the length of the text.
#pragma once

#include <vector>

#include "lib/io/json.h"
#include "lib/nn/causal_convolution.h"
#include "lib/nn/kv_cache.h"
#include "lib/nn/layers.h"
#include "lib/nn/linear_attention.h"

namespace lumen::nn {

struct Pass;

struct GatedDeltaNetShape {
  int64_t hidden;
  int64_t key_heads, key_dim;
  int64_t heads, value_dim;  // of values; heads is a multiple of key_heads
  int64_t kernel;            // of the convolution: at least 2 taps
  double eps;                // of the norm
  bool tiled = false;        // ops::DeltaRuleOptions::tiled: the order of heads in GGUF
  bool fused = false;        // in_proj_qkvz and in_proj_ba (Qwen3-Next)
  bool apart = false;        // has_inputs_apart
  bool separate = false;     // a projection and a convolution for each of q, k and v (OLMo Hybrid)
  double beta_scale = 1;     // 2: a state may change its sign along k (allow_neg_eigval)
};

// q, k, v = silu(conv1d(in_proj_qkv x)), a causal convolution of each channel; q and k divided by
// their lengths, q by √key_dim, too; decay = exp(−exp(A_log) · softplus(in_proj_a x + dt_bias)),
// beta = beta_scale · sigmoid(in_proj_b x); out_proj(norm(ops::gated_delta_rule) · silu(in_proj_z
// x)) with an RMSNorm of each head. Parameters: those names; conv1d.weight [channels, 1, kernel],
// the channels being those of q, k and v; A_log (or A, as of DecayRates) and dt_bias [heads];
// norm.weight [value_dim]. Where the shape is fused, in_proj_qkvz has for each key head, one behind
// the other, the rows of its q, its k, the v of its value heads and their z, and in_proj_ba those
// of their b and their a; but in_proj_qkv and in_proj_z are in place of the former where its parts
// are apart. Where it is separate, the names are q_proj, k_proj and v_proj, q_conv1d, k_conv1d and
// v_conv1d, b_proj, a_proj, g_proj for z, o_norm and o_proj.
class GatedDeltaNet {
 public:
  GatedDeltaNet(const Parameters& parameters, const GatedDeltaNetShape& shape);
  // x [batch, tokens, hidden] → the same. `layer` counts the layers of this kind.
  Tensor operator()(const Tensor& x, const Pass& pass, int64_t layer) const;

  // What the cache holds of `layers` of them.
  static KvCacheShape::Recurrent cache_shape(const GatedDeltaNetShape& shape, int64_t layers);

 private:
  // Of the tokens: qkv [batch, tokens, channels], z [batch, tokens, heads · value_dim], b and a
  // [batch, tokens, heads].
  struct Inputs {
    Tensor qkv, z, b, a;
  };
  Inputs inputs_of(const Tensor& x) const;

  GatedDeltaNetShape shape_;
  int64_t channels_;
  // in_proj_qkvz alone, qkv and z, or q, k, v and z; ba alone or b and a.
  std::vector<Linear> qkvz_, ba_;
  CausalConvolution convolution_;
  Tensor dt_bias_;
  DecayRates rates_;
  RmsNorm norm_;
  Linear out_proj_;
};

}  // namespace lumen::nn
