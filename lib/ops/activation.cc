// Activations.
#include <cmath>
#include <numbers>

#include "lib/ops/elementwise.h"

namespace lumen::ops {

using graph::GradCall;
using graph::Node;
using graph::OpDef;
namespace block = kernels::block;

extern const OpDef kTanh, kSigmoid, kSilu, kGeluTanh, kRelu;

namespace {

constexpr double kCubic = 0.044715;
constexpr double kRootTwoOverPi = 0.79788456080286536;

double logistic(double x) {
  return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x));
}

// √(2/π) (x + 0.044715 x³) from x and x².
Tensor gelu_inner(const Tensor& x, const Tensor& square) {
  return mul(x, add(mul(square, kRootTwoOverPi * kCubic), kRootTwoOverPi));
}

// With t = tanh u, u as above: (1 + t + x (1 − t²) u') / 2, u' = √(2/π) (1 + 3 · 0.044715 x²). Few
// enough instructions for one fused step.
Gradients grad_gelu_tanh(const GradCall& call) {
  const Tensor& x = call.inputs[0];
  const Tensor square = mul(x, x);
  const Tensor t = tanh(gelu_inner(x, square));
  const Tensor slope = add(mul(square, 3 * kRootTwoOverPi * kCubic), kRootTwoOverPi);
  const Tensor curved = mul(mul(x, sub(1.0, mul(t, t))), slope);
  return {mul(mul(call.dy, 0.5), add(add(t, 1.0), curved))};
}

}  // namespace

const OpDef kSigmoid =
    elementwise({.name = "sigmoid",
                 .block = block::sigmoid,
                 .real = [](const double* x) { return logistic(x[0]); },
                 .meaning = [](const Node&, Inputs in) { return recip(add(exp(neg(in[0])), 1.0)); },
                 .grad = [](const GradCall& call) -> Gradients {
                   const Tensor& y = call.output;
                   return {mul(call.dy, mul(y, sub(1.0, y)))};
                 },
                 .cases = [] { return elementwise_cases(kSigmoid, 1, -10, 10); }});
const OpDef kTanh = elementwise(
    {.name = "tanh",
     .block = block::tanh,
     .real = [](const double* x) { return std::tanh(x[0]); },
     .meaning = [](const Node&, Inputs in) { return sub(mul(sigmoid(mul(in[0], 2.0)), 2.0), 1.0); },
     .grad = [](const GradCall& call) -> Gradients {
       return {mul(call.dy, sub(1.0, mul(call.output, call.output)))};
     },
     .cases = [] { return elementwise_cases(kTanh, 1, -5, 5); }});
const OpDef kSilu =
    elementwise({.name = "silu",
                 .block = block::silu,
                 .real = [](const double* x) { return x[0] * logistic(x[0]); },
                 .meaning = [](const Node&, Inputs in) { return mul(in[0], sigmoid(in[0])); },
                 // s (1 + x (1 − s)) with s = sigmoid x.
                 .grad = [](const GradCall& call) -> Gradients {
                   const Tensor& x = call.inputs[0];
                   const Tensor s = sigmoid(x);
                   return {mul(call.dy, mul(s, add(mul(x, sub(1.0, s)), 1.0)))};
                 },
                 .cases = [] { return elementwise_cases(kSilu, 1, -10, 10); }});
const OpDef kGeluTanh =
    elementwise({.name = "gelu_tanh",
                 .block = block::gelu_tanh,
                 .real =
                     [](const double* x) {
                       const double u = kRootTwoOverPi * (x[0] + kCubic * x[0] * x[0] * x[0]);
                       return x[0] * logistic(2 * u);
                     },
                 .meaning =
                     [](const Node&, Inputs in) {
                       const Tensor inner = gelu_inner(in[0], mul(in[0], in[0]));
                       return mul(mul(in[0], 0.5), add(tanh(inner), 1.0));
                     },
                 .grad = grad_gelu_tanh,
                 .cases = [] { return elementwise_cases(kGeluTanh, 1, -5, 5); }});
const OpDef kRelu =
    elementwise({.name = "relu",
                 .block = block::relu,
                 .real = [](const double* x) { return x[0] < 0 ? 0.0 : x[0]; },
                 .integer = [](const int64_t* x) { return x[0] < 0 ? int64_t{0} : x[0]; },
                 .meaning = [](const Node&, Inputs in) { return maximum(in[0], 0.0); },
                 .grad = [](const GradCall& call) -> Gradients {
                   const Tensor zero = constant_like(0, call.dy);
                   return {where(less_than(zero, call.inputs[0]), call.dy, zero)};
                 },
                 .cases = [] { return elementwise_cases(kRelu, 1, -2, 2); }});

Tensor sigmoid(const Tensor& x) {
  return real_unary(kSigmoid, x);
}
Tensor tanh(const Tensor& x) {
  return real_unary(kTanh, x);
}
Tensor silu(const Tensor& x) {
  return real_unary(kSilu, x);
}
Tensor gelu_tanh(const Tensor& x) {
  return real_unary(kGeluTanh, x);
}
Tensor relu(const Tensor& x) {
  return unary(kRelu, x);
}

Tensor gelu(const Tensor& x) {
  const Tensor phi = add(erf(mul(x, std::numbers::sqrt2 / 2)), 1.0);
  return mul(mul(x, 0.5), phi);
}
Tensor elu(const Tensor& x, double alpha) {
  // expm1 of what is not positive only: no ∞ that the gradient would multiply by 0.
  const Tensor zero = constant_like(0, x);
  const Tensor negative = where(less_than(zero, x), zero, x);
  return where(less_than(zero, x), x, mul(expm1(negative), alpha));
}
Tensor leaky_relu(const Tensor& x, double slope) {
  return where(less_than(constant_like(0, x), x), x, mul(x, slope));
}
Tensor softplus(const Tensor& x, double beta, double threshold) {
  const Tensor scaled = mul(x, beta);
  const Tensor linear = less_than(constant_like(threshold, x), scaled);
  const Tensor curved = where(linear, constant_like(0, x), scaled);
  return where(linear, x, mul(log1p(exp(curved)), 1 / beta));
}
Tensor hard_sigmoid(const Tensor& x) {
  return mul(clamp(add(x, 3.0), Number(0.0), Number(6.0)), 1.0 / 6);
}
Tensor hard_swish(const Tensor& x) {
  return mul(x, hard_sigmoid(x));
}
Tensor mish(const Tensor& x) {
  return mul(x, tanh(softplus(x)));
}

}  // namespace lumen::ops
