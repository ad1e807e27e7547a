// The Mamba-2 mixer (Dao & Gu 2024, "Transformers are SSMs"), in place of attention in most layers
// of Granite 4.0 and Nemotron-H, beside it in Falcon-H1: each head keeps a matrix in place of keys
// and values.
#pragma once

#include <array>
#include <limits>
#include <string>

#include "lib/io/json.h"
#include "lib/nn/causal_convolution.h"
#include "lib/nn/kv_cache.h"
#include "lib/nn/layers.h"
#include "lib/nn/linear_attention.h"

namespace lumen::nn {

// What stands between the heads and out_proj, of what they give y and the gate z: norm(y ·
// silu(z)), norm(y) · silu(z) or y · silu(z).
enum class Mamba2Norm { kOfGated, kBeforeGate, kNone };

struct Mamba2Shape {
  std::string name = "mamba";  // of the layer, below which its parameters are
  int64_t hidden;
  int64_t heads, head_dim;
  int64_t groups,
      state;       // heads is a multiple of groups, which share B and C, `state` numbers each
  int64_t kernel;  // of the convolution: at least 2 taps
  double eps;      // of the norm
  bool conv_bias = true;
  bool in_bias = false, out_bias = false;  // of in_proj and out_proj
  bool out_takes_additions = true;         // false: no new ones to out_proj, which PEFT refuses
  Mamba2Norm norm = Mamba2Norm::kOfGated;
  // What u, the parts z, x, B, C and dt of in_proj u, and what out_proj gives are multiplied by.
  double in_scale = 1, out_scale = 1;
  std::array<double, 5> part_scales = {1, 1, 1, 1, 1};
  double least_step = 0, most_step = std::numeric_limits<double>::infinity();  // of time

  int64_t inner() const { return heads * head_dim; }
  int64_t channels() const { return inner() + 2 * groups * state; }  // of the convolution
};

// How many groups the Mamba-2 of a model with this config (ModelFiles::config) has; 0: it has none.
int64_t mamba2_groups(const io::Json& config);

// z, xBC, dt = in_proj u; x, B, C = silu(conv1d(xBC)), a causal convolution of each channel; Δ =
// softplus(dt + dt_bias), within the limits of time steps; of each head with the state S [state,
// head_dim]: S' = exp(Δ A) · S + Δ B xᵀ, y = S'ᵀ C + D x, with A = −exp(A_log); out_proj(norm(y ·
// silu(z))) with an RMSNorm of each group's part, or as Mamba2Norm says. Parameters: those names;
// conv1d.weight [channels, 1, kernel] and bias; A_log (or A, as of DecayRates), D and dt_bias
// [heads]; norm.weight [inner], if there is a norm.
class Mamba2 {
 public:
  Mamba2(const Parameters& parameters, const Mamba2Shape& shape);
  // u [batch, tokens, hidden] → the same. `layer` counts the layers of this kind.
  Tensor operator()(const Tensor& u, const Pass& pass, int64_t layer) const;

  // What the cache holds of `layers` of them.
  static KvCacheShape::Recurrent cache_shape(const Mamba2Shape& shape, int64_t layers);

 private:
  // The norm of each group's part of y [batch, tokens, inner].
  Tensor group_norm(const Tensor& y) const;
  // What out_proj is given, of y and z, both [batch, tokens, inner].
  Tensor gated(const Tensor& y, const Tensor& z) const;

  Mamba2Shape shape_;
  Linear in_proj_;
  Tensor part_scales_;  // of all that in_proj gives; undefined: 1
  CausalConvolution convolution_;
  Tensor dt_bias_;
  DecayRates rates_;
  Tensor skip_, norm_weight_;
  Linear out_proj_;
};

}  // namespace lumen::nn
