// The recurrent block of Griffin (De et al. 2024, "Griffin: Mixing Gated Linear Recurrences with
// Local Attention for Efficient Language Models"), in place of attention in most layers of
// RecurrentGemma.
#pragma once

#include <string>

#include "lib/nn/activation.h"
#include "lib/nn/causal_convolution.h"
#include "lib/nn/kv_cache.h"
#include "lib/nn/layers.h"

namespace lumen::nn {

struct Pass;

struct GriffinBlockShape {
  std::string name;  // of the layer, below which its parameters are
  int64_t hidden;
  int64_t width, heads;  // of the recurrence, and the blocks of its gates, all of one size
  int64_t kernel;        // of the convolution: at least 2 taps
  Activation activation;
};

// linear_out(h · activation(linear_y u)) of the real-gated linear recurrent unit (RG-LRU) of x =
// conv_1d(linear_x u), a causal convolution of each channel: with r = σ(x W_r + b_r) and i = σ(x
// W_i + b_i), where a head's part of x has matrices of its own,
//   log a = −8 · softplus(Λ) · r, h' = a · h + √(1 − a²) · (i · x),
// but h' = i · x for the first token of a text. Parameters: linear_y, linear_x, linear_out, conv_1d
// with weight [width, 1, kernel] and bias; rg_lru.recurrent_param [width] (Λ), and of the gates
// rg_lru.input_gate_weight, recurrent_gate_weight [heads, width / heads, width / heads] and
// input_gate_bias, recurrent_gate_bias [heads, width / heads]. In training the slope of the root is
// at most 1000, as in transformers.
class GriffinBlock {
 public:
  GriffinBlock(const Parameters& parameters, const GriffinBlockShape& shape);
  // u [batch, tokens, hidden] → the same. `layer` counts the layers of this kind.
  Tensor operator()(const Tensor& u, const Pass& pass, int64_t layer) const;

  // What the cache holds of `layers` of them: the last inputs of the convolution, and h as a matrix
  // of one row.
  static KvCacheShape::Recurrent cache_shape(const GriffinBlockShape& shape, int64_t layers);

 private:
  struct Gate {
    Gate(const Parameters& parameters, const std::string& name, const GriffinBlockShape& shape);
    // Of x [batch, tokens, width].
    Tensor operator()(const Tensor& x) const;

    Tensor weight, bias;
  };

  GriffinBlockShape shape_;
  Linear y_, x_;
  CausalConvolution convolution_;
  Tensor lambda_;
  Gate input_gate_, recurrent_gate_;
  Linear out_;
};

}  // namespace lumen::nn
