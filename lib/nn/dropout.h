// Dropout as a module.
#pragma once

#include "lib/nn/module.h"
#include "lib/nn/training_scope.h"

namespace lumen::nn {

// In training mode and inside an nn::TrainingScope zero with probability p, else x / (1 − p);
// otherwise x. Throws Error(kMalformed) for p out of [0, 1].
class Dropout : public Module {
 public:
  explicit Dropout(double p = 0.5);
  Tensor forward(const Tensor& x) const override { return training() ? dropout(x, p_) : x; }
  // The same for the weights of ops::attention.
  ops::AttentionDropout of_attention() const {
    return training() ? attention_dropout(p_) : ops::AttentionDropout();
  }

 private:
  double p_;
};

}  // namespace lumen::nn
