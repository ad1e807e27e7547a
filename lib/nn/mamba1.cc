#include "lib/nn/mamba1.h"

#include "lib/nn/decoder.h"
#include "lib/nn/linear_attention.h"

namespace lumen::nn {

Mamba1::Mamba1(const Parameters& parameters, const Mamba1Shape& s)
    : shape_(s),
      in_proj_(parameters / "in_proj", s.hidden, 2 * s.inner, s.bias),
      convolution_(parameters / "conv1d", s.inner, s.kernel, s.conv_bias),
      x_proj_(parameters / "x_proj", s.inner, s.step_rank + 2 * s.state, false),
      dt_proj_(parameters.without_additions() / "dt_proj", s.step_rank, s.inner, true),
      skip_(parameters.get_f32("D", {s.inner}, Init::ones())),
      out_proj_((s.out_takes_additions ? parameters : parameters.without_additions()) / "out_proj",
                s.inner, s.hidden, s.bias) {
  const Shape rates = {s.inner, s.state};
  if (parameters.has("A")) {
    a_ = parameters.get_f32("A", rates);
  } else {
    log_a_ = parameters.get_f32("A_log", rates, Init::uniform(1));
  }
  if (s.norms != Mamba1Norms::kWeighted) return;
  step_norm_.emplace(parameters / "dt_layernorm", s.step_rank, s.eps);
  b_norm_.emplace(parameters / "b_layernorm", s.state, s.eps);
  c_norm_.emplace(parameters / "c_layernorm", s.state, s.eps);
}

KvCacheShape::Recurrent Mamba1::cache_shape(const Mamba1Shape& shape, int64_t layers) {
  return {layers, shape.kernel - 1, shape.inner, 1, shape.state, shape.inner};
}

Tensor Mamba1::rates() const {
  return graph::permute(log_a_.defined() ? ops::neg(ops::exp(log_a_)) : a_, {1, 0});
}

Tensor Mamba1::operator()(const Tensor& u, const Pass& pass, int64_t layer) const {
  const int64_t inner = shape_.inner, rank = shape_.step_rank, state = shape_.state;
  const Tensor projected = in_proj_(u);
  const Tensor given = graph::slice(projected, 2, 0, inner);
  const Tensor gate = ops::silu(graph::slice(projected, 2, inner, 2 * inner));
  const Tensor inputs = convolution_.with_past(given, pass, layer);
  const Tensor x = ops::silu(convolution_(inputs, pass));
  const Tensor selected = x_proj_(x);
  const auto part = [&](int64_t first, int64_t count, const std::optional<RmsNorm>& norm) {
    const Tensor numbers = graph::slice(selected, 2, first, first + count);
    if (norm) return (*norm)(numbers);
    return shape_.norms == Mamba1Norms::kPlain ? ops::rms_norm(numbers, {}, shape_.eps) : numbers;
  };
  const Tensor step = ops::softplus(dt_proj_(part(0, rank, step_norm_)));
  const Tensor b = part(rank, state, b_norm_), c = part(rank + state, state, c_norm_);
  const Tensor read = scanned(ops::mul(step, x), step, rates(), b, c, pass, layer);
  const Tensor y = ops::mul(ops::add(read, ops::mul(x, skip_)), gate);
  return out_proj_(convolution_.keep_past(y, inputs, pass, layer));
}

}  // namespace lumen::nn
