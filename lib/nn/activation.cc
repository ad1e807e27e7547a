#include "lib/nn/activation.h"

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/ops/ops.h"

namespace lumen::nn {
namespace {

struct Named {
  const char* name;
  Tensor (*function)(const Tensor&);
};

Tensor identity(const Tensor& x) {
  return x;
}
Tensor relu2(const Tensor& x) {
  return ops::square(ops::relu(x));
}
Tensor elu(const Tensor& x) {
  return ops::elu(x);
}
Tensor leaky_relu(const Tensor& x) {
  return ops::leaky_relu(x);
}
Tensor softplus(const Tensor& x) {
  return ops::softplus(x);
}
Tensor softmax(const Tensor& x) {
  return ops::softmax(x);
}
Tensor log_softmax(const Tensor& x) {
  return ops::log_softmax(x);
}

constexpr Named kActivations[] = {
    {"relu", ops::relu},
    {"relu2", relu2},
    {"silu", ops::silu},
    {"swish", ops::silu},
    {"gelu", ops::gelu},
    {"gelu_tanh", ops::gelu_tanh},
    {"gelu_new", ops::gelu_tanh},
    {"gelu_fast", ops::gelu_tanh},
    {"gelu_pytorch_tanh", ops::gelu_tanh},
    {"sigmoid", ops::sigmoid},
    {"tanh", ops::tanh},
    {"elu", elu},
    {"leaky_relu", leaky_relu},
    {"softplus", softplus},
    {"hard_swish", ops::hard_swish},
    {"mish", ops::mish},
    {"softmax", softmax},
    {"log_softmax", log_softmax},
    {"identity", identity},
};

}  // namespace

Activation::Activation(const std::string& name) {
  for (const Named& known : kActivations) {
    if (name == known.name) {
      function_ = known.function;
      return;
    }
  }
  const std::string near = nearest(name, activation_names());
  fail(ErrorKind::kUnsupported, "there is no activation ", quoted(name),
       near.empty() ? "" : str(" (nearest: ", near, ")"),
       "; known: ", join(activation_names(), ", "));
}

std::vector<std::string> activation_names() {
  std::vector<std::string> names;
  for (const Named& known : kActivations) names.emplace_back(known.name);
  return names;
}

}  // namespace lumen::nn
