// Activations by name, for configs and containers.
#pragma once

#include <string>
#include <vector>

#include "lib/graph/tensor.h"

namespace lumen::nn {

using graph::Tensor;

// The activation of a name of PyTorch's or of Hugging Face's hidden_act: relu, silu (swish),
// relu2 (its square), gelu, gelu_tanh (gelu_new, gelu_fast, gelu_pytorch_tanh), sigmoid, tanh, elu,
// leaky_relu, softplus, hard_swish, mish, softmax and log_softmax (of the last axis), identity.
// Throws Error(kUnsupported) naming the nearest for another.
class Activation {
 public:
  explicit Activation(const std::string& name);
  Tensor operator()(const Tensor& x) const { return function_(x); }

 private:
  Tensor (*function_)(const Tensor&);
};

// All names.
std::vector<std::string> activation_names();

}  // namespace lumen::nn
