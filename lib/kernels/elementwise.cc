#include "lib/kernels/elementwise.h"

#include <cmath>

#include "lib/kernels/targets-inl.h"
#include "lib/kernels/typed.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/elementwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

using Float = hn::ScalableTag<float>;
// Half as many floats: what two-fold precision needs, since as many doubles fill a vector.
using HalfFloat = hn::Rebind<float, hn::ScalableTag<double>>;

// out[i] = f(in[0][i], …, in[kInputs − 1][i]) by whole vectors of D, then a partial one.
template <size_t kInputs, class D, class F>
HWY_INLINE void map(D d, const float* const* in, float* out, int64_t n, const F& f) {
  const size_t lanes = hn::Lanes(d);
  const auto count = static_cast<size_t>(n);
  size_t i = 0;
  const auto apply = [&](const auto& load) HWY_ATTR {
    if constexpr (kInputs == 1) return f(d, load(in[0]));
    if constexpr (kInputs == 2) return f(d, load(in[0]), load(in[1]));
    if constexpr (kInputs == 3) return f(d, load(in[0]), load(in[1]), load(in[2]));
  };
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(apply([&](const float* x) HWY_ATTR { return hn::LoadU(d, x + i); }), d, out + i);
  }
  if (i == count) return;
  const size_t rest = count - i;
  store_partial(apply([&](const float* x) HWY_ATTR { return load_partial(d, x + i, rest); }), d,
                out + i, rest);
}

// Replaces the lanes of y where `good` is false by scalar(a[lane], b[lane]).
template <class D, class F>
HWY_INLINE hn::Vec<D> repair(D d, hn::Mask<D> good, hn::Vec<D> y, hn::Vec<D> a, hn::Vec<D> b,
                             const F& scalar) {
  if (HWY_LIKELY(hn::AllTrue(d, good))) return y;
  HWY_ALIGN float ys[hn::MaxLanes(D())], as[hn::MaxLanes(D())], bs[hn::MaxLanes(D())];
  HWY_ALIGN float ok[hn::MaxLanes(D())];
  hn::Store(y, d, ys);
  hn::Store(a, d, as);
  hn::Store(b, d, bs);
  hn::Store(hn::IfThenElseZero(good, hn::Set(d, 1.0f)), d, ok);
  for (size_t i = 0; i < hn::Lanes(d); ++i) {
    if (ok[i] == 0) ys[i] = scalar(as[i], bs[i]);
  }
  return hn::Load(d, ys);
}

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

// Where rounding down is not cutting off: there is a rest, and not of y's sign.
template <class D>
HWY_INLINE hn::Mask<D> rounds_away(D d, hn::Vec<D> rest, hn::Vec<D> y) {
  const auto zero = hn::Zero(d);
  return hn::And(hn::Ne(rest, zero), hn::Xor(hn::Lt(rest, zero), hn::Lt(y, zero)));
}

// y, but NaN where a or b is.
template <class D>
HWY_INLINE hn::Vec<D> keep_nan(D d, hn::Vec<D> y, hn::Vec<D> a, hn::Vec<D> b) {
  return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::IsNaN(b)), hn::Add(a, b), y);
}

constexpr float kTwiceRootTwoOverPi = 1.59576912161f;

// x · sigmoid(2u) with u = √(2/π) (x + 0.044715 x³), equal to x/2 · (1 + tanh u) without the
// cancellation of 1 + tanh u for x < 0.
template <class D>
HWY_INLINE hn::Vec<D> gelu_tanh_vector(D d, hn::Vec<D> x) {
  const auto inner = hn::MulAdd(hn::Mul(x, x), hn::Set(d, 0.044715f * kTwiceRootTwoOverPi),
                                hn::Set(d, kTwiceRootTwoOverPi));
  return hn::Mul(x, sigmoid_vector(d, hn::Mul(x, inner)));
}

// s (1 + x r) with s = sigmoid v and r = 1 − s, each to the last bits.
template <class D>
HWY_INLINE hn::Vec<D> sigmoid_slope(D d, hn::Vec<D> v, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0f);
  const auto power = exp_vector(d, hn::Neg(hn::Abs(v)));
  const auto large = hn::Div(one, hn::Add(one, power)), small = hn::Mul(power, large);
  const auto negative = hn::Lt(v, hn::Zero(d));
  const auto s = hn::IfThenElse(negative, small, large);
  return hn::Mul(s, hn::MulAdd(x, hn::IfThenElse(negative, large, small), one));
}

// Beyond these |x| slopes are 0 or 1.
constexpr float kFlat = 30.0f;

// Φ + x φ with φ = e^(−x²/2) / √(2π).
template <class D>
HWY_INLINE hn::Vec<D> gelu_slope_vector(D d, hn::Vec<D> x) {
  constexpr float kInverseRootTwoPi = 0.398942280f;
  const auto near = hn::Min(hn::Max(x, hn::Set(d, -kFlat)), hn::Set(d, kFlat));
  const auto density =
      exp2_nonpositive(d, hn::Mul(hn::Mul(near, near), hn::Set(d, -0.5f * kLog2E)));
  return hn::MulAdd(hn::Mul(near, hn::Set(d, kInverseRootTwoPi)), density, normal_cdf_vector(d, x));
}

// With v = 2u as above: s (1 + x v' (1 − s)), s = sigmoid v.
template <class D>
HWY_INLINE hn::Vec<D> gelu_tanh_slope_vector(D d, hn::Vec<D> x) {
  const auto near = hn::Min(hn::Max(x, hn::Set(d, -kFlat)), hn::Set(d, kFlat));
  const auto cubic = hn::Mul(hn::Mul(near, near), hn::Set(d, 0.044715f * kTwiceRootTwoOverPi));
  const auto slope = hn::MulAdd(cubic, hn::Set(d, 3.0f), hn::Set(d, kTwiceRootTwoOverPi));
  const auto v = hn::Mul(near, hn::Add(cubic, hn::Set(d, kTwiceRootTwoOverPi)));
  return hn::IfThenElse(hn::IsNaN(x), x, sigmoid_slope(d, v, hn::Mul(near, slope)));
}

// One function per operation: name(inputs, output, count, parameters).
#define LUMEN_MAP(name, inputs, arguments, ...)                                       \
  void name(const float* const* in, float* out, int64_t n, const float* /*params*/) { \
    map<inputs>(Float(), in, out, n, [] arguments HWY_ATTR { return __VA_ARGS__; });  \
  }

LUMEN_MAP(add, 2, (auto, auto a, auto b), hn::Add(a, b))
LUMEN_MAP(sub, 2, (auto, auto a, auto b), hn::Sub(a, b))
LUMEN_MAP(mul, 2, (auto, auto a, auto b), hn::Mul(a, b))
LUMEN_MAP(div, 2, (auto, auto a, auto b), hn::Div(a, b))
LUMEN_MAP(less_than, 2, (auto d, auto a, auto b),
          hn::IfThenElseZero(hn::Lt(a, b), hn::Set(d, 1.0f)))
LUMEN_MAP(equal, 2, (auto d, auto a, auto b), hn::IfThenElseZero(hn::Eq(a, b), hn::Set(d, 1.0f)))
LUMEN_MAP(maximum, 2, (auto d, auto a, auto b), keep_nan(d, hn::Max(a, b), a, b))
LUMEN_MAP(minimum, 2, (auto d, auto a, auto b), keep_nan(d, hn::Min(a, b), a, b))
LUMEN_MAP(where, 3, (auto d, auto a, auto b, auto c), hn::IfThenElse(hn::Eq(a, hn::Zero(d)), c, b))
LUMEN_MAP(sign, 1, (auto d, auto x),
          hn::Sub(hn::IfThenElseZero(hn::Lt(hn::Zero(d), x), hn::Set(d, 1.0f)),
                  hn::IfThenElseZero(hn::Lt(x, hn::Zero(d)), hn::Set(d, 1.0f))))
LUMEN_MAP(neg, 1, (auto, auto x), hn::Neg(x))
LUMEN_MAP(abs, 1, (auto, auto x), hn::Abs(x))
LUMEN_MAP(exp2, 1, (auto d, auto x), exp2_vector(d, x))
LUMEN_MAP(log2, 1, (auto d, auto x), log2_vector(d, x))
LUMEN_MAP(exp, 1, (auto d, auto x), exp_vector(d, x))
LUMEN_MAP(log, 1, (auto d, auto x), log_vector(d, x))
LUMEN_MAP(sqrt, 1, (auto, auto x), hn::Sqrt(x))
LUMEN_MAP(rsqrt, 1, (auto d, auto x), hn::Div(hn::Set(d, 1.0f), hn::Sqrt(x)))
LUMEN_MAP(recip, 1, (auto d, auto x), hn::Div(hn::Set(d, 1.0f), x))
LUMEN_MAP(tanh, 1, (auto d, auto x), tanh_vector(d, x))
LUMEN_MAP(sigmoid, 1, (auto d, auto x), sigmoid_vector(d, x))
LUMEN_MAP(silu, 1, (auto d, auto x), hn::Mul(x, sigmoid_vector(d, x)))
LUMEN_MAP(silu_slope, 1, (auto d, auto x), sigmoid_slope(d, x, x))
LUMEN_MAP(gelu, 1, (auto d, auto x), hn::Mul(x, normal_cdf_vector(d, x)))
LUMEN_MAP(gelu_slope, 1, (auto d, auto x), gelu_slope_vector(d, x))
LUMEN_MAP(gelu_tanh, 1, (auto d, auto x), gelu_tanh_vector(d, x))
LUMEN_MAP(gelu_tanh_slope, 1, (auto d, auto x), gelu_tanh_slope_vector(d, x))
LUMEN_MAP(relu, 1, (auto d, auto x), hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x))
LUMEN_MAP(floor, 1, (auto, auto x), hn::Floor(x))
LUMEN_MAP(ceil, 1, (auto, auto x), hn::Ceil(x))
LUMEN_MAP(round, 1, (auto, auto x), hn::Round(x))
LUMEN_MAP(trunc, 1, (auto, auto x), hn::Trunc(x))
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
      [](auto d, auto, auto y, auto, auto rest)
          HWY_ATTR { return hn::IfThenElse(rounds_away(d, rest, y), hn::Add(rest, y), rest); },
      [](float a, float b) HWY_ATTR { return floor_modulo(a, b); });
}
void floor_divide(const float* const* in, float* out, int64_t n, const float*) {
  map_division(
      in, out, n,
      [](auto d, auto x, auto y, auto quotient, auto rest) HWY_ATTR {
        const auto whole =
            hn::Sub(quotient, hn::IfThenElseZero(rounds_away(d, rest, y), hn::Set(d, 1.0f)));
        const auto zero = hn::Zero(d);
        return hn::IfThenElse(hn::Eq(whole, zero), hn::CopySign(zero, hn::Xor(x, y)), whole);
      },
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
LUMEN_DISPATCH(relu)
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
