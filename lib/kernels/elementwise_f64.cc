#include "lib/kernels/elementwise_f64.h"

#include <cmath>

#include "lib/kernels/simd/targets-inl.h"
#include "lib/kernels/typed.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/elementwise_f64.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/elementwise-inl.h"
#include "lib/kernels/simd/math_f64-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

using Double = hn::ScalableTag<double>;

// Sine or cosine; angles that the vector reduction does not take (NaN) go to libm.
template <bool kCosine>
HWY_INLINE void map_sin_cos(const double* const* in, double* out, int64_t n) {
  map<1>(Double(), in, out, n, [](auto d, auto x) HWY_ATTR {
    const auto y = sin_cos<kCosine>(d, x);
    return repair(d, hn::Eq(y, y), y, x, x,
                  [](double a, double) HWY_ATTR { return kCosine ? std::cos(a) : std::sin(a); });
  });
}

// f(d, x, y, quotient, rest) with quotient = trunc(x / y) and rest = x − quotient · y of x's sign.
// x / y may round up to a whole number, never past one: then the rest is y too small. Every rest is
// a number of float64, and so exact; quotients from 2^51 on, where floor_quotient is
// not, and targets without fused multiply-adds are left to `scalar`.
template <class F, class Scalar>
HWY_INLINE void map_division(const double* const* in, double* out, int64_t n, const F& f,
                             const Scalar& scalar) {
  map<2>(Double(), in, out, n, [&](auto d, auto x, auto y) HWY_ATTR {
    const auto rounded = hn::Trunc(hn::Div(x, y));
    const auto left = hn::NegMulAdd(rounded, y, x);
    const auto beyond = rounds_away(d, left, x);
    const auto one = hn::Set(d, 1.0);
    const auto quotient = hn::Sub(rounded, hn::IfThenElseZero(beyond, hn::CopySign(one, rounded)));
    const auto rest = hn::Add(left, hn::IfThenElseZero(beyond, hn::CopySign(y, x)));
    const auto limit = hn::Set(d, HWY_NATIVE_FMA ? 0x1p51 : 0.0);
    const auto good = hn::And(hn::Lt(hn::Abs(rounded), limit), hn::Lt(hn::Abs(y), hn::Inf(d)));
    return repair(d, good, f(d, x, y, quotient, hn::CopySign(rest, x)), x, y, scalar);
  });
}

constexpr double kInverseRootTwoPi = 0.3989422804014327;

// For functions of any type.
constexpr auto kSigmoid = [](auto d, auto v) HWY_ATTR { return sigmoid_vector(d, v); };

// s (1 + x r) with s = sigmoid v and r = 1 − s, each to the last bits.
template <class D>
HWY_INLINE hn::Vec<D> sigmoid_slope(D d, hn::Vec<D> v, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0);
  const auto power = exp_vector(d, hn::Neg(hn::Abs(v)));
  const auto large = hn::Div(one, hn::Add(one, power)), small = hn::Mul(power, large);
  const auto s = hn::IfNegativeThenElse(v, small, large);
  return hn::Mul(s, hn::MulAdd(x, hn::IfNegativeThenElse(v, large, small), one));
}
constexpr auto kSigmoidSlope = [](auto d, auto v, auto x)
                                   HWY_ATTR { return sigmoid_slope(d, v, x); };

// Φ + x φ with φ = e^(−x²/2) / √(2π): g(|x|) for x < 0, else 1 − g(|x|), where g(t) = Φ(−t) − t
// φ(t) = e^(−t²/2) (w(t) − t / √(2π)).
template <class D>
HWY_INLINE hn::Vec<D> gelu_slope_vector(D d, hn::Vec<D> x) {
  const auto t = hn::Min(hn::Abs(x), hn::Set(d, kNoTailF64));
  const auto p = hn::NegMulAdd(t, hn::Set(d, kInverseRootTwoPi), normal_tail_ratio(d, t));
  const auto g = hn::Mul(p, exp_minus_square(d, t, 0.5));
  const auto y = hn::IfNegativeThenElse(x, g, hn::Sub(hn::Set(d, 1.0), g));
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

#define LUMEN_OP(name, inputs, op)                             \
  void name(const double* const* in, double* out, int64_t n) { \
    map_op<TypedOp::op, inputs>(Double(), in, out, n);         \
  }

LUMEN_OP(add, 2, kAdd)
LUMEN_OP(sub, 2, kSubtract)
LUMEN_OP(mul, 2, kMultiply)
LUMEN_OP(div, 2, kDivide)
LUMEN_OP(maximum, 2, kMaximum)
LUMEN_OP(minimum, 2, kMinimum)
LUMEN_OP(clamp, 3, kClamp)
LUMEN_OP(leaky_relu, 3, kLeaky)
LUMEN_OP(neg, 1, kNegate)
LUMEN_OP(abs, 1, kMagnitude)
LUMEN_OP(sign, 1, kSign)
LUMEN_OP(relu, 1, kRelu)
LUMEN_OP(floor, 1, kFloor)
LUMEN_OP(ceil, 1, kCeil)
LUMEN_OP(round, 1, kRound)
LUMEN_OP(trunc, 1, kTrunc)
LUMEN_OP(sqrt, 1, kSquareRoot)
LUMEN_OP(recip, 1, kReciprocal)
#undef LUMEN_OP

#define LUMEN_MAP(name, arguments, ...)                                          \
  void name(const double* const* in, double* out, int64_t n) {                   \
    map<1>(Double(), in, out, n, [] arguments HWY_ATTR { return __VA_ARGS__; }); \
  }

LUMEN_MAP(exp2, (auto d, auto x), exp2_vector(d, x))
LUMEN_MAP(log2, (auto d, auto x), log2_vector(d, x))
LUMEN_MAP(exp, (auto d, auto x), exp_vector(d, x))
LUMEN_MAP(log, (auto d, auto x), log_vector(d, x))
LUMEN_MAP(expm1, (auto d, auto x), expm1_vector(d, x))
LUMEN_MAP(log1p, (auto d, auto x), log1p_vector(d, x))
LUMEN_MAP(rsqrt, (auto d, auto x), hn::Div(hn::Set(d, 1.0), hn::Sqrt(x)))
LUMEN_MAP(tanh, (auto d, auto x), tanh_vector(d, x))
LUMEN_MAP(sigmoid, (auto d, auto x), sigmoid_vector(d, x))
LUMEN_MAP(silu, (auto d, auto x), hn::Mul(x, sigmoid_vector(d, x)))
LUMEN_MAP(silu_slope, (auto d, auto x), sigmoid_slope(d, x, x))
LUMEN_MAP(gelu, (auto d, auto x), hn::Mul(x, normal_cdf_vector(d, x)))
LUMEN_MAP(gelu_slope, (auto d, auto x), gelu_slope_vector(d, x))
LUMEN_MAP(gelu_tanh, (auto d, auto x), gelu_tanh_vector(d, x, kSigmoid))
LUMEN_MAP(gelu_tanh_slope, (auto d, auto x), gelu_tanh_slope_vector(d, x, kSigmoidSlope))
LUMEN_MAP(hard_swish, (auto d, auto x), hn::Mul(x, hard_sigmoid_vector(d, x)))
LUMEN_MAP(hard_swish_slope, (auto d, auto x), hard_swish_slope_vector(d, x))
LUMEN_MAP(erf, (auto d, auto x), erf_vector(d, x))
#undef LUMEN_MAP

// Special values and what is no normal number go to libm.
void pow(const double* const* in, double* out, int64_t n) {
  map<2>(Double(), in, out, n, [](auto d, auto x, auto y) HWY_ATTR {
    auto good = hn::Eq(x, x);
    const auto power = pow_vector(d, x, y, good);
    return repair(d, good, power, x, y, [](double a, double b) HWY_ATTR { return std::pow(a, b); });
  });
}
void mod(const double* const* in, double* out, int64_t n) {
  map_division(
      in, out, n, [](auto, auto, auto, auto, auto rest) HWY_ATTR { return rest; },
      [](double a, double b) HWY_ATTR { return std::fmod(a, b); });
}
void remainder(const double* const* in, double* out, int64_t n) {
  map_division(
      in, out, n,
      [](auto d, auto, auto y, auto, auto rest) HWY_ATTR { return floor_rest(d, y, rest); },
      [](double a, double b) HWY_ATTR { return floor_modulo(a, b); });
}
void floor_divide(const double* const* in, double* out, int64_t n) {
  map_division(
      in, out, n,
      [](auto d, auto x, auto y, auto quotient, auto rest)
          HWY_ATTR { return floor_whole(d, x, y, quotient, rest); },
      [](double a, double b) HWY_ATTR { return floor_quotient(a, b); });
}
void sin(const double* const* in, double* out, int64_t n) {
  map_sin_cos<false>(in, out, n);
}
void cos(const double* const* in, double* out, int64_t n) {
  map_sin_cos<true>(in, out, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

#define LUMEN_DISPATCH(name)                                              \
  HWY_EXPORT(name);                                                       \
  void block_f64::name(const double* const* in, double* out, int64_t n) { \
    HWY_DYNAMIC_DISPATCH(name)(in, out, n);                               \
  }

LUMEN_DISPATCH(add)
LUMEN_DISPATCH(sub)
LUMEN_DISPATCH(mul)
LUMEN_DISPATCH(div)
LUMEN_DISPATCH(maximum)
LUMEN_DISPATCH(minimum)
LUMEN_DISPATCH(clamp)
LUMEN_DISPATCH(neg)
LUMEN_DISPATCH(abs)
LUMEN_DISPATCH(sign)
LUMEN_DISPATCH(relu)
LUMEN_DISPATCH(leaky_relu)
LUMEN_DISPATCH(floor)
LUMEN_DISPATCH(ceil)
LUMEN_DISPATCH(round)
LUMEN_DISPATCH(trunc)
LUMEN_DISPATCH(exp2)
LUMEN_DISPATCH(log2)
LUMEN_DISPATCH(exp)
LUMEN_DISPATCH(log)
LUMEN_DISPATCH(expm1)
LUMEN_DISPATCH(log1p)
LUMEN_DISPATCH(sin)
LUMEN_DISPATCH(cos)
LUMEN_DISPATCH(sqrt)
LUMEN_DISPATCH(rsqrt)
LUMEN_DISPATCH(recip)
LUMEN_DISPATCH(tanh)
LUMEN_DISPATCH(sigmoid)
LUMEN_DISPATCH(silu)
LUMEN_DISPATCH(silu_slope)
LUMEN_DISPATCH(gelu)
LUMEN_DISPATCH(gelu_slope)
LUMEN_DISPATCH(gelu_tanh)
LUMEN_DISPATCH(gelu_tanh_slope)
LUMEN_DISPATCH(hard_swish)
LUMEN_DISPATCH(hard_swish_slope)
LUMEN_DISPATCH(mod)
LUMEN_DISPATCH(remainder)
LUMEN_DISPATCH(floor_divide)
LUMEN_DISPATCH(pow)
LUMEN_DISPATCH(erf)
#undef LUMEN_DISPATCH

}  // namespace lumen::kernels
#endif  // HWY_ONCE
