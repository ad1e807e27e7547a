// Arithmetic, rounding and powers. Meanings marked approximate differ from the kernel where the
// comment says.
#include <cmath>
#include <optional>
#include <utility>

#include "lib/base/error.h"
#include "lib/kernels/typed.h"
#include "lib/ops/elementwise.h"

namespace lumen::ops {

using graph::GradCall;
using graph::Node;
using graph::OpDef;
namespace block = kernels::block;
namespace block_f64 = kernels::block_f64;

extern const OpDef kAdd, kMul, kMod, kSub, kDiv, kNeg, kAbs, kMaximum, kMinimum, kFloor, kCeil,
    kRound, kTrunc, kSign, kRemainder, kFloorDivide, kPow, kLessThan, kEqual;

namespace {

// dy · x and dy / x in the type of dy: the float64 of a number with many digits widens nothing.
Tensor times(const Tensor& dy, const Tensor& x) {
  return binary(kMul, dy, x, dy.dtype());
}
Tensor over(const Tensor& dy, const Tensor& x) {
  return binary(kDiv, dy, x, dy.dtype());
}

}  // namespace

// --- Primitives --------------------------------------------------------------------------------

const OpDef kAdd =
    elementwise({.name = "add",
                 .block = block::add,
                 .block_f64 = block_f64::add,
                 .integer = [](const int64_t* x) { return kernels::wrap_add(x[0], x[1]); },
                 .typed = kernels::TypedOp::kAdd,
                 .grad = [](const GradCall& call) -> Gradients {
                   return {call.dy, call.dy};
                 },
                 .scalar = [](const double* x) { return x[0] + x[1]; },
                 .cases = [] { return elementwise_cases(kAdd, 2, -2, 2); }});
const OpDef kMul =
    elementwise({.name = "mul",
                 .block = block::mul,
                 .block_f64 = block_f64::mul,
                 .integer = [](const int64_t* x) { return kernels::wrap_mul(x[0], x[1]); },
                 .typed = kernels::TypedOp::kMultiply,
                 .grad = [](const GradCall& call) -> Gradients {
                   return {times(call.dy, call.inputs[1]), times(call.dy, call.inputs[0])};
                 },
                 .scalar = [](const double* x) { return x[0] * x[1]; },
                 .cases = [] { return elementwise_cases(kMul, 2, -2, 2); }});
const OpDef kMod =
    elementwise({.name = "mod",
                 .block = block::mod,
                 .block_f64 = block_f64::mod,
                 .integer = [](const int64_t* x) { return kernels::integer_remainder(x[0], x[1]); },
                 .typed = kernels::TypedOp::kRest,
                 // x − trunc(x / y) · y: the quotient is a step function.
                 .grad = [](const GradCall& call) -> Gradients {
                   const Tensor quotient = trunc(div(call.inputs[0], call.inputs[1]));
                   return {call.dy, neg(times(call.dy, quotient))};
                 },
                 .scalar = [](const double* x) { return std::fmod(x[0], x[1]); },
                 .cases = [] { return elementwise_cases(kMod, 2, 0.5, 2); }});

// --- Derived -----------------------------------------------------------------------------------
// x − y and x / y through −1 and 1/y: approximate by one rounding.

const OpDef kNeg =
    elementwise({.name = "neg",
                 .block = block::neg,
                 .block_f64 = block_f64::neg,
                 .integer = [](const int64_t* x) { return kernels::wrap_neg(x[0]); },
                 .typed = kernels::TypedOp::kNegate,
                 .meaning = [](const Node&, Inputs in) { return mul(in[0], -1.0); },
                 .grad = [](const GradCall& call) -> Gradients { return {neg(call.dy)}; },
                 .cases = [] { return elementwise_cases(kNeg, 1, -2, 2); }});
const OpDef kSub = elementwise(
    {.name = "sub",
     .block = block::sub,
     .block_f64 = block_f64::sub,
     .integer = [](const int64_t* x) { return kernels::wrap_add(x[0], kernels::wrap_neg(x[1])); },
     .typed = kernels::TypedOp::kSubtract,
     .meaning = [](const Node&, Inputs in) { return add(in[0], mul(in[1], -1.0)); },
     .grad = [](const GradCall& call) -> Gradients {
       return {call.dy, neg(call.dy)};
     },
     .cases = [] { return elementwise_cases(kSub, 2, -2, 2); }});
const OpDef kDiv =
    elementwise({.name = "div",
                 .block = block::div,
                 .block_f64 = block_f64::div,
                 .typed = kernels::TypedOp::kDivide,
                 .meaning = [](const Node&, Inputs in) { return mul(in[0], recip(in[1])); },
                 .grad = [](const GradCall& call) -> Gradients {
                   const Tensor& y = call.inputs[1];
                   return {over(call.dy, y), neg(times(call.dy, over(call.output, y)))};
                 },
                 .cases = [] { return elementwise_cases(kDiv, 2, 0.1, 2); }});

namespace {

// The gradients of the larger of a and b, as torch: dy where one wins, half of it where both are
// equal (or NaN wins with both).
Gradients share(const Tensor& dy, const Tensor& a, const Tensor& b, DType dtype) {
  const Tensor zero = constant_like(0, dy), ties = binary(kEqual, a, b, dtype);
  auto part = [&](const Tensor& loses) {
    return where(loses, zero, where(ties, mul(dy, 0.5), dy));
  };
  return {part(binary(kLessThan, a, b, dtype)), part(binary(kLessThan, b, a, dtype))};
}

}  // namespace

const OpDef kMaximum =
    elementwise({.name = "maximum",
                 .block = block::maximum,
                 .block_f64 = block_f64::maximum,
                 .integer = [](const int64_t* x) { return x[0] < x[1] ? x[1] : x[0]; },
                 .typed = kernels::TypedOp::kMaximum,
                 // The maximum over an axis of two: exact for infinities and NaN.
                 .meaning =
                     [](const Node&, Inputs in) {
                       const Shape shape = in[0].shape();
                       const Tensor both[] = {unsqueeze(graph::contiguous(in[0], DType::kF32), -1),
                                              unsqueeze(graph::contiguous(in[1], DType::kF32), -1)};
                       return graph::reshape(max(concat(both, -1), -1), shape);
                     },
                 .grad = [](const GradCall& call) -> Gradients {
                   return share(call.dy, call.inputs[0], call.inputs[1], call.output.dtype());
                 },
                 .cases = [] { return elementwise_cases(kMaximum, 2, -2, 2); }});
const OpDef kMinimum = elementwise(
    {.name = "minimum",
     .block = block::minimum,
     .block_f64 = block_f64::minimum,
     .integer = [](const int64_t* x) { return x[1] < x[0] ? x[1] : x[0]; },
     .typed = kernels::TypedOp::kMinimum,
     .meaning = [](const Node&, Inputs in) { return neg(maximum(neg(in[0]), neg(in[1]))); },
     .grad = [](const GradCall& call) -> Gradients {
       Gradients both = share(call.dy, call.inputs[0], call.inputs[1], call.output.dtype());
       std::swap(both[0], both[1]);
       return both;
     },
     .cases = [] { return elementwise_cases(kMinimum, 2, -2, 2); }});
const OpDef kAbs = elementwise(
    {.name = "abs",
     .block = block::abs,
     .block_f64 = block_f64::abs,
     .integer = [](const int64_t* x) { return x[0] < 0 ? kernels::wrap_neg(x[0]) : x[0]; },
     .typed = kernels::TypedOp::kMagnitude,
     .meaning = [](const Node&, Inputs in) { return maximum(in[0], neg(in[0])); },
     .grad = [](const GradCall& call) -> Gradients { return {mul(call.dy, sign(call.inputs[0]))}; },
     .cases = [] { return elementwise_cases(kAbs, 1, -2, 2); }});

// --- Rounding: step functions ------------------------------------------------------------------
// The meanings are approximate for infinities, of which mod gives NaN.

const OpDef kTrunc =
    elementwise({.name = "trunc",
                 .block = block::trunc,
                 .block_f64 = block_f64::trunc,
                 .integer = [](const int64_t* x) { return x[0]; },
                 .typed = kernels::TypedOp::kTrunc,
                 .meaning = [](const Node&, Inputs in) { return sub(in[0], mod(in[0], 1.0)); },
                 .grad = graph::no_gradient,
                 .cases = [] { return elementwise_cases(kTrunc, 1, -9, 9); }});
const OpDef kFloor = elementwise({.name = "floor",
                                  .block = block::floor,
                                  .block_f64 = block_f64::floor,
                                  .integer = [](const int64_t* x) { return x[0]; },
                                  .typed = kernels::TypedOp::kFloor,
                                  .meaning =
                                      [](const Node&, Inputs in) {
                                        const Tensor whole = trunc(in[0]);
                                        return sub(whole, less_than(in[0], whole));
                                      },
                                  .grad = graph::no_gradient,
                                  .cases = [] { return elementwise_cases(kFloor, 1, -9, 9); }});
const OpDef kCeil =
    elementwise({.name = "ceil",
                 .block = block::ceil,
                 .block_f64 = block_f64::ceil,
                 .integer = [](const int64_t* x) { return x[0]; },
                 .typed = kernels::TypedOp::kCeil,
                 .meaning = [](const Node&, Inputs in) { return neg(floor(neg(in[0]))); },
                 .grad = graph::no_gradient,
                 .cases = [] { return elementwise_cases(kCeil, 1, -9, 9); }});
const OpDef kRound = elementwise({.name = "round",
                                  .block = block::round,
                                  .block_f64 = block_f64::round,
                                  .integer = [](const int64_t* x) { return x[0]; },
                                  .typed = kernels::TypedOp::kRound,
                                  // ⌊x + ½⌋, less 1 where that rounded a half up to odd.
                                  .meaning =
                                      [](const Node&, Inputs in) {
                                        const Tensor up = floor(add(in[0], 0.5));
                                        const Tensor half =
                                            equal(sub(up, in[0]), constant_like(0.5, up));
                                        return sub(up, mul(half, abs(mod(up, 2.0))));
                                      },
                                  .grad = graph::no_gradient,
                                  .cases = [] { return elementwise_cases(kRound, 1, -9, 9); }});
const OpDef kSign =
    elementwise({.name = "sign",
                 .block = block::sign,
                 .block_f64 = block_f64::sign,
                 .integer = [](const int64_t* x) { return int64_t{(0 < x[0]) - (x[0] < 0)}; },
                 .typed = kernels::TypedOp::kSign,
                 .meaning =
                     [](const Node&, Inputs in) {
                       const Tensor zero = constant_like(0, in[0]);
                       return sub(less_than(zero, in[0]), less_than(in[0], zero));
                     },
                 .grad = graph::no_gradient,
                 .cases = [] { return elementwise_cases(kSign, 1, -2, 2); }});

// --- Division with floor -----------------------------------------------------------------------

const OpDef kFloorDivide =
    elementwise({.name = "floor_divide",
                 .block = block::floor_divide,
                 .block_f64 = block_f64::floor_divide,
                 .integer = [](const int64_t* x) { return kernels::floor_quotient(x[0], x[1]); },
                 .typed = kernels::TypedOp::kFloorQuotient,
                 // Approximate where x / y rounds to an integer.
                 .meaning = [](const Node&, Inputs in) { return floor(div(in[0], in[1])); },
                 .grad = graph::no_gradient,
                 .cases = [] { return elementwise_cases(kFloorDivide, 2, 0.5, 9); }});
const OpDef kRemainder =
    elementwise({.name = "remainder",
                 .block = block::remainder,
                 .block_f64 = block_f64::remainder,
                 .integer = [](const int64_t* x) { return kernels::floor_modulo(x[0], x[1]); },
                 .typed = kernels::TypedOp::kFloorRest,
                 .meaning =
                     [](const Node&, Inputs in) {
                       const Tensor zero = constant_like(0, in[0]);
                       const Tensor rest = mod(in[0], in[1]);
                       const Tensor signs = less_than(mul(rest, in[1]), zero);
                       return add(rest, mul(signs, in[1]));
                     },
                 .grad = [](const GradCall& call) -> Gradients {
                   const Tensor quotient = floor_divide(call.inputs[0], call.inputs[1]);
                   return {call.dy, neg(times(call.dy, quotient))};
                 },
                 .cases = [] { return elementwise_cases(kRemainder, 2, 0.5, 2); }});

// --- Powers ------------------------------------------------------------------------------------

namespace {

// The number that all elements of x are, if it is a constant.
std::optional<double> only_number(const Tensor& x) {
  const Node* node = x.node().get();
  while (node->op == &graph::kExpand || node->op == &graph::kReshape) node = node->inputs[0].get();
  if (!graph::is_constant(*node) || node->shape.elements() != 1) return {};
  double value;
  kernels::load_typed(node->dtype, node->value.data(), 1, 1, &value);
  return value;
}

// d xʸ / dx = y xʸ⁻¹, 0 where y = 0; d xʸ / dy = xʸ ln x, 0 where x = 0 and y ≥ 0.
Gradients grad_pow(const GradCall& call) {
  const Tensor &x = call.inputs[0], &y = call.inputs[1];
  if (const auto exponent = only_number(y); exponent && *exponent != 0) {
    const DType dtype = call.dy.dtype();
    const Tensor base = x.dtype() == dtype ? x : graph::contiguous(x, dtype);
    return {mul(call.dy, mul(pow(base, *exponent - 1), *exponent)), Tensor()};
  }
  // Bases of 0 whose slope is infinite are replaced before it is taken: an infinity that is only
  // left out afterwards is NaN in the second derivative.
  const Tensor flat = eq(y, 0);
  const Tensor moving = where(flat, constant_like(1, x), x);
  const Tensor dx = mul(call.dy, mul(y, pow(moving, sub(y, 1))));
  const DType dtype = call.output.dtype();
  const Tensor base = x.dtype() == dtype ? x : graph::contiguous(x, dtype);
  const Tensor still = logical_and(eq(x, 0), ge(y, 0));
  const Tensor safe = where(still, constant_like(1, base), base);
  const Tensor dy = mul(call.dy, mul(call.output, log(safe)));
  return {where(flat, constant_like(0, call.dy), dx), dy};
}

}  // namespace

const OpDef kPow =
    elementwise({.name = "pow",
                 .block = block::pow,
                 .block_f64 = block_f64::pow,
                 .real = [](const double* x) { return std::pow(x[0], x[1]); },
                 .integer = [](const int64_t* x) { return kernels::integer_power(x[0], x[1]); },
                 // Approximate: x > 0.
                 .meaning = [](const Node&, Inputs in) { return exp2(mul(in[1], log2(in[0]))); },
                 .grad = grad_pow,
                 .cases = [] { return elementwise_cases(kPow, 2, 0.2, 3); }});

// --- Functions ---------------------------------------------------------------------------------

Tensor add(const Tensor& a, const Tensor& b) {
  return binary(kAdd, a, b);
}
Tensor add(const Tensor& a, Number b) {
  return binary(kAdd, a, b);
}
namespace {

// PyTorch's rule: − of truth values is a mistake.
void refuse_bool(std::string_view op, DType a, DType b) {
  if (a == DType::kBool && b == DType::kBool) {
    fail(ErrorKind::kMalformed, op, ": not defined for bool; logical_not and ne are");
  }
}

}  // namespace

Tensor sub(const Tensor& a, const Tensor& b) {
  refuse_bool("sub", a.dtype(), b.dtype());
  return binary(kSub, a, b);
}
Tensor sub(const Tensor& a, Number b) {
  return binary(kSub, a, b);
}
Tensor sub(Number a, const Tensor& b) {
  return binary(kSub, a, b);
}
Tensor mul(const Tensor& a, const Tensor& b) {
  return binary(kMul, a, b);
}
Tensor mul(const Tensor& a, Number b) {
  return binary(kMul, a, b);
}
Tensor div(const Tensor& a, const Tensor& b) {
  const DType dtype = result_type(a, b);
  return binary(kDiv, a, b, is_float(dtype) ? dtype : DType::kF32);
}
Tensor div(const Tensor& a, Number b) {
  const DType dtype = is_float(a.dtype()) ? a.dtype() : DType::kF32;
  return binary(kDiv, a, number(b.real(), dtype), dtype);
}
Tensor div(Number a, const Tensor& b) {
  const DType dtype = is_float(b.dtype()) ? b.dtype() : DType::kF32;
  return binary(kDiv, number(a.real(), dtype), b, dtype);
}
Tensor mod(const Tensor& a, const Tensor& b) {
  return binary(kMod, a, b);
}
Tensor mod(const Tensor& a, Number b) {
  return binary(kMod, a, b);
}
Tensor remainder(const Tensor& a, const Tensor& b) {
  return binary(kRemainder, a, b);
}
Tensor remainder(const Tensor& a, Number b) {
  return binary(kRemainder, a, b);
}
Tensor floor_divide(const Tensor& a, const Tensor& b) {
  return binary(kFloorDivide, a, b);
}
Tensor floor_divide(const Tensor& a, Number b) {
  return binary(kFloorDivide, a, b);
}
Tensor maximum(const Tensor& a, const Tensor& b) {
  return binary(kMaximum, a, b);
}
Tensor maximum(const Tensor& a, Number b) {
  return binary(kMaximum, a, b);
}
Tensor minimum(const Tensor& a, const Tensor& b) {
  return binary(kMinimum, a, b);
}
Tensor minimum(const Tensor& a, Number b) {
  return binary(kMinimum, a, b);
}
Tensor neg(const Tensor& x) {
  refuse_bool("neg", x.dtype(), x.dtype());
  return unary(kNeg, x);
}
Tensor abs(const Tensor& x) {
  return unary(kAbs, x);
}
Tensor floor(const Tensor& x) {
  return unary(kFloor, x);
}
Tensor ceil(const Tensor& x) {
  return unary(kCeil, x);
}
Tensor round(const Tensor& x) {
  return unary(kRound, x);
}
Tensor trunc(const Tensor& x) {
  return unary(kTrunc, x);
}
Tensor sign(const Tensor& x) {
  return unary(kSign, x);
}
Tensor square(const Tensor& x) {
  return pow(x, 2);
}
Tensor pow(const Tensor& x, const Tensor& y) {
  return binary(kPow, x, y);
}
Tensor pow(const Tensor& x, Number y) {
  const double exponent = y.real();
  const DType dtype = result_type(x, y);
  const bool real = is_float(dtype);
  if (exponent == 2 || exponent == 3) {
    const Tensor squared = binary(kMul, x, x, dtype);
    return exponent == 2 ? squared : binary(kMul, squared, x, dtype);
  }
  if (real && exponent == 0.5) return sqrt(x);
  if (real && exponent == -0.5) return rsqrt(x);
  if (real && exponent == -1) return recip(x);
  if (!real && y.integer() < 0) {
    fail(ErrorKind::kMalformed, "pow: integers have no negative powers; make them floats first");
  }
  return binary(kPow, x, y);
}
Tensor pow(Number x, const Tensor& y) {
  return binary(kPow, x, y);
}

}  // namespace lumen::ops
