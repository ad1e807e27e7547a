#include "lib/nn/linear_attention.h"

#include <cmath>

#include "lib/nn/causal_convolution.h"
#include "lib/nn/decoder.h"

namespace lumen::nn {

namespace {

constexpr double kLengthEps = 1e-6;  // added to the square of a length
constexpr double kEndlessTime = 1e30;

// `out`, and the states [batch, heads, key_dim, value_dim] are in the cache.
Tensor with_kept(const Tensor& out, const Tensor& states, const Pass& pass, int64_t layer) {
  const Tensor first = graph::constant(Array::zeros(DType::kI32, {1}));
  return graph::after(
      out, ops::kv_append(pass.cache->matrices(layer), graph::permute(states, {0, 2, 1, 3}), first,
                          pass.slots()));
}

}  // namespace

Tensor unit_rows(const Tensor& x, double scale) {
  const auto dim = static_cast<double>(x.dim(-1));
  const Tensor weight = ops::full({x.dim(-1)}, scale / std::sqrt(dim));
  return ops::rms_norm(x, weight, kLengthEps / dim);
}

DecayRates::DecayRates(const Parameters& parameters, int64_t heads, const Shape& stored) {
  const Shape all = {heads};
  if (parameters.has("A")) {
    a_ = graph::reshape(parameters.get_f32("A", stored), all);
  } else {
    log_a_ = graph::reshape(parameters.get_f32("A_log", stored, Init::log_uniform(16)), all);
  }
}

Tensor scanned(const Tensor& u, Tensor time, const Tensor& rates, const Tensor& b, const Tensor& c,
               const Pass& pass, int64_t layer) {
  if (pass.segments.defined()) {  // what is before another document is forgotten
    const Tensor other = ops::sub(graph::scalar(1), of_one_document(pass.segments, 1));
    time = ops::add(time, ops::mul(other, graph::scalar(static_cast<float>(kEndlessTime))));
  }
  ops::SelectiveScanOptions options;
  if (pass.cache) {
    options = {pass.cache->matrices(layer), pass.position, pass.slots()};
  }
  const ops::SelectiveScanResult result = ops::selective_scan(u, time, rates, b, c, options);
  return pass.cache ? with_kept(result.out, result.state, pass, layer) : result.out;
}

Tensor with_states(const Tensor& q, const Tensor& k, const Tensor& v, Tensor decay,
                   const Tensor& beta, ops::DeltaRuleOptions options, const Pass& pass,
                   int64_t layer) {
  if (pass.segments.defined()) {
    Tensor same = of_one_document(pass.segments, 1);
    if (decay.shape().rank() == 4) same = graph::reshape(same, {same.dim(0), same.dim(1), 1, 1});
    decay = ops::mul(decay, same);
  }
  if (pass.cache) {
    options.before = pass.cache->matrices(layer);
    options.position = pass.position;
    options.slots = pass.slots();
  }
  const ops::DeltaRuleResult result = ops::gated_delta_rule(q, k, v, decay, beta, options);
  return pass.cache ? with_kept(result.out, result.state, pass, layer) : result.out;
}

}  // namespace lumen::nn
