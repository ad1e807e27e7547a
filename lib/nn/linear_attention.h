// What layers with a matrix per head in place of keys and values have in common: Gated DeltaNet
// (gated_delta_net.h), Kimi Delta Attention (kimi_delta_attention.h) and Mamba-2 (mamba2.h).
#pragma once

#include "lib/nn/layers.h"

namespace lumen::nn {

struct Pass;

// x / √(Σ x² + 1e-6) · scale over the last axis.
Tensor unit_rows(const Tensor& x, double scale);

// The rates of decay of `heads` heads, all below 0: −exp(A_log), or what a checkpoint may have in
// place of A_log, A, as GGUF does. Parameters: one of them, of the shape `stored` or [heads].
class DecayRates {
 public:
  DecayRates(const Parameters& parameters, int64_t heads)
      : DecayRates(parameters, heads, {heads}) {}
  DecayRates(const Parameters& parameters, int64_t heads, const Shape& stored);
  Tensor operator()() const { return log_a_.defined() ? ops::neg(ops::exp(log_a_)) : a_; }

 private:
  Tensor log_a_, a_;  // one of them is undefined
};

// `out` of ops::selective_scan for the tokens of a pass, whose states likewise begin and stay in
// the cache, as its matrices(layer) of one head.
Tensor scanned(const Tensor& u, Tensor time, const Tensor& rates, const Tensor& b, const Tensor& c,
               const Pass& pass, int64_t layer);

// `out` of ops::gated_delta_rule for the tokens of a pass. States begin and stay in the cache, as
// its matrices(layer), if there is one; a document of a packed row begins with an empty state. Of
// `options` the states are set here.
Tensor with_states(const Tensor& q, const Tensor& k, const Tensor& v, Tensor decay,
                   const Tensor& beta, ops::DeltaRuleOptions options, const Pass& pass,
                   int64_t layer);

}  // namespace lumen::nn
