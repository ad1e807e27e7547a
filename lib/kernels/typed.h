// Arithmetic on every plain element type: what is not float32.
//
// Values are computed in double where an operand is a float, in int64 otherwise (or in their own
// type, where that makes no difference), and stored as the result's type: floats rounded to nearest
// even; integers from double truncated, saturated, NaN to 0; integers from int64 by their low bits
// (two's complement wraps); bool is ≠ 0.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "lib/base/pool.h"
#include "lib/kernels/elementwise_f64.h"
#include "lib/tensor/dtype.h"
#include "lib/tensor/shape.h"

namespace lumen::kernels {

// y[i] = x[i · stride] for n elements of a plain type. noexcept.
void load_typed(DType dtype, const std::byte* x, int64_t stride, int64_t n, double* y);
void load_typed(DType dtype, const std::byte* x, int64_t stride, int64_t n, int64_t* y);
// y[i · stride] = x[i], as above.
void store_typed(DType dtype, const double* x, int64_t n, std::byte* y, int64_t stride = 1);
void store_typed(DType dtype, const int64_t* x, int64_t n, std::byte* y, int64_t stride = 1);

// y[i] = x[i] for n consecutive elements of plain types: PyTorch's casts.
void cast(DType from, const std::byte* x, DType to, std::byte* y, int64_t n);

// A tensor as kernels of this header see it; strides in elements.
struct TypedOperand {
  const std::byte* data;
  DType dtype;
  Strides strides;
};

using RealFn = double (*)(const double* in);
using IntegerFn = int64_t (*)(const int64_t* in);
constexpr int kMaxArguments = 3;

// Arithmetic that is computed in vectors. Comparisons give 1 or 0; kWhere: in[0] ≠ 0 ? in[1] :
// in[2].
enum class TypedOp {
  kNone,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kNegate,
  kMagnitude,
  kMaximum,
  kMinimum,
  kLess,
  kEqual,
  kWhere,
  kRelu,   // x < 0 ? 0 : x
  kSign,   // (0 < x) − (x < 0)
  kClamp,  // min(max(in[0], in[1]), in[2]); NaN stays, bounds are none
  // integer_remainder, floor_modulo and floor_quotient below; of integers and bool only
  kRest,
  kFloorRest,
  kFloorQuotient,
  // only in chains (chain.h)
  kToBf16,  // rounded to bfloat16 and back
  kLeaky,   // in[0] > 0 ? in[1] : in[2] · in[1]
  kFloor,
  kCeil,
  kRound,  // halves to even
  kTrunc,
  kSquareRoot,
  kReciprocal,
};

constexpr bool is_of_integers(TypedOp op) {
  return op >= TypedOp::kRest && op <= TypedOp::kFloorQuotient;
}
constexpr bool is_of_chains(TypedOp op) {
  return op >= TypedOp::kToBf16;
}

// A function of elements: of floats `block` or, if that is null, `real`, and of integers `integer`;
// all are the same as `op` if that is not kNone.
struct TypedFunction {
  TypedOp op = TypedOp::kNone;
  RealFn real = nullptr;
  IntegerFn integer = nullptr;
  BlockF64Fn block = nullptr;
};

// y (contiguous, `to`) = f(in[0], in[1], …) element by element: that of floats if any operand is
// one, else that of integers.
void map_typed(ThreadPool& pool, const TypedFunction& f, std::span<const TypedOperand> in,
               const Shape& shape, DType to, std::byte* y);

// y [outer, inner] = sum, maximum or minimum over the middle axis of x [outer, axis, inner],
// contiguous, of float64, integers or bool. Sums of floats are carried in double, of others in
// int64, which wraps. Maximum and minimum are NaN if any element is; of nothing, the sum is 0, the
// maximum the type's smallest value, the minimum its largest. In which order elements are taken
// together depends on the shape alone. Products: reduce.h.
void sum_typed(ThreadPool& pool, DType from, const std::byte* x, int64_t outer, int64_t axis,
               int64_t inner, DType to, std::byte* y);
void max_typed(ThreadPool& pool, DType dtype, const std::byte* x, int64_t outer, int64_t axis,
               int64_t inner, std::byte* y);
void min_typed(ThreadPool& pool, DType dtype, const std::byte* x, int64_t outer, int64_t axis,
               int64_t inner, std::byte* y);

// c [m, n] = a [m, k] · b [k, n], contiguous, for one matrix of integers or truths. Sums wrap as
// `to` does; those of truths are at most k, less than 2³².
void matmul_typed(ThreadPool& pool, const TypedOperand& a, const TypedOperand& b, int64_t m,
                  int64_t n, int64_t k, DType to, std::byte* c);

// The linear recurrence y[0] = b[0], y[i] = a[i] · y[i − 1] + b[i] along `axis` (a[0] is not read),
// or from the end with `reverse`: y[i] = a[i + 1] · y[i + 1] + b[i]; y contiguous, of type `to`.
// Carried in double, or in int64 for integers.
void linear_scan(ThreadPool& pool, const TypedOperand& a, const TypedOperand& b, const Shape& shape,
                 int axis, bool reverse, DType to, std::byte* y);

// The running products y[0] = x[0], y[i] = x[i] · y[i − 1] + 0 along `axis`, in the same way.
void product_scan(ThreadPool& pool, const TypedOperand& x, const Shape& shape, int axis,
                  std::byte* y);

// The gradient of the product along the middle axis of x [outer, axis, inner], contiguous, for that
// of the result, dy [outer, inner]: y[i] = (x[0] ⋯ x[i − 1]) · (dy · x[n − 1] ⋯ x[i + 1]), of which
// both factors are carried in double and rounded to float32 before they are joined.
void product_gradient(ThreadPool& pool, const float* x, const float* dy, int64_t outer,
                      int64_t axis, int64_t inner, float* y);

// The exact remainder with the sign of the divisor, and the quotient that belongs to it (Python's %
// and //). Integers: division by zero gives 0, the most negative number wraps.
template <typename T>
T floor_modulo(T x, T y) {
  const T rest = std::fmod(x, y);
  return rest != 0 && (y < 0) != (rest < 0) ? rest + y : rest;
}
template <typename T>
T floor_quotient(T x, T y) {
  if (y == 0) return x / y;
  const T rest = std::fmod(x, y);
  T quotient = (x - rest) / y;
  if (rest != 0 && (y < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(T{0}, x / y);
  const T whole = std::floor(quotient);
  return quotient - whole > T{0.5} ? whole + 1 : whole;
}
inline int64_t wrap_add(int64_t x, int64_t y) {
  return static_cast<int64_t>(static_cast<uint64_t>(x) + static_cast<uint64_t>(y));
}
inline int64_t wrap_mul(int64_t x, int64_t y) {
  return static_cast<int64_t>(static_cast<uint64_t>(x) * static_cast<uint64_t>(y));
}
inline int64_t wrap_neg(int64_t x) {
  return static_cast<int64_t>(-static_cast<uint64_t>(x));
}
inline int64_t integer_remainder(int64_t x, int64_t y) {  // C's %
  return y == 0 || y == -1 ? 0 : x % y;
}
template <>
inline int64_t floor_modulo(int64_t x, int64_t y) {
  const int64_t rest = integer_remainder(x, y);
  return rest != 0 && (y < 0) != (rest < 0) ? rest + y : rest;
}
template <>
inline int64_t floor_quotient(int64_t x, int64_t y) {
  if (y == 0) return 0;
  if (y == -1) return wrap_neg(x);
  return x / y - (x % y != 0 && (x % y < 0) != (y < 0));
}
// xʸ modulo 2⁶⁴; a negative y gives 0 except for x = ±1.
int64_t integer_power(int64_t x, int64_t y);

}  // namespace lumen::kernels
