// A dense feed-forward layer and experts beside it, each with norms of its own (Gemma 4).
#pragma once

#include "lib/nn/gated_mlp.h"
#include "lib/nn/sparse_mlp.h"

namespace lumen::nn {

struct DualMlpShape {
  GatedMlpShape dense;
  SparseMlpShape experts;
  NormShape norm;
};

// n_1(mlp(n(x))) + n_2(experts(n'(x))), where the router is given x / rms(x) · s / √hidden, with n
// pre_feedforward_layernorm, n' pre_feedforward_layernorm_2, n_1 and n_2
// post_feedforward_layernorm_1 and _2, and s router.scale.
class DualMlp {
 public:
  // `parameters`: the decoder layer's.
  DualMlp(const Parameters& parameters, const DualMlpShape& shape);
  // x [..., hidden] → the same; `router_logits` as of SparseMlp.
  Tensor operator()(const Tensor& x, Tensor* router_logits = nullptr) const;

 private:
  GatedMlp dense_;
  SparseMlp experts_;
  Norm before_dense_, after_dense_, before_experts_, after_experts_;
  Tensor scale_;  // [hidden], of what the router is given
  double eps_;
};

}  // namespace lumen::nn
