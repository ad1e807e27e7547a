// The mixer of the first Mamba (Gu & Dao 2023, "Mamba: Linear-Time Sequence Modeling with Selective
// State Spaces"), in place of attention in Mamba and Falcon-Mamba and in most layers of Jamba.
#pragma once

#include <optional>
#include <string>

#include "lib/nn/causal_convolution.h"
#include "lib/nn/kv_cache.h"
#include "lib/nn/layers.h"

namespace lumen::nn {

struct Pass;

// The norms of Δ, B and C before they are used: none, of RMS without weights (Falcon-Mamba), or
// with them (Jamba).
enum class Mamba1Norms { kNone, kPlain, kWeighted };

struct Mamba1Shape {
  std::string name = "mixer";  // of the layer, below which its parameters are
  int64_t hidden, inner;
  int64_t state;      // numbers that each of `inner` channels keeps
  int64_t step_rank;  // numbers that the steps of time of all channels are made of
  int64_t kernel;     // of the convolution: at least 2 taps
  bool conv_bias = true;
  bool bias = false;                // of in_proj and out_proj
  bool out_takes_additions = true;  // false: no new ones to out_proj, which PEFT refuses
  Mamba1Norms norms = Mamba1Norms::kNone;
  double eps = 1e-6;  // of the norms
};

// x, z = in_proj u; x' = silu(conv1d(x)), a causal convolution of each channel; δ, B, C = x_proj
// x', with the norms; Δ = softplus(dt_proj δ); of each channel with the state s: s' = exp(Δ A) s +
// Δ x' B, y = s' · C + D x', A = −exp(A_log); out_proj(y · silu(z)). Parameters: those names;
// conv1d has weight [inner, 1, kernel] and bias; A_log [inner, state], or A, as GGUF has it; D
// [inner]; dt_layernorm, b_layernorm, c_layernorm, if they have weights. dt_proj takes no new
// additions, which transformers disregards.
class Mamba1 {
 public:
  Mamba1(const Parameters& parameters, const Mamba1Shape& shape);
  // u [batch, tokens, hidden] → the same. `layer` counts the layers of this kind.
  Tensor operator()(const Tensor& u, const Pass& pass, int64_t layer) const;

  // What the cache holds of `layers` of them.
  static KvCacheShape::Recurrent cache_shape(const Mamba1Shape& shape, int64_t layers);

 private:
  Tensor rates() const;  // A by numbers kept: [state, inner]

  Mamba1Shape shape_;
  Linear in_proj_;
  CausalConvolution convolution_;
  Linear x_proj_, dt_proj_;
  Tensor log_a_, a_;  // one of them is undefined
  Tensor skip_;
  std::optional<RmsNorm> step_norm_, b_norm_, c_norm_;
  Linear out_proj_;
};

}  // namespace lumen::nn
