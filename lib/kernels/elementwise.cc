#include "lib/kernels/elementwise.h"

#include <cmath>

#include "lib/kernels/simd/targets-inl.h"
#include "lib/kernels/typed.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/elementwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/elementwise-inl.h"
#include "lib/kernels/simd/float16-inl.h"
#include "lib/kernels/simd/math-inl.h"
#include "lib/kernels/simd/piece-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

using Float = hn::ScalableTag<float>;
// Half as many floats: what two-fold precision needs, since as many doubles fill a vector.
using HalfFloat = hn::Rebind<float, hn::ScalableTag<double>>;

// Sine or cosine; angles too large for the vector reduction go to libm.
template <bool kCosine>
HWY_INLINE void map_sin_cos(const float* const* in, float* out, int64_t n) {
  map<1>(HalfFloat(), in, out, n, [](auto d, auto x) HWY_ATTR {
    const auto good = hn::Le(hn::Abs(x), hn::Set(d, kMaxSinCosAngle));
    return repair(d, good, sin_cos<kCosine>(d, x), x, x,
                  [](float a, float) HWY_ATTR { return kCosine ? std::cos(a) : std::sin(a); });
  });
}

// f(d, x, y, quotient, rest) with quotient = trunc(x / y) and rest = x − quotient · y of x's sign,
// exact in double for quotients below 2^24; `scalar` does the others.
template <class F, class Scalar>
HWY_INLINE void map_division(const float* const* in, float* out, int64_t n, const F& f,
                             const Scalar& scalar) {
  map<2>(HalfFloat(), in, out, n, [&](auto d, auto x, auto y) HWY_ATTR {
    const hn::Rebind<double, decltype(d)> dd;
    const auto wide_x = hn::PromoteTo(dd, x);
    const auto wide_y = hn::PromoteTo(dd, y);
    const auto wide_quotient = hn::Trunc(hn::Div(wide_x, wide_y));
    const auto rest = hn::DemoteTo(d, hn::Sub(wide_x, hn::Mul(wide_quotient, wide_y)));
    const auto quotient = hn::DemoteTo(d, wide_quotient);
    const auto small = hn::Lt(hn::Abs(quotient), hn::Set(d, 0x1p24f));
    const auto good = hn::And(small, hn::Lt(hn::Abs(y), hn::Set(d, kInf)));
    return repair(d, good, f(d, x, y, quotient, hn::CopySign(rest, x)), x, y, scalar);
  });
}

// For functions of any type.
constexpr auto kSigmoid = [](auto d, auto v) HWY_ATTR { return sigmoid_vector(d, v); };

// s (1 + x r) with s = sigmoid v and r = 1 − s, each to the last bits.
template <class D>
HWY_INLINE hn::Vec<D> sigmoid_slope(D d, hn::Vec<D> v, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0f);
  const auto power = exp_nonpositive(d, hn::Neg(hn::Abs(v)));
  const auto large = quotient(d, one, hn::Add(one, power)), small = hn::Mul(power, large);
  const auto s = hn::IfNegativeThenElse(v, small, large);
  return hn::Mul(s, hn::MulAdd(x, hn::IfNegativeThenElse(v, large, small), one));
}
constexpr auto kSigmoidSlope = [](auto d, auto v, auto x)
                                   HWY_ATTR { return sigmoid_slope(d, v, x); };

// Φ + x φ with φ = e^(−x²/2) / √(2π): g(|x|) for x < 0, else 1 − g(|x|). g(t) = Φ(−t) − t φ(t) is
// e^(−t²/2) p(t) with p(0) = ½ and p smooth: on [0, 6] of degree 11 with an error of g of 7e-8.
// Beyond 6 g is less than 5e-8, and so is what p(6) makes of it.
template <class D>
HWY_INLINE hn::Vec<D> gelu_slope_vector(D d, hn::Vec<D> x) {
  static constexpr float kEven[] = {0.5f,          0.24993369f,     0.0613353252f,
                                    0.0082131112f, 0.000409343862f, 3.92984748e-06f};
  static constexpr float kOdd[] = {-0.797880709f,   -0.132586434f,    -0.0245919991f,
                                   -0.00214789202f, -5.22331393e-05f, -1.30531504e-07f};
  const auto t = hn::Min(hn::Abs(x), hn::Set(d, 6.0f));
  const auto square = hn::Mul(t, t);
  const auto p = hn::MulAdd(t, polynomial(d, square, kOdd), polynomial(d, square, kEven));
  const auto power = exp2_nonpositive(d, hn::Mul(hn::Mul(x, x), hn::Set(d, -0.5f * kLog2E)));
  const auto g = hn::Mul(p, power);
  return hn::IfNegativeThenElse(x, g, hn::Sub(hn::Set(d, 1.0f), g));
}

// One function per operation: name(inputs, output, count, parameters).
#define LUMEN_OP(name, inputs, op)                                                    \
  void name(const float* const* in, float* out, int64_t n, const float* /*params*/) { \
    map_op<TypedOp::op, inputs>(Float(), in, out, n);                                 \
  }

LUMEN_OP(add, 2, kAdd)
LUMEN_OP(sub, 2, kSubtract)
LUMEN_OP(mul, 2, kMultiply)
LUMEN_OP(div, 2, kDivide)
LUMEN_OP(less_than, 2, kLess)
LUMEN_OP(equal, 2, kEqual)
LUMEN_OP(maximum, 2, kMaximum)
LUMEN_OP(minimum, 2, kMinimum)
LUMEN_OP(where, 3, kWhere)
LUMEN_OP(neg, 1, kNegate)
LUMEN_OP(abs, 1, kMagnitude)
LUMEN_OP(sign, 1, kSign)
LUMEN_OP(clamp, 3, kClamp)
LUMEN_OP(leaky_relu, 3, kLeaky)
LUMEN_OP(relu, 1, kRelu)
LUMEN_OP(floor, 1, kFloor)
LUMEN_OP(ceil, 1, kCeil)
LUMEN_OP(round, 1, kRound)
LUMEN_OP(trunc, 1, kTrunc)
LUMEN_OP(sqrt, 1, kSquareRoot)
LUMEN_OP(recip, 1, kReciprocal)
#undef LUMEN_OP

#define LUMEN_MAP(name, inputs, arguments, ...)                                       \
  void name(const float* const* in, float* out, int64_t n, const float* /*params*/) { \
    map<inputs>(Float(), in, out, n, [] arguments HWY_ATTR { return __VA_ARGS__; });  \
  }

LUMEN_MAP(exp2, 1, (auto d, auto x), exp2_vector(d, x))
LUMEN_MAP(log2, 1, (auto d, auto x), log2_vector(d, x))
LUMEN_MAP(exp, 1, (auto d, auto x), exp_vector(d, x))
LUMEN_MAP(log, 1, (auto d, auto x), log_vector(d, x))
LUMEN_MAP(rsqrt, 1, (auto d, auto x), hn::Div(hn::Set(d, 1.0f), hn::Sqrt(x)))
LUMEN_MAP(tanh, 1, (auto d, auto x), tanh_vector(d, x))
LUMEN_MAP(sigmoid, 1, (auto d, auto x), sigmoid_vector(d, x))
LUMEN_MAP(silu, 1, (auto d, auto x), hn::Mul(x, sigmoid_vector(d, x)))
LUMEN_MAP(silu_slope, 1, (auto d, auto x), sigmoid_slope(d, x, x))
LUMEN_MAP(gelu, 1, (auto d, auto x), hn::Mul(x, normal_cdf_vector(d, x)))
LUMEN_MAP(gelu_slope, 1, (auto d, auto x), gelu_slope_vector(d, x))
LUMEN_MAP(gelu_tanh, 1, (auto d, auto x), gelu_tanh_vector(d, x, kSigmoid))
LUMEN_MAP(gelu_tanh_slope, 1, (auto d, auto x), gelu_tanh_slope_vector(d, x, kSigmoidSlope))
LUMEN_MAP(hard_swish, 1, (auto d, auto x), hn::Mul(x, hard_sigmoid_vector(d, x)))
LUMEN_MAP(hard_swish_slope, 1, (auto d, auto x), hard_swish_slope_vector(d, x))
LUMEN_MAP(erf, 1, (auto d, auto x), erf_vector(d, x))
LUMEN_MAP(expm1, 1, (auto d, auto x), expm1_vector(d, x))
LUMEN_MAP(log1p, 1, (auto d, auto x), log1p_vector(d, x))
#undef LUMEN_MAP

void mod(const float* const* in, float* out, int64_t n, const float*) {
  map_division(
      in, out, n, [](auto, auto, auto, auto, auto rest) HWY_ATTR { return rest; },
      [](float a, float b) HWY_ATTR { return std::fmod(a, b); });
}
void remainder(const float* const* in, float* out, int64_t n, const float*) {
  map_division(
      in, out, n,
      [](auto d, auto, auto y, auto, auto rest) HWY_ATTR { return floor_rest(d, y, rest); },
      [](float a, float b) HWY_ATTR { return floor_modulo(a, b); });
}
void floor_divide(const float* const* in, float* out, int64_t n, const float*) {
  map_division(
      in, out, n,
      [](auto d, auto x, auto y, auto quotient, auto rest)
          HWY_ATTR { return floor_whole(d, x, y, quotient, rest); },
      [](float a, float b) HWY_ATTR { return floor_quotient(a, b); });
}
// Powers of NaN and to NaN or ∞ go to libm.
void pow(const float* const* in, float* out, int64_t n, const float*) {
  map<2>(HalfFloat(), in, out, n, [](auto d, auto x, auto y) HWY_ATTR {
    const auto finite = hn::Lt(hn::Abs(y), hn::Set(d, kInf));
    const auto good = hn::AndNot(hn::IsNaN(x), finite);
    return repair(d, good, pow_vector(d, x, y), x, y,
                  [](float a, float b) HWY_ATTR { return std::pow(a, b); });
  });
}
void sin(const float* const* in, float* out, int64_t n, const float*) {
  map_sin_cos<false>(in, out, n);
}
void cos(const float* const* in, float* out, int64_t n, const float*) {
  map_sin_cos<true>(in, out, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

#define LUMEN_DISPATCH(name)                                                             \
  HWY_EXPORT(name);                                                                      \
  void block::name(const float* const* in, float* out, int64_t n, const float* params) { \
    HWY_DYNAMIC_DISPATCH(name)(in, out, n, params);                                      \
  }

LUMEN_DISPATCH(add)
LUMEN_DISPATCH(sub)
LUMEN_DISPATCH(mul)
LUMEN_DISPATCH(div)
LUMEN_DISPATCH(mod)
LUMEN_DISPATCH(remainder)
LUMEN_DISPATCH(floor_divide)
LUMEN_DISPATCH(less_than)
LUMEN_DISPATCH(equal)
LUMEN_DISPATCH(maximum)
LUMEN_DISPATCH(minimum)
LUMEN_DISPATCH(where)
LUMEN_DISPATCH(sign)
LUMEN_DISPATCH(clamp)
LUMEN_DISPATCH(neg)
LUMEN_DISPATCH(abs)
LUMEN_DISPATCH(exp2)
LUMEN_DISPATCH(log2)
LUMEN_DISPATCH(exp)
LUMEN_DISPATCH(log)
LUMEN_DISPATCH(pow)
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
LUMEN_DISPATCH(relu)
LUMEN_DISPATCH(leaky_relu)
LUMEN_DISPATCH(floor)
LUMEN_DISPATCH(ceil)
LUMEN_DISPATCH(round)
LUMEN_DISPATCH(trunc)
LUMEN_DISPATCH(erf)
LUMEN_DISPATCH(expm1)
LUMEN_DISPATCH(log1p)
#undef LUMEN_DISPATCH

}  // namespace lumen::kernels
#endif  // HWY_ONCE
