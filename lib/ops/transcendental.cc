// Exponentials, logarithms, roots and trigonometry. Meanings marked approximate differ from the
// kernel where the comment says.
#include <cmath>
#include <numbers>

#include "lib/ops/elementwise.h"

namespace lumen::ops {

using graph::GradCall;
using graph::Node;
using graph::OpDef;
namespace block = kernels::block;
namespace block_f64 = kernels::block_f64;

extern const OpDef kExp2, kLog2, kSin, kSqrt, kRecip, kExp, kLog, kCos, kRsqrt, kExpm1, kLog1p,
    kErf;

// --- Primitives --------------------------------------------------------------------------------

const OpDef kExp2 = elementwise({.name = "exp2",
                                 .block = block::exp2,
                                 .block_f64 = block_f64::exp2,
                                 .grad = [](const GradCall& call) -> Gradients {
                                   return {mul(mul(call.dy, call.output), std::numbers::ln2)};
                                 },
                                 .scalar = [](const double* x) { return std::exp2(x[0]); },
                                 .cases = [] { return elementwise_cases(kExp2, 1, -10, 10); }});
const OpDef kLog2 = elementwise({.name = "log2",
                                 .block = block::log2,
                                 .block_f64 = block_f64::log2,
                                 .grad = [](const GradCall& call) -> Gradients {
                                   return {div(mul(call.dy, std::numbers::log2e), call.inputs[0])};
                                 },
                                 .scalar = [](const double* x) { return std::log2(x[0]); },
                                 .cases = [] { return elementwise_cases(kLog2, 1, 0.01, 100); }});
const OpDef kSin = elementwise(
    {.name = "sin",
     .block = block::sin,
     .block_f64 = block_f64::sin,
     .grad = [](const GradCall& call) -> Gradients { return {mul(call.dy, cos(call.inputs[0]))}; },
     .scalar = [](const double* x) { return std::sin(x[0]); },
     .cases = [] { return elementwise_cases(kSin, 1, -100, 100); }});
const OpDef kSqrt = elementwise({.name = "sqrt",
                                 .block = block::sqrt,
                                 .block_f64 = block_f64::sqrt,
                                 .typed = kernels::TypedOp::kSquareRoot,
                                 .grad = [](const GradCall& call) -> Gradients {
                                   return {div(mul(call.dy, 0.5), call.output)};
                                 },
                                 .scalar = [](const double* x) { return std::sqrt(x[0]); },
                                 .cases = [] { return elementwise_cases(kSqrt, 1, 0, 10); }});
const OpDef kRecip = elementwise({.name = "recip",
                                  .block = block::recip,
                                  .block_f64 = block_f64::recip,
                                  .typed = kernels::TypedOp::kReciprocal,
                                  .grad = [](const GradCall& call) -> Gradients {
                                    return {neg(mul(call.dy, mul(call.output, call.output)))};
                                  },
                                  .scalar = [](const double* x) { return 1 / x[0]; },
                                  .cases = [] { return elementwise_cases(kRecip, 1, 0.1, 10); }});

// --- Derived -----------------------------------------------------------------------------------

const OpDef kExp = elementwise(
    {.name = "exp",
     .block = block::exp,
     .block_f64 = block_f64::exp,
     .meaning = [](const Node&, Inputs in) { return exp2(mul(in[0], std::numbers::log2e)); },
     .grad = [](const GradCall& call) -> Gradients { return {mul(call.dy, call.output)}; },
     .cases = [] { return elementwise_cases(kExp, 1, -5, 5); }});
const OpDef kLog = elementwise(
    {.name = "log",
     .block = block::log,
     .block_f64 = block_f64::log,
     .meaning = [](const Node&, Inputs in) { return mul(log2(in[0]), std::numbers::ln2); },
     .grad = [](const GradCall& call) -> Gradients { return {div(call.dy, call.inputs[0])}; },
     .cases = [] { return elementwise_cases(kLog, 1, 0.01, 100); }});
const OpDef kCos = elementwise(
    {.name = "cos",
     .block = block::cos,
     .block_f64 = block_f64::cos,
     .meaning = [](const Node&, Inputs in) { return sin(add(in[0], std::numbers::pi / 2)); },
     .grad = [](const GradCall& call) -> Gradients {
       return {neg(mul(call.dy, sin(call.inputs[0])))};
     },
     .cases = [] { return elementwise_cases(kCos, 1, -10, 10); }});
const OpDef kRsqrt =
    elementwise({.name = "rsqrt",
                 .block = block::rsqrt,
                 .block_f64 = block_f64::rsqrt,
                 .meaning = [](const Node&, Inputs in) { return recip(sqrt(in[0])); },
                 .grad = [](const GradCall& call) -> Gradients {
                   const Tensor& y = call.output;
                   return {mul(mul(call.dy, -0.5), mul(y, mul(y, y)))};
                 },
                 .cases = [] { return elementwise_cases(kRsqrt, 1, 0.1, 10); }});
// Approximate near 0, where the difference cancels.
const OpDef kExpm1 =
    elementwise({.name = "expm1",
                 .block = block::expm1,
                 .block_f64 = block_f64::expm1,
                 .meaning = [](const Node&, Inputs in) { return sub(exp(in[0]), 1.0); },
                 .grad = [](const GradCall& call) -> Gradients {
                   return {mul(call.dy, add(call.output, 1.0))};
                 },
                 .cases = [] { return elementwise_cases(kExpm1, 1, -5, 5); }});
// Approximate near 0, where the sum rounds.
const OpDef kLog1p =
    elementwise({.name = "log1p",
                 .block = block::log1p,
                 .block_f64 = block_f64::log1p,
                 .meaning = [](const Node&, Inputs in) { return log(add(in[0], 1.0)); },
                 .grad = [](const GradCall& call) -> Gradients {
                   return {div(call.dy, add(call.inputs[0], 1.0))};
                 },
                 .cases = [] { return elementwise_cases(kLog1p, 1, -0.9, 10); }});

namespace {

// erf x = 2/√π · e^−x² · Σ 2ⁿ x²ⁿ⁺¹ / (2n + 1)!!: all terms have one sign. Exact in double for
// |x| ≤ 4, where it is 1 within float; approximate beyond.
Tensor erf_meaning(const Node&, Inputs in) {
  constexpr int kTerms = 80;
  const Tensor square = mul(in[0], in[0]);
  Tensor sum = constant_like(1, in[0]);
  for (int n = kTerms; n > 0; --n) sum = add(mul(mul(sum, square), 2.0 / (2 * n + 1)), 1.0);
  const Tensor scaled = mul(mul(in[0], 2 * std::numbers::inv_sqrtpi), exp(neg(square)));
  return mul(scaled, sum);
}

}  // namespace

const OpDef kErf =
    elementwise({.name = "erf",
                 .block = block::erf,
                 .block_f64 = block_f64::erf,
                 .meaning = erf_meaning,
                 .grad = [](const GradCall& call) -> Gradients {
                   const Tensor& x = call.inputs[0];
                   return {mul(mul(call.dy, 2 * std::numbers::inv_sqrtpi), exp(neg(mul(x, x))))};
                 },
                 .cases = [] { return elementwise_cases(kErf, 1, -4, 4); }});

Tensor exp2(const Tensor& x) {
  return real_unary(kExp2, x);
}
Tensor log2(const Tensor& x) {
  return real_unary(kLog2, x);
}
Tensor exp(const Tensor& x) {
  return real_unary(kExp, x);
}
Tensor log(const Tensor& x) {
  return real_unary(kLog, x);
}
Tensor sin(const Tensor& x) {
  return real_unary(kSin, x);
}
Tensor cos(const Tensor& x) {
  return real_unary(kCos, x);
}
Tensor sqrt(const Tensor& x) {
  return real_unary(kSqrt, x);
}
Tensor rsqrt(const Tensor& x) {
  return real_unary(kRsqrt, x);
}
Tensor recip(const Tensor& x) {
  return real_unary(kRecip, x);
}
Tensor expm1(const Tensor& x) {
  return real_unary(kExpm1, x);
}
Tensor log1p(const Tensor& x) {
  return real_unary(kLog1p, x);
}
Tensor erf(const Tensor& x) {
  return real_unary(kErf, x);
}

}  // namespace lumen::ops
