#include "lib/nn/mamba2.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lib/base/limits.h"
#include "lib/nn/decoder.h"

namespace lumen::nn {
namespace {

Tensor part_scales(const Mamba2Shape& shape) {
  const auto& scales = shape.part_scales;
  if (std::ranges::all_of(scales, [](double scale) { return scale == 1; })) return {};
  const int64_t widths[] = {shape.inner(), shape.inner(), shape.groups * shape.state,
                            shape.groups * shape.state, shape.heads};
  std::vector<float> all;
  for (size_t i = 0; i < scales.size(); ++i) {
    all.insert(all.end(), static_cast<size_t>(widths[i]), static_cast<float>(scales[i]));
  }
  return graph::constant(all, {std::ssize(all)});
}

Parameters place_of_output(const Parameters& parameters, const Mamba2Shape& shape) {
  return shape.out_takes_additions ? parameters : parameters.without_additions();
}

}  // namespace

int64_t mamba2_groups(const io::Json& config) {
  const std::string type = io::get_string(config, "model_type", "");
  const bool prefixed = type == "granitemoehybrid" || type == "falcon_h1";
  if (!prefixed && type != "nemotron_h" && type != "mamba2") return 0;
  return io::get_int(config, prefixed ? "mamba_n_groups" : "n_groups", 1, limits::kHeads);
}

Mamba2::Mamba2(const Parameters& parameters, const Mamba2Shape& shape)
    : shape_(shape),
      in_proj_(parameters / "in_proj", shape.hidden, shape.inner() + shape.channels() + shape.heads,
               shape.in_bias),
      part_scales_(part_scales(shape)),
      convolution_(parameters / "conv1d", shape.channels(), shape.kernel, shape.conv_bias),
      dt_bias_(parameters.get_f32("dt_bias", {shape.heads}, Init::ones())),
      rates_(parameters, shape.heads),
      skip_(parameters.get_f32("D", {shape.heads}, Init::ones())),
      out_proj_(place_of_output(parameters, shape) / "out_proj", shape.inner(), shape.hidden,
                shape.out_bias) {
  if (shape.norm == Mamba2Norm::kNone) return;
  norm_weight_ = (parameters / "norm").get_f32("weight", {shape.inner()}, Init::ones());
}

KvCacheShape::Recurrent Mamba2::cache_shape(const Mamba2Shape& shape, int64_t layers) {
  return {layers, shape.kernel - 1, shape.channels(), shape.heads, shape.state, shape.head_dim};
}

Tensor Mamba2::gated(const Tensor& y, const Tensor& z) const {
  const Tensor gate = ops::silu(z);
  switch (shape_.norm) {
    case Mamba2Norm::kNone:
      return ops::mul(y, gate);
    case Mamba2Norm::kBeforeGate:
      return ops::mul(group_norm(y), gate);
    case Mamba2Norm::kOfGated:
      break;
  }
  return group_norm(ops::mul(y, gate));
}

Tensor Mamba2::group_norm(const Tensor& y) const {
  if (shape_.groups == 1) return ops::rms_norm(y, norm_weight_, shape_.eps);
  const int64_t size = shape_.inner() / shape_.groups;
  const Tensor parts = graph::reshape(y, {y.dim(0), y.dim(1), shape_.groups, size});
  const Tensor weights = graph::reshape(norm_weight_, {shape_.groups, size});
  const Tensor norms = ops::rms_norm(parts, ops::full({size}, 1.0), shape_.eps);
  return graph::reshape(ops::mul(norms, weights), y.shape());
}

Tensor Mamba2::operator()(const Tensor& u, const Pass& pass, int64_t layer) const {
  const int64_t batch = u.dim(0), tokens = u.dim(1);
  const int64_t inner = shape_.inner(), channels = shape_.channels();
  Tensor projected = in_proj_(scaled(u, shape_.in_scale));
  if (part_scales_.defined()) projected = ops::mul(projected, part_scales_);
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
  const Tensor out = gated(graph::reshape(y, {batch, tokens, inner}), part(0, inner));
  const Tensor given = out_proj_(convolution_.keep_past(out, inputs, pass, layer));
  return scaled(given, shape_.out_scale);
}

}  // namespace lumen::nn
