// An activation with learned slopes.
#pragma once

#include "lib/nn/parameters.h"

namespace lumen::nn {

// xIELU (Huang and Schlag 2024, "Deriving Activation Functions Using Integration"): with
// α_p = softplus(alpha_p) and α_n = β + softplus(alpha_n),
//   α_p x² + βx for x > 0, and α_n (e^min(x, ε) − 1 − x) + βx else.
// Parameters alpha_p and alpha_n [1], new ones of α_p = α_n = 0.8; buffers beta and eps [].
class Xielu {
 public:
  explicit Xielu(const Parameters& parameters);
  Tensor operator()(const Tensor& x) const;

 private:
  Tensor alpha_p_, alpha_n_, beta_, eps_;
};

}  // namespace lumen::nn
