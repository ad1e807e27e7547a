#include "lib/nn/kimi_delta_attention.h"

#include <cmath>

#include "lib/nn/decoder.h"

namespace lumen::nn {

KimiDeltaAttention::KimiDeltaAttention(const Parameters& parameters,
                                       const KimiDeltaAttentionShape& s)
    : shape_(s),
      convolution_({{parameters / "q_conv1d", s.inner()},
                    {parameters / "k_conv1d", s.inner()},
                    {parameters / "v_conv1d", s.inner()}},
                   s.kernel),
      forget_a_(parameters / "f_a_proj", s.hidden, s.head_dim, false),
      forget_b_(parameters / "f_b_proj", s.head_dim, s.inner(), false),
      dt_bias_(parameters.get_f32("dt_bias", {s.inner()}, Init::ones())),
      rates_(parameters, s.heads, {1, 1, s.heads, 1}),
      beta_(parameters / "b_proj", s.hidden, s.heads, false),
      gate_a_(parameters / "g_a_proj", s.hidden, s.head_dim, false),
      gate_b_(parameters / "g_b_proj", s.head_dim, s.inner(), false),
      norm_(parameters / "o_norm", s.head_dim, s.eps),
      o_proj_(parameters / "o_proj", s.inner(), s.hidden, false) {
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
    qkv_.emplace_back(parameters / name, s.hidden, s.inner(), false);
  }
}

KvCacheShape::Recurrent KimiDeltaAttention::cache_shape(const KimiDeltaAttentionShape& shape,
                                                        int64_t layers) {
  return {layers, shape.kernel - 1, 3 * shape.inner(), shape.heads, shape.head_dim, shape.head_dim};
}

Tensor KimiDeltaAttention::operator()(const Tensor& x, const Pass& pass, int64_t layer) const {
  const int64_t batch = x.dim(0), tokens = x.dim(1), inner = shape_.inner();
  const Shape of_heads = {batch, tokens, shape_.heads, shape_.head_dim};
  const Tensor projected[] = {qkv_[0](x), qkv_[1](x), qkv_[2](x)};
  const Tensor inputs = convolution_.with_past(ops::concat(projected, 2), pass, layer);
  const Tensor mixed = ops::silu(convolution_(inputs, pass));
  const auto part = [&](int64_t i) {
    return graph::reshape(graph::slice(mixed, 2, i * inner, (i + 1) * inner), of_heads);
  };
  const double scale = 1 / std::sqrt(static_cast<double>(shape_.head_dim));
  const Tensor q = unit_rows(part(0), scale), k = unit_rows(part(1), 1);
  const Tensor steps = ops::softplus(ops::add(forget_b_(forget_a_(x)), dt_bias_));
  const Tensor rates = graph::reshape(rates_(), {shape_.heads, 1});
  const Tensor decay = ops::exp(ops::mul(graph::reshape(steps, of_heads), rates));
  const Tensor read = with_states(q, k, part(2), decay, ops::sigmoid(beta_(x)), {}, pass, layer);
  const Tensor out = convolution_.keep_past(read, inputs, pass, layer);
  const Tensor gate = ops::sigmoid(graph::reshape(gate_b_(gate_a_(x)), of_heads));
  return o_proj_(graph::reshape(ops::mul(norm_(out), gate), {batch, tokens, inner}));
}

}  // namespace lumen::nn
