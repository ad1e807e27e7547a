// Alternating updates (AltUp; Baykal et al. 2023): several vectors of each token run through a
// decoder side by side, of which a layer computes with one alone (Gemma 3n).
#pragma once

#include <vector>

#include "lib/nn/layers.h"

namespace lumen::nn {

struct AltUpShape {
  int64_t hidden;
  int64_t streams;     // how many vectors a token has
  int64_t active = 0;  // the one that layers compute with
  NormShape norm;
};

// What a layer does with the streams s_i of a token around what it computes, f: with the router
// r(x) = tanh(modality_router(router_norm(x) / hidden)), a number for each stream,
//   predicted p_i = s_i + Σ_j P_ij s_j, P = prediction_coefs(r(s_a)) being [streams, streams],
//   corrected c_i = p_i + (1 + correction_coefs(r(y))_i) · (y − p_a), where y = f(p_a)
// and a is the active one.
class AltUp {
 public:
  // Parameters: those named above.
  AltUp(const Parameters& parameters, const AltUpShape& shape);
  // The streams of each token [batch, tokens, streams · hidden], one behind the other →
  // p [batch, tokens, streams, hidden].
  Tensor predicted(const Tensor& streams) const;
  // The active one of such [batch, tokens, streams, hidden] → [batch, tokens, hidden].
  Tensor active(const Tensor& apart) const;
  // p and y → c [batch, tokens, streams, hidden].
  Tensor corrected(const Tensor& predicted, const Tensor& computed) const;
  // c with `addition` [batch, tokens, hidden] added to all streams but the first →
  // [batch, tokens, streams · hidden].
  Tensor with_addition(const Tensor& corrected, const Tensor& addition) const;

 private:
  Tensor routed(const Tensor& x) const;

  AltUpShape shape_;
  Linear correction_coefs_, prediction_coefs_, modality_router_;
  Norm router_norm_;
  Tensor is_later_;  // [streams, 1]: 0 of the first, else 1
};

// The streams before the first layer, and what becomes of them behind the last. With n(v, x) =
// v · rms(x) / rms(v), where mean squares of v below 1e-5 count as that, and with matrices U_i of
// altup_projections and V_i of altup_unembed_projections, for i ≥ 1:
//   s_0 = x, s_i = n(U_i x, x); the result is the mean of s_0 and all n(V_i s_i, s_0).
// The matrices, whose names end in numbers, take no low-rank additions: such names in
// target_modules would mean decoder layers for PEFT.
class AltUpEnds {
 public:
  AltUpEnds(const Parameters& parameters, const AltUpShape& shape);
  // x [batch, tokens, hidden] → [batch, tokens, streams · hidden].
  Tensor streams_of(const Tensor& x) const;
  // The other way round.
  Tensor mean_of(const Tensor& streams) const;

 private:
  int64_t hidden_;
  std::vector<Linear> projections_, unembed_projections_;  // of stream 1, of stream 2, …
};

}  // namespace lumen::nn
