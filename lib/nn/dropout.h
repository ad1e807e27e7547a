// Dropout.
#pragma once

#include "lib/nn/module.h"
#include "lib/nn/scopes.h"
#include "lib/ops/ops.h"

namespace lumen::nn {

// While training zero with probability p, else x / (1 − p) (Srivastava et al. 2014); otherwise x.
// Needs an nn::RandomScope while training if p > 0. Throws Error(kMalformed) for p out of [0, 1].
class Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5);
  Tensor forward(const Tensor& x) const override;

 private:
  double p_;
};

}  // namespace lumen::nn
