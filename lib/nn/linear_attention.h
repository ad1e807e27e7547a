// What layers with a matrix per head in place of keys and values have in common: Gated DeltaNet
// (gated_delta_net.h) and Mamba-2 (mamba2.h).
#pragma once

#include "lib/nn/layers.h"

namespace lumen::nn {

struct Pass;

// The rates of decay of `heads` heads, all below 0: −exp(A_log), or what a checkpoint may have in
// place of A_log [heads], A, as GGUF does.
class DecayRates {
 public:
  DecayRates(const Parameters& parameters, int64_t heads);
  Tensor operator()() const { return log_a_.defined() ? ops::neg(ops::exp(log_a_)) : a_; }

 private:
  Tensor log_a_, a_;  // one of them is undefined
};

// `out` of ops::gated_delta_rule for the tokens of a pass. States begin and stay in the cache, as
// its matrices(layer), if there is one; a document of a packed row begins with an empty state. Of
// `options` the states are set here.
Tensor with_states(const Tensor& q, const Tensor& k, const Tensor& v, Tensor decay,
                   const Tensor& beta, ops::DeltaRuleOptions options, const Pass& pass,
                   int64_t layer);

}  // namespace lumen::nn
