// The elementary functions of math-inl.h in double, included by kernel files once per Highway
// target: overloads of the same names.
//
// Coefficients: polynomials through the Chebyshev nodes of the stated interval, computed with 60
// decimal digits and rounded to double. "ulp" bounds hold on every target, with or without FMA, and
// are checked by elementwise_f64_test.cc against libm in long double.
#if defined(LUMEN_KERNELS_MATH_F64_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LUMEN_KERNELS_MATH_F64_INL_H_
#undef LUMEN_KERNELS_MATH_F64_INL_H_
#else
#define LUMEN_KERNELS_MATH_F64_INL_H_
#endif

#include <hwy/highway.h>

#include <cfloat>
#include <cstdint>
#include <type_traits>

#include "lib/kernels/simd/math-inl.h"
#include "lib/kernels/simd/piece-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class D>
concept DoubleTag = std::is_same_v < hn::TFromD<D>,
double > ;

// ln 2 in two parts: n · kLn2HighF64 is exact for |n| < 2^12.
inline constexpr double kLn2HighF64 = 0x1.62e42fefa2p-1;
inline constexpr double kLn2LowF64 = 0x1.9ef35793c7673p-41;
inline constexpr double kLog2EF64 = 0x1.71547652b82fep+0;

// The integer nearest to a · b, |a · b| < 2^51; beyond that anything.
template <DoubleTag D>
LUMEN_PIECE Whole<D> round_product(D d, hn::Vec<D> a, hn::Vec<D> b) {
  const hn::RebindToSigned<D> di;
  const auto shift = hn::Set(d, 0x1.8p52);
  const auto sum = hn::MulAdd(a, b, shift);
  return {hn::Sub(sum, shift), hn::Sub(hn::BitCast(di, sum), hn::BitCast(di, shift))};
}

// 2^n for −1023 < n < 1024.
template <DoubleTag D>
HWY_INLINE hn::Vec<D> power_of_two(D d, hn::Vec<hn::RebindToSigned<D>> n) {
  const hn::RebindToSigned<D> di;
  return hn::BitCast(d, hn::ShiftLeft<52>(hn::Add(n, hn::Set(di, 1023))));
}

// y · 2^n in two factors, so that y · 2^n may be denormal or overflow. AVX-512 has an instruction.
template <DoubleTag D>
HWY_INLINE hn::Vec<D> scale_by_power(D d, hn::Vec<D> y, const Whole<D>& n) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  if constexpr (hn::MaxLanes(D()) == 8) return {_mm512_scalef_pd(y.raw, n.value.raw)};
#endif
  const auto half = round_product(d, n.value, hn::Set(d, 0.5)).integer;
  return hn::Mul(hn::Mul(y, power_of_two(d, half)), power_of_two(d, hn::Sub(n.integer, half)));
}

// e^(x + low) = 2^n · e^r with n = round(x / ln 2), |r| ≤ ln 2 / 2 and |low| < 1e-4, e^r = 1 + r +
// r² q(r), approximation error 2e-17: this is e^r − 1.
template <DoubleTag D>
HWY_INLINE hn::Vec<D> expm1_unit(D d, hn::Vec<D> x, hn::Vec<D> low, hn::Vec<D> n) {
  static constexpr double kQ[] = {0.5,
                                  0.16666666666666669,
                                  0.04166666666662413,
                                  0.008333333333330062,
                                  0.0013888888917213717,
                                  0.00019841269863053618,
                                  2.4801521295954376e-05,
                                  2.7557268459997064e-06,
                                  2.7620088445409746e-07,
                                  2.510038549551032e-08};
  auto r = hn::NegMulAdd(n, hn::Set(d, kLn2HighF64), x);
  r = hn::Add(hn::NegMulAdd(n, hn::Set(d, kLn2LowF64), r), low);
  return hn::MulAdd(hn::Mul(r, r), polynomial(d, r, kQ), r);
}

// e^(x + low) for |low| < 1e-4. ≤ 1 ulp; overflows to +inf, underflows through denormals to 0.
template <DoubleTag D>
LUMEN_PIECE hn::Vec<D> exp_sum(D d, hn::Vec<D> x, hn::Vec<D> low) {
  const auto clamped = hn::Min(hn::Max(x, hn::Set(d, -746.0)), hn::Set(d, 710.0));
  const auto n = round_product(d, clamped, hn::Set(d, kLog2EF64));
  const auto unit = hn::Add(expm1_unit(d, clamped, low, n.value), hn::Set(d, 1.0));
  return hn::IfThenElse(hn::IsNaN(x), x, scale_by_power(d, unit, n));
}

template <DoubleTag D>
HWY_INLINE hn::Vec<D> exp_vector(D d, hn::Vec<D> x) {
  return exp_sum(d, x, hn::Zero(d));
}

// |x| below which e^x − 1 and ln(1 + x) are x.
inline constexpr double kSameBelowF64 = 0x1p-54;

// e^x − 1 as in float. ≤ 2 ulp.
template <DoubleTag D>
LUMEN_PIECE hn::Vec<D> expm1_vector(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  // Below the clamp the result is −1, above it inf.
  const auto clamped = hn::Min(hn::Max(x, hn::Set(d, -40.0)), hn::Set(d, 710.0));
  const auto n = round_product(d, clamped, hn::Set(d, kLog2EF64));
  const auto h = power_of_two(d, hn::Sub(n.integer, hn::Set(di, 1)));
  const auto unit = expm1_unit(d, clamped, hn::Zero(d), n.value);
  const auto half = hn::MulAdd(unit, h, hn::Sub(h, hn::Set(d, 0.5)));
  const auto same = hn::Or(hn::Lt(hn::Abs(x), hn::Set(d, kSameBelowF64)), hn::IsNaN(x));
  return hn::IfThenElse(same, x, hn::Add(half, half));
}

// 2^(x + low) = 2^n · (1 + r p(r)) with n = round(x), |r| ≤ 1/2 and |low| < 2^-40, approximation
// error 7e-18. ≤ 1 ulp.
template <DoubleTag D>
LUMEN_PIECE hn::Vec<D> exp2_sum(D d, hn::Vec<D> x, hn::Vec<D> low) {
  static constexpr double kP[] = {
      0.6931471805599453,     0.24022650695910097,    0.0555041086648216,
      0.009618129107606885,   0.0013333558146416933,  0.00015403530441741856,
      1.5252733829839213e-05, 1.3215442584382707e-06, 1.0178062443959398e-07,
      7.072586657066206e-09,  4.454960975460706e-10};
  const auto clamped = hn::Min(hn::Max(x, hn::Set(d, -1080.0)), hn::Set(d, 1025.0));
  const auto n = round_product(d, clamped, hn::Set(d, 1.0));
  const auto r = hn::Add(hn::Sub(clamped, n.value), low);
  const auto unit = hn::MulAdd(r, polynomial(d, r, kP), hn::Set(d, 1.0));
  return hn::IfThenElse(hn::IsNaN(x), x, scale_by_power(d, unit, n));
}

template <DoubleTag D>
HWY_INLINE hn::Vec<D> exp2_vector(D d, hn::Vec<D> x) {
  return exp2_sum(d, x, hn::Zero(d));
}

// x = 2^e · (1 + f) with 1 + f in [√½, √2): e and f for finite x > 0, denormals included.
template <DoubleTag D>
HWY_INLINE void split_exponent(D d, hn::Vec<D> x, hn::Vec<D>& e, hn::Vec<D>& f) {
  constexpr uint64_t kOne = 0x3ff0000000000000, kRootHalf = 0x3fe6a09e667f3bcd;
  const hn::RebindToUnsigned<D> du;
  const auto tiny = hn::Lt(x, hn::Set(d, DBL_MIN));
  const auto normal = hn::IfThenElse(tiny, hn::Mul(x, hn::Set(d, 0x1p54)), x);
  const auto shifted = hn::Add(hn::BitCast(du, normal), hn::Set(du, kOne - kRootHalf));
  // An integer below 2^52 in the last bits of 2^52 is added to it.
  const auto biased = hn::Or(hn::ShiftRight<52>(shifted), hn::BitCast(du, hn::Set(d, 0x1p52)));
  const auto bias = hn::Set(d, 0x1p52 + 1023), tiny_bias = hn::Set(d, 0x1p52 + 1023 + 54);
  e = hn::Sub(hn::BitCast(d, biased), hn::IfThenElse(tiny, tiny_bias, bias));
  const auto fraction = hn::And(shifted, hn::Set(du, 0x000fffffffffffff));
  f = hn::Sub(hn::BitCast(d, hn::Add(fraction, hn::Set(du, kRootHalf))), hn::Set(d, 1.0));
}

// ln(1 + f) − f = s (h + s² r(s²)) − h with s = f / (2 + f) and h = f²/2, from ln(1 + f) = 2 artanh
// s, on [√½ − 1, √2 − 1]; error 2e-18.
template <DoubleTag D>
HWY_INLINE hn::Vec<D> log_rest(D d, hn::Vec<D> f) {
  static constexpr double kR[] = {0.666666666666667,   0.3999999999989889, 0.28571428626253836,
                                  0.22222211089379496, 0.1818289243253687, 0.15331611722055008,
                                  0.14617807153417325};
  const auto s = hn::Div(f, hn::Add(f, hn::Set(d, 2.0)));
  const auto square = hn::Mul(s, s), h = hn::Mul(hn::Mul(f, f), hn::Set(d, 0.5));
  return hn::MulSub(s, hn::MulAdd(square, polynomial(d, square, kR), h), h);
}

// ln x = e ln 2 + ln(1 + f). ≤ 1 ulp.
template <DoubleTag D>
LUMEN_PIECE hn::Vec<D> log_vector(D d, hn::Vec<D> x) {
  hn::Vec<D> e, f;
  split_exponent(d, x, e, f);
  const auto rest = hn::MulAdd(e, hn::Set(d, kLn2LowF64), log_rest(d, f));
  return log_specials(d, x, hn::MulAdd(e, hn::Set(d, kLn2HighF64), hn::Add(f, rest)));
}

// ln(1 + x) as in float. ≤ 2 ulp.
template <DoubleTag D>
LUMEN_PIECE hn::Vec<D> log1p_vector(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0), u = hn::Add(one, x);
  hn::Vec<D> e, f;
  split_exponent(d, u, e, f);
  const auto small = hn::Eq(e, hn::Zero(d)), large = hn::Lt(one, x);
  f = hn::IfThenElse(small, x, f);
  const auto lost = hn::IfThenElse(large, hn::Sub(one, hn::Sub(u, x)), hn::Sub(x, hn::Sub(u, one)));
  const auto rest = hn::MulAdd(e, hn::Set(d, kLn2LowF64), log_rest(d, f));
  const auto corrected = hn::Add(rest, hn::IfThenZeroElse(small, hn::Div(lost, u)));
  const auto y = hn::MulAdd(e, hn::Set(d, kLn2HighF64), hn::Add(f, corrected));
  return hn::IfThenElse(hn::Lt(hn::Abs(x), hn::Set(d, kSameBelowF64)), x, log_specials(d, u, y));
}

// log2 x = e + ln(1 + f) / ln 2; exact for powers of two. ≤ 2 ulp.
template <DoubleTag D>
LUMEN_PIECE hn::Vec<D> log2_vector(D d, hn::Vec<D> x) {
  hn::Vec<D> e, f;
  split_exponent(d, x, e, f);
  const auto factor = hn::Set(d, kLog2EF64);
  const auto rest = hn::MulAdd(log_rest(d, f), factor, e);
  return log_specials(d, x, hn::MulAdd(f, factor, rest));
}

// a · b − product, exactly, where `product` is a · b rounded and nothing overflows or is denormal.
template <DoubleTag D>
HWY_INLINE hn::Vec<D> product_rest(D d, hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> product) {
#if HWY_NATIVE_FMA
  (void)d;
  return hn::MulSub(a, b, product);
#else
  // Of halves of 26 bits each product is exact (Dekker 1971).
  const auto upper = [d](hn::Vec<D> v) HWY_ATTR {
    const auto scaled = hn::Mul(v, hn::Set(d, 0x1p27 + 1));
    return hn::Sub(scaled, hn::Sub(scaled, v));
  };
  const auto a1 = upper(a), a2 = hn::Sub(a, a1), b1 = upper(b), b2 = hn::Sub(b, b1);
  const auto mixed = hn::Add(hn::Mul(a1, b2), hn::Mul(a2, b1));
  return hn::Add(hn::Add(hn::Sub(hn::Mul(a1, b1), product), mixed), hn::Mul(a2, b2));
#endif
}

// log₂ x of finite x > 0 in two parts, relative error 2^-62. With s = f / (2 + f), ln(1 + f) is
// 2 artanh s = 2 (s + s³ / 3 + s⁵ (1/5 + s² / 7 + …)), where s and s³ / 3 have two parts.
template <DoubleTag D>
HWY_INLINE void log2_parts(D d, hn::Vec<D> x, hn::Vec<D>& high, hn::Vec<D>& low) {
  static constexpr double kQ[] = {1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11, 1.0 / 13, 1.0 / 15,
                                  1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23, 1.0 / 25};
  const auto third = hn::Set(d, 0x1.5555555555555p-2), third2 = hn::Set(d, 0x1.5555555555555p-56);
  // 2 / ln 2.
  const auto scale = hn::Set(d, 0x1.71547652b82fep+1), scale2 = hn::Set(d, 0x1.777d0ffda0d24p-55);
  hn::Vec<D> e, f;
  split_exponent(d, x, e, f);
  const auto two = hn::Set(d, 2.0), g = hn::Add(f, two), g2 = hn::Sub(f, hn::Sub(g, two));
  const auto s = hn::Div(f, g), back = hn::Mul(s, g);
  const auto rest = hn::Sub(hn::Sub(f, back), product_rest(d, s, g, back));
  const auto s2 = hn::Div(hn::NegMulAdd(s, g2, rest), g);
  const auto z = hn::Mul(s, s);
  const auto z2 = hn::MulAdd(hn::Add(s, s), s2, product_rest(d, s, s, z));
  const auto cube = hn::Mul(z, s);
  const auto cube2 = hn::MulAdd(z, s2, hn::MulAdd(z2, s, product_rest(d, z, s, cube)));
  const auto t = hn::Mul(cube, third);
  const auto t2 =
      hn::MulAdd(cube, third2, hn::MulAdd(cube2, third, product_rest(d, cube, third, t)));
  const auto q = hn::Mul(hn::Mul(cube, z), polynomial(d, z, kQ));
  // The sum, its larger terms first.
  const auto sum = hn::Add(s, t), artanh = hn::Add(sum, q);
  const auto lost = hn::Add(hn::Sub(t, hn::Sub(sum, s)), hn::Sub(q, hn::Sub(artanh, sum)));
  const auto artanh2 = hn::Add(lost, hn::Add(t2, s2));
  const auto log = hn::Mul(artanh, scale);
  const auto log2 =
      hn::MulAdd(artanh, scale2, hn::MulAdd(artanh2, scale, product_rest(d, artanh, scale, log)));
  high = hn::Add(e, log);  // |e| ≥ |log|, or e = 0
  low = hn::Add(hn::Sub(log, hn::Sub(high, e)), log2);
}

// xʸ = 2^(y log₂ |x|) with the sign of an odd power, NaN of a negative x and y that is not whole. ≤
// 2 ulp, where `good`: x is neither 0 nor infinite nor NaN, nor is y, and the result is normal.
template <DoubleTag D>
LUMEN_PIECE hn::Vec<D> pow_vector(D d, hn::Vec<D> x, hn::Vec<D> y, hn::Mask<D>& good) {
  const auto magnitude = hn::Abs(x), most = hn::Set(d, 0x1p65);
  hn::Vec<D> log, log2;
  log2_parts(d, magnitude, log, log2);
  // Beyond 2^65 any log₂ but 0 goes beyond every exponent.
  const auto limited = hn::Min(hn::Max(y, hn::Neg(most)), most);
  const auto power = hn::Mul(limited, log);
  const auto power2 = hn::MulAdd(limited, log2, product_rest(d, limited, log, power));
  const auto result = exp2_sum(d, power, power2);
  const auto is_finite = hn::And(hn::Le(magnitude, hn::Set(d, DBL_MAX)), hn::Eq(y, y));
  good = hn::And(hn::And(is_finite, hn::Gt(magnitude, hn::Zero(d))),
                 hn::Lt(hn::Abs(power), hn::Set(d, 1020.0)));
  const auto half = hn::Mul(y, hn::Set(d, 0.5));
  const auto is_whole = hn::Eq(y, hn::Round(y));
  const auto is_odd = hn::AndNot(hn::Eq(half, hn::Round(half)), is_whole);
  const auto with_sign = hn::IfThenElse(is_odd, hn::CopySign(result, x), result);
  const auto is_nan = hn::AndNot(is_whole, hn::Lt(x, hn::Zero(d)));
  return hn::IfThenElse(is_nan, hn::Set(d, static_cast<double>(kNan)), with_sign);
}

// sin (or cos) of |x| < 1e6 that is not too close to where it is 0, NaN of other x. |x| = n · π/2 +
// r, with π/2 in three parts of 33, 33 and 53 bits, so that the first two products are exact, and r
// in two; then sin r = r + r z s(z) or cos r = 1 − z/2 + z² c(z), z = r², by the quadrant n mod 4.
// ≤ 1 ulp.
template <bool kCosine, DoubleTag D>
LUMEN_PIECE hn::Vec<D> sin_cos(D d, hn::Vec<D> x) {
  static constexpr double kS[] = {-0.16666666666666666,    0.008333333333330936,
                                  -0.00019841269836740532, 2.7557316093198404e-06,
                                  -2.5051129896450185e-08, 1.5917988979397435e-10};
  static constexpr double kC[] = {0.041666666666666664,  -0.0013888888888887389,
                                  2.48015872987544e-05,  -2.755731726587808e-07,
                                  2.087614504941318e-09, -1.138254464534925e-11};
  const hn::RebindToSigned<D> di;
  const auto magnitude = hn::Abs(x);
  const auto n = round_product(d, magnitude, hn::Set(d, 0x1.45f306dc9c883p-1));  // 2/π
  const auto first = hn::NegMulAdd(n.value, hn::Set(d, 0x1.921fb544p+0), magnitude);
  const auto second = hn::Mul(n.value, hn::Set(d, 0x1.0b4611a6p-34));
  const auto high = hn::Sub(first, second);
  const auto lost = hn::Sub(hn::Sub(first, high), second);
  const auto rest = hn::NegMulAdd(n.value, hn::Set(d, 0x1.3198a2e037073p-69), lost);
  const auto r = hn::Add(high, rest), low = hn::Add(hn::Sub(high, r), rest);

  const auto z = hn::Mul(r, r), half = hn::Mul(z, hn::Set(d, 0.5)), one = hn::Set(d, 1.0);
  const auto sine =
      hn::Add(r, hn::MulAdd(hn::Mul(r, z), polynomial(d, z, kS), hn::NegMulAdd(half, low, low)));
  const auto parabola = hn::Sub(one, half);
  const auto below = hn::NegMulAdd(r, low, hn::Sub(hn::Sub(one, parabola), half));
  const auto cosine = hn::Add(parabola, hn::MulAdd(hn::Mul(z, z), polynomial(d, z, kC), below));

  const auto quadrant = hn::Add(n.integer, hn::Set(di, kCosine ? 1 : 0));
  const auto bit = hn::Set(di, 1);
  const auto odd = hn::RebindMask(d, hn::Eq(hn::And(quadrant, bit), bit));
  // Bit 1 of the quadrant is the sign; sine is odd.
  auto sign = hn::ShiftLeft<62>(hn::AndNot(bit, quadrant));
  if (!kCosine) sign = hn::Xor(sign, hn::BitCast(di, x));
  const auto y =
      hn::Xor(hn::IfThenElse(odd, cosine, sine), hn::And(hn::BitCast(d, sign), hn::SignBit(d)));
  const auto is_near =
      hn::And(hn::Lt(hn::Abs(r), hn::Set(d, 0x1p-30)), hn::Gt(magnitude, hn::Set(d, 0.5)));
  const auto good = hn::AndNot(is_near, hn::Lt(magnitude, hn::Set(d, 1e6)));
  return hn::IfThenElse(good, y, hn::Set(d, kNan));
}

// ±e / (2 − e) with e = 1 − e^(−2|x|), as in float. ≤ 2 ulp.
template <DoubleTag D>
LUMEN_PIECE hn::Vec<D> tanh_vector(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0), least = hn::Set(d, -40.0);  // where tanh is 1
  const auto y = hn::Mul(hn::Abs(x), hn::Set(d, -2.0));
  // Max would lose a NaN on some targets.
  const auto clamped = hn::IfThenElse(hn::Lt(y, least), least, y);
  const auto n = round_product(d, clamped, hn::Set(d, kLog2EF64));
  const auto scale = power_of_two(d, n.integer);
  const auto unit = expm1_unit(d, clamped, hn::Zero(d), n.value);
  const auto e = hn::NegMulAdd(unit, scale, hn::Sub(one, scale));
  return hn::CopySign(hn::Div(e, hn::Sub(hn::Set(d, 2.0), e)), x);
}

// 1 / (1 + e^−x), of which nothing overflows, as in float. ≤ 2 ulp.
template <DoubleTag D>
LUMEN_PIECE hn::Vec<D> sigmoid_vector(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0);
  const auto power = exp_vector(d, hn::Neg(hn::Abs(x)));
  return hn::Div(hn::IfNegativeThenElse(x, power, one), hn::Add(one, power));
}

// e^(−c t²) for c = 1 or ½ and 0 ≤ t < 2^100, where t² is not rounded: t = a + b with a of 26 bits,
// whose square is exact.
template <DoubleTag D>
HWY_INLINE hn::Vec<D> exp_minus_square(D d, hn::Vec<D> t, double c) {
  const hn::RebindToUnsigned<D> du;
  const auto a = hn::And(t, hn::BitCast(d, hn::Set(du, 0xfffffffff8000000)));
  const auto factor = hn::Set(d, -c);
  const auto low = hn::Mul(hn::Mul(hn::Sub(t, a), hn::Add(t, a)), factor);
  return exp_sum(d, hn::Mul(hn::Mul(a, a), factor), low);
}

// |x| < ¾: x + x p(x²), error 1e-18; else ±(1 − e^(−x²) v(|x|)), where v(t) = e^(t²) erfc t as a
// quotient of polynomials with positive coefficients, through the Chebyshev nodes in (t − 2.5) / (t
// + 2.5) of [0, 27.5], error 3e-18. From 6 on erf is 1. ≤ 2 ulp.
template <DoubleTag D>
LUMEN_PIECE hn::Vec<D> erf_vector(D d, hn::Vec<D> x) {
  static constexpr double kP[] = {
      0.1283791670955126,      -0.37612638903183715,    0.11283791670952596,
      -0.026866170644428485,   0.005223977615420539,    -0.0008548326188759752,
      0.00012055289567541706,  -1.4924196305569617e-05, 1.643068417974155e-06,
      -1.5940066854661717e-07, 1.1472499701094691e-08};
  static constexpr double kAbove[] = {1.0,
                                      2.3180092469552402,
                                      2.6658006379888306,
                                      1.963718351801366,
                                      1.0161370161896555,
                                      0.3840825004914269,
                                      0.10722351998573555,
                                      0.02185009008432937,
                                      0.0031210504790025796,
                                      0.0002839622135258792,
                                      1.263314399388372e-05};
  static constexpr double kBelow[] = {1.0,
                                      3.446388414050753,
                                      5.554633526123042,
                                      5.537315467541864,
                                      3.8022501640321194,
                                      1.8933423114855847,
                                      0.6998809936363962,
                                      0.1928035038912324,
                                      0.038979931277104314,
                                      0.005543113772624416,
                                      0.0005033099188771767,
                                      2.239166472099321e-05};
  const auto magnitude = hn::Abs(x);
  const auto small = hn::MulAdd(x, polynomial(d, hn::Mul(x, x), kP), x);
  const auto t = hn::Min(magnitude, hn::Set(d, 6.0));
  const auto v = hn::Div(polynomial(d, t, kAbove), polynomial(d, t, kBelow));
  const auto large = hn::NegMulAdd(exp_minus_square(d, t, 1.0), v, hn::Set(d, 1.0));
  const auto is_small = hn::Lt(magnitude, hn::Set(d, 0.75));
  const auto y = hn::IfThenElse(is_small, small, hn::CopySign(large, x));
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

// t from which on Φ(−t) is 0.
inline constexpr double kNoTailF64 = 38.9;

// e^(t²/2) Φ(−t) for 0 ≤ t ≤ kNoTailF64, Φ being the normal distribution function: p(z) / (1 + t)
// with z = (t − 4) / (t + 4), error 7e-18. p is nearly constant, which keeps rounding errors small.
// Even and odd powers of p apart: two short chains of multiply-adds instead of a long one.
template <DoubleTag D>
LUMEN_PIECE hn::Vec<D> normal_tail_ratio(D d, hn::Vec<D> t) {
  static constexpr double kEven[] = {
      0.47205320650984467,    0.013999634724425407,   -0.03219783742808557,
      -0.005002378591047385,  0.0006948971045666803,  -8.785318343563233e-05,
      1.3626867949743132e-05, -2.612904957156168e-06, 5.520043589642093e-07,
      -1.110196437049254e-07, 1.7665729896727133e-08, -1.5479810041457088e-09};
  static constexpr double kOdd[] = {
      -0.0967034773265258,     0.028600364053550816,   0.017936097479675003,
      -0.0002856230980028492,  -9.443025365212491e-05, 2.125004835654438e-05,
      -3.4321965286664227e-06, 4.0447982348198157e-07, 1.472493860042235e-09,
      -1.991410506531829e-08,  6.247212056198664e-09,  -7.905723293154515e-10};
  const auto four = hn::Set(d, 4.0);
  const auto z = hn::Div(hn::Sub(t, four), hn::Add(t, four)), square = hn::Mul(z, z);
  const auto p = hn::MulAdd(polynomial(d, square, kOdd), z, polynomial(d, square, kEven));
  return hn::Div(p, hn::Add(t, hn::Set(d, 1.0)));
}

// Φ(x) as the tail Φ(−|x|) for x < 0, else 1 minus that. ≤ 5 ulp.
template <DoubleTag D>
LUMEN_PIECE hn::Vec<D> normal_cdf_vector(D d, hn::Vec<D> x) {
  const auto t = hn::Min(hn::Abs(x), hn::Set(d, kNoTailF64));
  const auto tail = hn::Mul(exp_minus_square(d, t, 0.5), normal_tail_ratio(d, t));
  const auto y = hn::IfNegativeThenElse(x, tail, hn::Sub(hn::Set(d, 1.0), tail));
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
