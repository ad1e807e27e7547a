// Activations.
#include <numbers>

#include "lib/ops/elementwise.h"

namespace lumen::ops {

using graph::GradCall;
using graph::Node;
using graph::OpDef;
namespace block = kernels::block;
namespace block_f64 = kernels::block_f64;

extern const OpDef kTanh, kSigmoid, kSilu, kSiluSlope, kGelu, kGeluSlope, kGeluTanh, kGeluTanhSlope,
    kHardSwish, kHardSwishSlope, kRelu, kLeakyRelu;

namespace {

constexpr double kCubic = 0.044715;
constexpr double kRootTwoOverPi = 0.79788456080286536;
constexpr double kInverseRootTwoPi = 0.39894228040143268;

// Whether 3 ≤ |x|, where hard_swish has an end.
Tensor beyond_three(const Tensor& x) {
  const Tensor three = constant_like(3, x), size = abs(x);
  return add(less_than(three, size), equal(three, size));
}

// √(2/π) (x + 0.044715 x³) from x and x².
Tensor gelu_inner(const Tensor& x, const Tensor& square) {
  return mul(x, add(mul(square, kRootTwoOverPi * kCubic), kRootTwoOverPi));
}

// Φ(x) and its density φ(x) of the normal distribution.
Tensor normal_cdf(const Tensor& x) {
  return mul(add(erf(mul(x, std::numbers::sqrt2 / 2)), 1.0), 0.5);
}
Tensor normal_density(const Tensor& x) {
  return mul(exp(mul(mul(x, x), -0.5)), kInverseRootTwoPi);
}

// v = 2 √(2/π) (x + 0.044715 x³), of which gelu_tanh is x · sigmoid v, and its derivatives.
struct TanhArgument {
  explicit TanhArgument(const Tensor& x) {
    const Tensor square = mul(x, x);
    value = mul(gelu_inner(x, square), 2.0);
    slope = add(mul(square, 6 * kRootTwoOverPi * kCubic), 2 * kRootTwoOverPi);
    curvature = mul(x, 12 * kRootTwoOverPi * kCubic);
  }
  Tensor value, slope, curvature;
};

}  // namespace

const OpDef kSigmoid =
    elementwise({.name = "sigmoid",
                 .block = block::sigmoid,
                 .block_f64 = block_f64::sigmoid,
                 .meaning = [](const Node&, Inputs in) { return recip(add(exp(neg(in[0])), 1.0)); },
                 .grad = [](const GradCall& call) -> Gradients {
                   const Tensor& y = call.output;
                   return {mul(call.dy, mul(y, sub(1.0, y)))};
                 },
                 .cases = [] { return elementwise_cases(kSigmoid, 1, -10, 10); }});
const OpDef kTanh = elementwise(
    {.name = "tanh",
     .block = block::tanh,
     .block_f64 = block_f64::tanh,
     .meaning = [](const Node&, Inputs in) { return sub(mul(sigmoid(mul(in[0], 2.0)), 2.0), 1.0); },
     .grad = [](const GradCall& call) -> Gradients {
       return {mul(call.dy, sub(1.0, mul(call.output, call.output)))};
     },
     .cases = [] { return elementwise_cases(kTanh, 1, -5, 5); }});
const OpDef kSilu =
    elementwise({.name = "silu",
                 .block = block::silu,
                 .block_f64 = block_f64::silu,
                 .meaning = [](const Node&, Inputs in) { return mul(in[0], sigmoid(in[0])); },
                 .grad = [](const GradCall& call) -> Gradients {
                   return {mul(call.dy, real_unary(kSiluSlope, call.inputs[0]))};
                 },
                 .cases = [] { return elementwise_cases(kSilu, 1, -10, 10); }});
// The derivative of silu: s (1 + x (1 − s)) with s = sigmoid x.
const OpDef kSiluSlope =
    elementwise({.name = "silu_slope",
                 .block = block::silu_slope,
                 .block_f64 = block_f64::silu_slope,
                 .meaning =
                     [](const Node&, Inputs in) {
                       const Tensor s = sigmoid(in[0]);
                       return mul(s, add(mul(in[0], sub(1.0, s)), 1.0));
                     },
                 // s (1 − s) (2 + x (1 − 2 s)).
                 .grad = [](const GradCall& call) -> Gradients {
                   const Tensor& x = call.inputs[0];
                   const Tensor s = sigmoid(x);
                   const Tensor bend = add(mul(x, sub(1.0, mul(s, 2.0))), 2.0);
                   return {mul(call.dy, mul(mul(s, sub(1.0, s)), bend))};
                 },
                 .cases = [] { return elementwise_cases(kSiluSlope, 1, -10, 10); }});
const OpDef kGelu =
    elementwise({.name = "gelu",
                 .block = block::gelu,
                 .block_f64 = block_f64::gelu,
                 .meaning = [](const Node&, Inputs in) { return mul(in[0], normal_cdf(in[0])); },
                 .grad = [](const GradCall& call) -> Gradients {
                   return {mul(call.dy, real_unary(kGeluSlope, call.inputs[0]))};
                 },
                 .cases = [] { return elementwise_cases(kGelu, 1, -5, 5); }});
// The derivative of gelu: Φ(x) + x φ(x).
const OpDef kGeluSlope = elementwise(
    {.name = "gelu_slope",
     .block = block::gelu_slope,
     .block_f64 = block_f64::gelu_slope,
     .meaning = [](const Node&,
                   Inputs in) { return add(normal_cdf(in[0]), mul(in[0], normal_density(in[0]))); },
     // φ (2 − x²).
     .grad = [](const GradCall& call) -> Gradients {
       const Tensor& x = call.inputs[0];
       return {mul(call.dy, mul(normal_density(x), sub(2.0, mul(x, x))))};
     },
     .cases = [] { return elementwise_cases(kGeluSlope, 1, -5, 5); }});
const OpDef kGeluTanh =
    elementwise({.name = "gelu_tanh",
                 .block = block::gelu_tanh,
                 .block_f64 = block_f64::gelu_tanh,
                 .meaning =
                     [](const Node&, Inputs in) {
                       const Tensor inner = gelu_inner(in[0], mul(in[0], in[0]));
                       return mul(mul(in[0], 0.5), add(tanh(inner), 1.0));
                     },
                 .grad = [](const GradCall& call) -> Gradients {
                   return {mul(call.dy, real_unary(kGeluTanhSlope, call.inputs[0]))};
                 },
                 .cases = [] { return elementwise_cases(kGeluTanh, 1, -5, 5); }});
// The derivative of gelu_tanh: s + x s' with s = sigmoid v and s' = s (1 − s) v'.
const OpDef kGeluTanhSlope =
    elementwise({.name = "gelu_tanh_slope",
                 .block = block::gelu_tanh_slope,
                 .block_f64 = block_f64::gelu_tanh_slope,
                 .meaning =
                     [](const Node&, Inputs in) {
                       const TanhArgument v(in[0]);
                       const Tensor s = sigmoid(v.value);
                       return mul(s, add(mul(mul(in[0], sub(1.0, s)), v.slope), 1.0));
                     },
                 // s (1 − s) (2 v' + x v'² (1 − 2 s) + x v'').
                 .grad = [](const GradCall& call) -> Gradients {
                   const Tensor& x = call.inputs[0];
                   const TanhArgument v(x);
                   const Tensor s = sigmoid(v.value);
                   const Tensor bend = mul(mul(v.slope, v.slope), sub(1.0, mul(s, 2.0)));
                   const Tensor sum = add(mul(v.slope, 2.0), mul(x, add(bend, v.curvature)));
                   return {mul(call.dy, mul(mul(s, sub(1.0, s)), sum))};
                 },
                 .cases = [] { return elementwise_cases(kGeluTanhSlope, 1, -5, 5); }});
const OpDef kHardSwish =
    elementwise({.name = "hard_swish",
                 .block = block::hard_swish,
                 .block_f64 = block_f64::hard_swish,
                 .meaning = [](const Node&, Inputs in) { return mul(in[0], hard_sigmoid(in[0])); },
                 .grad = [](const GradCall& call) -> Gradients {
                   return {mul(call.dy, real_unary(kHardSwishSlope, call.inputs[0]))};
                 },
                 .cases = [] { return elementwise_cases(kHardSwish, 1, -5, 5); }});
// The derivative of hard_swish, at ±3 as PyTorch has it: 0 and 1.
const OpDef kHardSwishSlope =
    elementwise({.name = "hard_swish_slope",
                 .block = block::hard_swish_slope,
                 .block_f64 = block_f64::hard_swish_slope,
                 .meaning =
                     [](const Node&, Inputs in) {
                       const Tensor& x = in[0];
                       const Tensor step = less_than(constant_like(0, x), x);
                       return where(beyond_three(x), step, add(mul(x, 1.0 / 3), 0.5));
                     },
                 .grad = [](const GradCall& call) -> Gradients {
                   const Tensor zero = constant_like(0, call.dy);
                   return {where(beyond_three(call.inputs[0]), zero, mul(call.dy, 1.0 / 3))};
                 },
                 .cases = [] { return elementwise_cases(kHardSwishSlope, 1, -5, 5); }});
const OpDef kRelu =
    elementwise({.name = "relu",
                 .block = block::relu,
                 .block_f64 = block_f64::relu,
                 .integer = [](const int64_t* x) { return x[0] < 0 ? int64_t{0} : x[0]; },
                 .typed = kernels::TypedOp::kRelu,
                 .meaning = [](const Node&, Inputs in) { return maximum(in[0], 0.0); },
                 // Of the result, so that x need not be kept.
                 .grad = [](const GradCall& call) -> Gradients {
                   const Tensor zero = constant_like(0, call.dy);
                   return {where(less_than(zero, call.output), call.dy, zero)};
                 },
                 .cases = [] { return elementwise_cases(kRelu, 1, -2, 2); }});
// x > 0 ? v : slope · v: leaky ReLU with v = x, and its gradient with v = dy. It has none of x and
// of the slope.
const OpDef kLeakyRelu =
    elementwise({.name = "leaky_relu",
                 .block = block::leaky_relu,
                 .block_f64 = block_f64::leaky_relu,
                 .typed = kernels::TypedOp::kLeaky,
                 .meaning =
                     [](const Node&, Inputs in) {
                       const Tensor positive = less_than(constant_like(0, in[0]), in[0]);
                       return mul(in[1], where(positive, ones_like(in[0]), in[2]));
                     },
                 .grad = [](const GradCall& call) -> Gradients {
                   const Tensor inputs[] = {call.inputs[0], call.dy, call.inputs[2]};
                   return {Tensor(), compute(kLeakyRelu, inputs, call.node.dtype), Tensor()};
                 },
                 .cases = [] { return elementwise_cases(kLeakyRelu, 3, -2, 2); }});

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
  return real_unary(kGelu, x);
}
Tensor elu(const Tensor& x, double alpha) {
  return in_float(x, [&](const Tensor& t) {
    // expm1 of what is not positive only: no ∞ that the gradient would multiply by 0.
    const Tensor zero = constant_like(0, t);
    const Tensor negative = where(less_than(zero, t), zero, t);
    return where(less_than(zero, t), t, mul(expm1(negative), alpha));
  });
}
Tensor leaky_relu(const Tensor& x, double slope) {
  return in_float(x, [&](const Tensor& t) {
    const Tensor inputs[] = {t, t, full_like(t, slope)};
    return compute(kLeakyRelu, inputs, t.dtype());
  });
}
Tensor softplus(const Tensor& x, double beta, double threshold) {
  return in_float(x, [&](const Tensor& t) {
    const Tensor scaled = mul(t, beta);
    const Tensor linear = less_than(constant_like(threshold, t), scaled);
    const Tensor curved = where(linear, constant_like(0, t), scaled);
    return where(linear, t, mul(log1p(exp(curved)), 1 / beta));
  });
}
Tensor hard_sigmoid(const Tensor& x) {
  return in_float(x, [](const Tensor& t) {
    return mul(clamp(add(t, 3.0), Number(0.0), Number(6.0)), 1.0 / 6);
  });
}
Tensor hard_swish(const Tensor& x) {
  return real_unary(kHardSwish, x);
}
Tensor mish(const Tensor& x) {
  return in_float(x, [](const Tensor& t) { return mul(t, tanh(softplus(t))); });
}

Tensor soft_cap(const Tensor& x, double cap) {
  if (cap == 0) return x;
  return in_float(x, [cap](const Tensor& t) { return mul(tanh(mul(t, 1 / cap)), cap); });
}

}  // namespace lumen::ops
