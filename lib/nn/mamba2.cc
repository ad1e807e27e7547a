#include "lib/nn/mamba2.h"

#include <cmath>

#include "lib/nn/decoder.h"

namespace lumen::nn {

Mamba2::Mamba2(const Parameters& parameters, const Mamba2Shape& shape)
    : shape_(shape),
      in_proj_(parameters / "in_proj", shape.hidden, shape.inner() + shape.channels() + shape.heads,
               shape.bias),
      convolution_(parameters / "conv1d", shape.channels(), shape.kernel, shape.conv_bias),
      dt_bias_(parameters.get_f32("dt_bias", {shape.heads}, Init::ones())),
      rates_(parameters, shape.heads),
      skip_(parameters.get_f32("D", {shape.heads}, Init::ones())),
      norm_weight_((parameters / "norm").get_f32("weight", {shape.inner()}, Init::ones())),
      out_proj_(parameters / "out_proj", shape.inner(), shape.hidden, shape.bias) {}

KvCacheShape::Recurrent Mamba2::cache_shape(const Mamba2Shape& shape, int64_t layers) {
  return {layers, shape.kernel - 1, shape.channels(), shape.heads, shape.state, shape.head_dim};
}

Tensor Mamba2::gated_norm(const Tensor& y, const Tensor& z) const {
  const Tensor gated = ops::mul(y, ops::silu(z));
  if (shape_.groups == 1) return ops::rms_norm(gated, norm_weight_, shape_.eps);
  const int64_t size = shape_.inner() / shape_.groups;
  const Tensor parts = graph::reshape(gated, {y.dim(0), y.dim(1), shape_.groups, size});
  const Tensor weights = graph::reshape(norm_weight_, {shape_.groups, size});
  const Tensor norms = ops::rms_norm(parts, ops::full({size}, 1.0), shape_.eps);
  return graph::reshape(ops::mul(norms, weights), y.shape());
}

Tensor Mamba2::operator()(const Tensor& u, const Pass& pass, int64_t layer) const {
  const int64_t batch = u.dim(0), tokens = u.dim(1);
  const int64_t inner = shape_.inner(), channels = shape_.channels();
  const Tensor projected = in_proj_(u);
  const auto part = [&](int64_t first, int64_t count) {
    return graph::slice(projected, 2, first, first + count);
  };
  const Tensor inputs = convolution_.with_past(part(inner, channels), pass, layer);
  const Tensor mixed = ops::silu(convolution_(inputs, pass));
  const auto in_heads = [&](int64_t first, int64_t heads, int64_t dim) {
    return graph::reshape(graph::slice(mixed, 2, first, first + heads * dim),
                          {batch, tokens, heads, dim});
  };
  const Tensor x = in_heads(0, shape_.heads, shape_.head_dim);
  const Tensor b = in_heads(inner, shape_.groups, shape_.state);
  const Tensor c = in_heads(inner + shape_.groups * shape_.state, shape_.groups, shape_.state);

  Tensor step = ops::softplus(ops::add(part(inner + channels, shape_.heads), dt_bias_));
  if (shape_.least_step > 0) step = ops::maximum(step, shape_.least_step);
  if (std::isfinite(shape_.most_step)) step = ops::minimum(step, shape_.most_step);
  const Tensor decay = ops::exp(ops::mul(step, rates_()));

  const Tensor read = with_states(c, b, x, decay, step, {.corrects = false}, pass, layer);
  const Tensor y = ops::add(read, ops::mul(x, graph::reshape(skip_, {shape_.heads, 1})));
  const Tensor out = gated_norm(graph::reshape(y, {batch, tokens, inner}), part(0, inner));
  return out_proj_(convolution_.keep_past(out, inputs, pass, layer));
}

}  // namespace lumen::nn
