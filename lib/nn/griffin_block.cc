#include "lib/nn/griffin_block.h"

#include "lib/autograd/autograd.h"
#include "lib/nn/decoder.h"
#include "lib/nn/head_products.h"
#include "lib/nn/linear_attention.h"

namespace lumen::nn {
namespace {

constexpr double kRate = -8;
constexpr double kMostSlope = 1000;

// Whether each of `tokens` tokens is the first of a text: 1 or 0, [1 or batch, tokens, 1].
Tensor begins(const Pass& pass, int64_t tokens) {
  if (pass.segments.defined()) {
    return ops::sub(graph::scalar(1), of_one_document(pass.segments, 1));
  }
  const Tensor first = graph::contiguous(pass.position, DType::kF32);
  const Tensor at = ops::add(graph::reshape(first, {first.dim(0), 1, 1}),
                             graph::reshape(graph::iota(tokens), {1, tokens, 1}));
  return ops::equal(at, graph::scalar(0));
}

// √x, whose slope is at most kMostSlope.
Tensor bounded_root(const Tensor& x, bool needs_slope) {
  if (!needs_slope) return ops::sqrt(x);
  const Tensor fixed = autograd::detach(x);
  const double least = 1 / (kMostSlope * kMostSlope);
  const Tensor slope = ops::rsqrt(ops::maximum(ops::mul(fixed, 4), least));
  return ops::add(ops::sqrt(fixed), ops::mul(ops::sub(x, fixed), slope));
}

}  // namespace

GriffinBlock::Gate::Gate(const Parameters& parameters, const std::string& name,
                         const GriffinBlockShape& shape)
    : weight(parameters.get_f32(
          name + "_weight", {shape.heads, shape.width / shape.heads, shape.width / shape.heads})),
      bias(parameters.get_f32(name + "_bias", {shape.heads, shape.width / shape.heads},
                              Init::zeros())) {}

Tensor GriffinBlock::Gate::operator()(const Tensor& x) const {
  const Tensor in_heads = graph::reshape(x, {x.dim(0), x.dim(1), weight.dim(0), weight.dim(1)});
  return graph::reshape(ops::sigmoid(ops::add(by_heads(in_heads, weight), bias)), x.shape());
}

GriffinBlock::GriffinBlock(const Parameters& parameters, const GriffinBlockShape& shape)
    : shape_(shape),
      y_(parameters / "linear_y", shape.hidden, shape.width, true),
      x_(parameters / "linear_x", shape.hidden, shape.width, true),
      convolution_(parameters / "conv_1d", shape.width, shape.kernel, true),
      lambda_(
          (parameters / "rg_lru").get_f32("recurrent_param", {shape.width}, Init::log_uniform(1))),
      input_gate_(parameters / "rg_lru", "input_gate", shape),
      recurrent_gate_(parameters / "rg_lru", "recurrent_gate", shape),
      out_(parameters / "linear_out", shape.width, shape.hidden, true) {}

KvCacheShape::Recurrent GriffinBlock::cache_shape(const GriffinBlockShape& shape, int64_t layers) {
  return {layers, shape.kernel - 1, shape.width, 1, 1, shape.width};
}

Tensor GriffinBlock::operator()(const Tensor& u, const Pass& pass, int64_t layer) const {
  const int64_t batch = u.dim(0), tokens = u.dim(1);
  const Tensor gate = shape_.activation(y_(u));
  const Tensor inputs = convolution_.with_past(x_(u), pass, layer);
  const Tensor x = convolution_(inputs, pass);
  const Tensor rates = ops::mul(ops::softplus(lambda_), kRate);
  const Tensor time = recurrent_gate_(x);
  const Tensor left = ops::neg(ops::expm1(ops::mul(ops::mul(time, rates), 2)));
  const Tensor begun = ops::to_bool(begins(pass, tokens));
  const Tensor share =
      ops::where(begun, graph::scalar(1), bounded_root(left, pass.cache == nullptr));
  const Tensor given = ops::mul(ops::mul(input_gate_(x), x), share);
  const Tensor one = ops::full({batch, tokens, 1}, 1.0);
  const Tensor states =
      scanned(given, time, graph::reshape(rates, {1, shape_.width}), one, one, pass, layer);
  return out_(convolution_.keep_past(ops::mul(states, gate), inputs, pass, layer));
}

}  // namespace lumen::nn
