#include "lib/nn/causal_convolution.h"

#include "lib/nn/decoder.h"

namespace lumen::nn {

Tensor of_one_document(const Tensor& segments, int64_t distance) {
  const int64_t batch = segments.dim(0), tokens = segments.dim(1);
  if (distance >= tokens) return ops::zeros({batch, tokens, 1});
  const Tensor own = graph::contiguous(segments, DType::kF32);
  const Tensor same = ops::equal(graph::slice(own, 1, distance, tokens),
                                 graph::slice(own, 1, 0, tokens - distance));
  return graph::reshape(graph::pad(same, 1, distance, 0), {batch, tokens, 1});
}

CausalConvolution::CausalConvolution(const Parameters& parameters, int64_t channels, int64_t kernel,
                                     bool with_bias)
    : channels_(channels),
      kernel_(kernel),
      taps_(parameters.get_f32("weight", {channels, 1, kernel}, Init::fan_in_uniform())) {
  const Init uniform = Init::within_root(static_cast<double>(kernel));
  if (with_bias) bias_ = parameters.get_f32("bias", {channels}, uniform);
}

CausalConvolution::CausalConvolution(const std::vector<Part>& parts, int64_t kernel)
    : channels_(0), kernel_(kernel) {
  std::vector<Tensor> taps;
  for (const Part& part : parts) {
    channels_ += part.channels;
    taps.push_back(
        part.place.get_f32("weight", {part.channels, 1, kernel}, Init::fan_in_uniform()));
  }
  taps_ = ops::concat(taps, 0);
}

Tensor CausalConvolution::with_past(const Tensor& x, const Pass& pass, int64_t layer) const {
  const Shape past = {x.dim(0), kernel_ - 1, channels_};
  const auto behind = [&](const Tensor& before) {
    const Tensor both[] = {before, x};
    return ops::concat(both, 1);
  };
  if (pass.cache == nullptr) return behind(ops::zeros(past));
  const Tensor& memory = pass.cache->past_inputs(layer);
  const Tensor table = graph::reshape(memory, {memory.dim(0), past[1] * past[2]});
  const Tensor rows = pass.slots().defined() ? ops::embedding(table, pass.slots()) : table;
  // Rows that were never written may hold anything.
  const Tensor begun =
      ops::less_than(graph::scalar(0), graph::contiguous(pass.position, DType::kF32));
  return behind(ops::where(graph::reshape(begun, {pass.position.dim(0), 1, 1}),
                           graph::reshape(rows, past), graph::scalar(0)));
}

Tensor CausalConvolution::operator()(const Tensor& inputs, const Pass& pass) const {
  const int64_t past = kernel_ - 1, tokens = inputs.dim(1) - past;
  const Tensor taps = graph::contiguous(graph::permute(taps_, {2, 1, 0}));  // a row for each
  Tensor sum;
  for (int64_t tap = 0; tap < kernel_; ++tap) {
    const Tensor weight = graph::reshape(graph::slice(taps, 0, tap, tap + 1), {channels_});
    Tensor term = ops::mul(graph::slice(inputs, 1, tap, tap + tokens), weight);
    if (pass.segments.defined() && tap < past) {
      term = ops::mul(term, of_one_document(pass.segments, past - tap));
    }
    sum = sum.defined() ? ops::add(sum, term) : term;
  }
  return bias_.defined() ? ops::add(sum, bias_) : sum;
}

Tensor CausalConvolution::keep_past(const Tensor& out, const Tensor& inputs, const Pass& pass,
                                    int64_t layer) const {
  if (pass.cache == nullptr) return out;
  const int64_t past = kernel_ - 1, tokens = inputs.dim(1) - past;
  const Tensor rows = graph::reshape(graph::slice(inputs, 1, tokens, tokens + past),
                                     {inputs.dim(0), past, 1, channels_});
  const Tensor first = graph::constant(Array::zeros(DType::kI32, {1}));
  return graph::after(out,
                      ops::kv_append(pass.cache->past_inputs(layer), rows, first, pass.slots()));
}

}  // namespace lumen::nn
