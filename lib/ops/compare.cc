// Comparisons, choice and logic.
//
// The primitive less_than (and equal) gives 1 or 0 in the type it compares in, so that masks
// multiply and fuse; the public lt … ne are the same as bool. `where` reads through the cast
// to bool, so a comparison that is only chosen by never leaves the fused step.
#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/base/error.h"
#include "lib/ops/elementwise.h"

namespace lumen::ops {

using graph::expand;
using graph::GradCall;
using graph::Node;
using graph::OpDef;
namespace block = kernels::block;
namespace block_f64 = kernels::block_f64;

extern const OpDef kLessThan, kEqual, kWhere, kClamp, kMaximum, kMinimum, kSub;

const OpDef kLessThan =
    elementwise({.name = "less_than",
                 .block = block::less_than,
                 .integer = [](const int64_t* x) { return int64_t{x[0] < x[1]}; },
                 .typed = kernels::TypedOp::kLess,
                 .grad = graph::no_gradient,
                 .scalar = [](const double* x) { return x[0] < x[1] ? 1.0 : 0.0; },
                 .cases = [] { return elementwise_cases(kLessThan, 2, -2, 2); }});
const OpDef kEqual = elementwise(
    {.name = "equal",
     .block = block::equal,
     .real = [](const double* x) { return x[0] == x[1] ? 1.0 : 0.0; },
     .integer = [](const int64_t* x) { return int64_t{x[0] == x[1]}; },
     .typed = kernels::TypedOp::kEqual,
     // Neither less nor greater; approximate for NaN, which is unequal to all.
     .meaning =
         [](const Node&, Inputs in) {
           return mul(sub(1.0, less_than(in[0], in[1])), sub(1.0, less_than(in[1], in[0])));
         },
     .grad = graph::no_gradient,
     .cases = [] { return elementwise_cases(kEqual, 2, 0, 1); }});
const OpDef kWhere =
    elementwise({.name = "where",
                 .block = block::where,
                 .real = [](const double* x) { return x[0] != 0 ? x[1] : x[2]; },
                 .integer = [](const int64_t* x) { return x[0] != 0 ? x[1] : x[2]; },
                 .typed = kernels::TypedOp::kWhere,
                 // condition·a + (1 − condition)·b; approximate: finite a and b.
                 .meaning =
                     [](const Node&, Inputs in) {
                       const Tensor no = equal(in[0], constant_like(0, in[0]));
                       return add(mul(sub(1.0, no), in[1]), mul(no, in[2]));
                     },
                 .grad = [](const GradCall& call) -> Gradients {
                   const Tensor zero = constant_like(0, call.dy);
                   return {Tensor(), where(call.inputs[0], call.dy, zero),
                           where(call.inputs[0], zero, call.dy)};
                 },
                 .cases = [] { return elementwise_cases(kWhere, 3, -1, 1); }});
// Of x and two bounds, which are no NaN and have no gradient: only what lies strictly between them
// has one.
const OpDef kClamp = elementwise(
    {.name = "clamp",
     .block = block::clamp,
     .block_f64 = block_f64::clamp,
     .integer = [](const int64_t* x) { return std::min(std::max(x[0], x[1]), x[2]); },
     .typed = kernels::TypedOp::kClamp,
     .meaning = [](const Node&, Inputs in) { return minimum(maximum(in[0], in[1]), in[2]); },
     .grad = [](const GradCall& call) -> Gradients {
       const Tensor &x = call.inputs[0], &low = call.inputs[1], &high = call.inputs[2];
       const Tensor inside = mul(less_than(low, x), less_than(x, high));
       return {where(inside, call.dy, constant_like(0, call.dy)), Tensor(), Tensor()};
     },
     .cases = [] { return elementwise_cases(kClamp, 3, -1, 1); }});

namespace {

bool computes_in_f32(DType dtype) {
  return dtype == DType::kF32 || is_narrow(dtype);
}

// The comparison in `dtype`, which computes_in_f32, as 1 and 0.
Tensor in_f32(const OpDef& op, const Tensor& a, const Tensor& b, DType dtype) {
  return binary(op, as_operand(a, dtype), as_operand(b, dtype), DType::kF32);
}

// The comparison as bool.
Tensor as_bool(const OpDef& op, const Tensor& a, const Tensor& b, DType dtype) {
  if (!computes_in_f32(dtype)) {
    return binary(op, as_operand(a, dtype), as_operand(b, dtype), DType::kBool);
  }
  return graph::contiguous(in_f32(op, a, b, dtype), DType::kBool);
}

Tensor less(const Tensor& a, const Tensor& b, DType dtype) {
  return as_bool(kLessThan, a, b, dtype);
}

// a < b or a = b: false for NaN.
Tensor less_or_equal(const Tensor& a, const Tensor& b, DType dtype) {
  if (!computes_in_f32(dtype)) return logical_or(less(a, b, dtype), as_bool(kEqual, a, b, dtype));
  const Tensor either = add(in_f32(kLessThan, a, b, dtype), in_f32(kEqual, a, b, dtype));
  return graph::contiguous(either, DType::kBool);
}

Tensor unequal(const Tensor& a, const Tensor& b, DType dtype) {
  if (!computes_in_f32(dtype)) return logical_not(as_bool(kEqual, a, b, dtype));
  return graph::contiguous(sub(1.0, in_f32(kEqual, a, b, dtype)), DType::kBool);
}

// The value as bool: of a comparison the truth itself.
Tensor truth_of(const Tensor& x) {
  const Node& node = *x.node();
  if ((node.op != &kLessThan && node.op != &kEqual) || !node.value.empty()) {
    return graph::contiguous(x, DType::kBool);
  }
  const Tensor operands[] = {Tensor(node.inputs[0]), Tensor(node.inputs[1])};
  return compute(*node.op, operands, DType::kBool);
}

// The value without a cast to bool that `where` would undo.
Tensor condition_of(const Tensor& x) {
  const Node& node = *x.node();
  const bool cast = node.op == &graph::kContiguous && node.dtype == DType::kBool &&
                    node.inputs[0]->dtype == DType::kF32;
  return cast ? Tensor(node.inputs[0]) : x;
}

}  // namespace

Tensor less_than(const Tensor& a, const Tensor& b) {
  return binary(kLessThan, a, b);
}
Tensor equal(const Tensor& a, const Tensor& b) {
  return binary(kEqual, a, b);
}

Tensor lt(const Tensor& a, const Tensor& b) {
  return less(a, b, result_type(a, b));
}
Tensor le(const Tensor& a, const Tensor& b) {
  return less_or_equal(a, b, result_type(a, b));
}
Tensor gt(const Tensor& a, const Tensor& b) {
  return lt(b, a);
}
Tensor ge(const Tensor& a, const Tensor& b) {
  return le(b, a);
}
Tensor eq(const Tensor& a, const Tensor& b) {
  return as_bool(kEqual, a, b, result_type(a, b));
}
Tensor ne(const Tensor& a, const Tensor& b) {
  return unequal(a, b, result_type(a, b));
}
Tensor lt(const Tensor& a, Number b) {
  const DType dtype = result_type(a, b);
  return less(a, element(b, dtype), dtype);
}
Tensor le(const Tensor& a, Number b) {
  const DType dtype = result_type(a, b);
  return less_or_equal(a, element(b, dtype), dtype);
}
Tensor gt(const Tensor& a, Number b) {
  const DType dtype = result_type(a, b);
  return less(element(b, dtype), a, dtype);
}
Tensor ge(const Tensor& a, Number b) {
  const DType dtype = result_type(a, b);
  return less_or_equal(element(b, dtype), a, dtype);
}
Tensor eq(const Tensor& a, Number b) {
  const DType dtype = result_type(a, b);
  return as_bool(kEqual, a, element(b, dtype), dtype);
}
Tensor ne(const Tensor& a, Number b) {
  const DType dtype = result_type(a, b);
  return unequal(a, element(b, dtype), dtype);
}

namespace {

Tensor choose(const Tensor& condition, const Tensor& a, const Tensor& b, DType dtype,
              const char* caller = __builtin_FUNCTION()) {
  graph::check_defined(condition, caller, "the condition");
  const bool plain = !computes_in_f32(dtype) && is_float(condition.dtype());
  const Tensor flag = plain ? truth_of(condition) : condition_of(condition);
  const Shape shape = graph::broadcast(
      kWhere.name, graph::broadcast(kWhere.name, flag.shape(), a.shape()), b.shape());
  const Tensor inputs[] = {expand(flag, shape), expand(a, shape), expand(b, shape)};
  return compute(kWhere, inputs, dtype);
}

}  // namespace

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  return choose(condition, a, b, result_type(a, b));
}
Tensor where(const Tensor& condition, const Tensor& a, Number b) {
  const DType dtype = result_type(a, b);
  return choose(condition, a, element(b, dtype), dtype);
}
Tensor where(const Tensor& condition, Number a, const Tensor& b) {
  const DType dtype = result_type(b, a);
  return choose(condition, element(a, dtype), b, dtype);
}
Tensor masked_fill(const Tensor& x, const Tensor& mask, Number value) {
  return choose(mask, element(value, x.dtype()), x, x.dtype());
}

Tensor clamp(const Tensor& x, const Tensor& low, const Tensor& high) {
  if (!low.defined() && !high.defined()) {
    fail(ErrorKind::kMalformed, "clamp: give a lower or an upper bound");
  }
  const Tensor y = low.defined() ? maximum(x, low) : x;
  return high.defined() ? minimum(y, high) : y;
}

Tensor clamp(const Tensor& x, std::optional<Number> low, std::optional<Number> high) {
  if (!low && !high) fail(ErrorKind::kMalformed, "clamp: give a lower or an upper bound");
  DType dtype = x.dtype();
  if (low) dtype = promote(dtype, result_type(x, *low));
  if (high) dtype = promote(dtype, result_type(x, *high));
  auto is_number = [](Number bound) { return !std::isnan(bound.real()); };
  if (low && high && is_number(*low) && is_number(*high)) {
    const Tensor inputs[] = {as_operand(x, dtype), expand(element(*low, dtype), x.shape()),
                             expand(element(*high, dtype), x.shape())};
    return compute(kClamp, inputs, dtype);
  }
  Tensor y = x;
  {
    const graph::NoGradScope no_grad;
    if (low) y = binary(kMaximum, y, element(*low, dtype), dtype);
    if (high) y = binary(kMinimum, y, element(*high, dtype), dtype);
  }
  if (!graph::needs_grad({x})) return y;
  // Only what lies strictly between the bounds has a gradient.
  Tensor inside;
  if (low) inside = binary(kLessThan, element(*low, dtype), x, dtype);
  if (high) {
    const Tensor below = binary(kLessThan, x, element(*high, dtype), dtype);
    inside = inside.defined() ? mul(inside, below) : below;
  }
  return choose(inside, x, y, dtype);
}

namespace {

// Of two operands that are computed in float32: combine(a = 0, b = 0) as bool, one fused step.
template <typename Combine>
Tensor of_zeros(const Tensor& a, const Tensor& b, Combine combine) {
  const Tensor zero = graph::scalar(0);
  const Tensor y =
      combine(binary(kEqual, a, zero, DType::kF32), binary(kEqual, b, zero, DType::kF32));
  return graph::contiguous(y, DType::kBool);
}

bool both_compute_in_f32(const Tensor& a, const Tensor& b) {
  return computes_in_f32(a.dtype()) && computes_in_f32(b.dtype());
}

}  // namespace

Tensor logical_and(const Tensor& a, const Tensor& b) {
  if (!both_compute_in_f32(a, b)) return mul(to_bool(a), to_bool(b));
  return of_zeros(a, b, [](const Tensor& no_a, const Tensor& no_b) {
    return equal(add(no_a, no_b), graph::scalar(0));
  });
}
Tensor logical_or(const Tensor& a, const Tensor& b) {
  if (!both_compute_in_f32(a, b)) return maximum(to_bool(a), to_bool(b));
  return of_zeros(a, b,
                  [](const Tensor& no_a, const Tensor& no_b) { return sub(1.0, mul(no_a, no_b)); });
}
Tensor logical_xor(const Tensor& a, const Tensor& b) {
  if (both_compute_in_f32(a, b)) {
    return of_zeros(a, b, [](const Tensor& no_a, const Tensor& no_b) { return sub(no_a, no_b); });
  }
  return binary(kSub, to_bool(a), to_bool(b), DType::kBool);  // a difference ≠ 0
}
Tensor logical_not(const Tensor& x) {
  return x.dtype() == DType::kBool ? eq(x, false) : eq(x, 0);
}
Tensor to_bool(const Tensor& x) {
  return x.dtype() == DType::kBool ? x : graph::contiguous(x, DType::kBool);
}

Tensor isnan(const Tensor& x) {
  return ne(x, x);
}
Tensor isinf(const Tensor& x) {
  return eq(abs(x), std::numeric_limits<double>::infinity());
}
// |x| < ∞; integers are.
Tensor isfinite(const Tensor& x) {
  if (!is_float(x.dtype())) return eq(x, x);
  return lt(abs(x), std::numeric_limits<double>::infinity());
}

bool allclose(const Tensor& a, const Tensor& b, double rtol, double atol, bool equal_nan) {
  // |a − b| ≤ atol + rtol · |b|, or equal (infinities).
  const Tensor x = a.dtype() == DType::kBool ? graph::contiguous(a, DType::kF32) : a;
  const Tensor near = le(abs(sub(x, b)), add(mul(abs(b), rtol), atol));
  const Tensor finite = logical_and(isfinite(a), isfinite(b));
  Tensor good = logical_or(logical_and(near, finite), eq(a, b));
  if (equal_nan) good = logical_or(good, logical_and(isnan(a), isnan(b)));
  return all(good).item() != 0;
}

}  // namespace lumen::ops
