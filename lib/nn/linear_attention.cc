#include "lib/nn/linear_attention.h"

#include "lib/nn/causal_convolution.h"
#include "lib/nn/decoder.h"

namespace lumen::nn {

DecayRates::DecayRates(const Parameters& parameters, int64_t heads) {
  if (parameters.has("A")) {
    a_ = parameters.get_f32("A", {heads});
  } else {
    log_a_ = parameters.get_f32("A_log", {heads}, Init::log_uniform(16));
  }
}

Tensor with_states(const Tensor& q, const Tensor& k, const Tensor& v, Tensor decay,
                   const Tensor& beta, ops::DeltaRuleOptions options, const Pass& pass,
                   int64_t layer) {
  if (pass.segments.defined()) decay = ops::mul(decay, of_one_document(pass.segments, 1));
  if (pass.cache) {
    options.before = pass.cache->matrices(layer);
    options.position = pass.position;
    options.slots = pass.slots();
  }
  const ops::DeltaRuleResult result = ops::gated_delta_rule(q, k, v, decay, beta, options);
  if (!pass.cache) return result.out;
  const Tensor first = graph::constant(Array::zeros(DType::kI32, {1}));
  return graph::after(
      result.out, ops::kv_append(pass.cache->matrices(layer),
                                 graph::permute(result.state, {0, 2, 1, 3}), first, pass.slots()));
}

}  // namespace lumen::nn
