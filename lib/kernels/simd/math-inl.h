// Vector versions of the elementary functions, included by kernel files once per Highway target.
//
// Coefficients: polynomials through the Chebyshev nodes of the stated interval, computed with 60
// decimal digits and rounded to float. "ulp" bounds hold on every target, with or without FMA, and
// are checked by elementwise_test.cc against double.
#if defined(LUMEN_KERNELS_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LUMEN_KERNELS_MATH_INL_H_
#undef LUMEN_KERNELS_MATH_INL_H_
#else
#define LUMEN_KERNELS_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include <cfloat>
#include <limits>

#include "lib/kernels/simd/piece-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// ln 2 in two parts: n · kLn2High is exact for |n| < 2^14.
inline constexpr float kLn2High = 0.693359375f;
inline constexpr float kLn2Low = -2.12194440055e-4f;
inline constexpr float kLog2E = 1.44269504089f;

// a · b + c: fused where the target can or, for results that must be the same bits on every target,
// rounded twice.
enum class Rounding { kFused, kTwice };
template <Rounding kRounding, class V>
HWY_INLINE V multiply_add(V a, V b, V c) {
  return kRounding == Rounding::kFused ? hn::MulAdd(a, b, c) : hn::Add(hn::Mul(a, b), c);
}

// c[0] + c[1] x + c[2] x² + … (Horner).
template <Rounding kRounding = Rounding::kFused, class D, size_t kCount>
HWY_INLINE hn::Vec<D> polynomial(D d, hn::Vec<D> x, const hn::TFromD<D> (&c)[kCount]) {
  auto sum = hn::Set(d, c[kCount - 1]);
  for (size_t i = kCount - 1; i-- > 0;) {
    sum = multiply_add<kRounding>(sum, x, hn::Set(d, c[i]));
  }
  return sum;
}

// An integer as both types, whichever a target needs.
template <class D>
struct Whole {
  hn::Vec<D> value;
  hn::Vec<hn::RebindToSigned<D>> integer;
};

// The integer nearest to a · b, |a · b| < 2^22; beyond that anything. The last bit of the shifted
// product is worth 1.
template <class D>
LUMEN_PIECE Whole<D> round_product(D d, hn::Vec<D> a, hn::Vec<D> b) {
  const hn::RebindToSigned<D> di;
  const auto shift = hn::Set(d, 0x1.8p23f);
  const auto sum = hn::MulAdd(a, b, shift);
  return {hn::Sub(sum, shift), hn::Sub(hn::BitCast(di, sum), hn::BitCast(di, shift))};
}

// 2^n for −127 < n < 128.
template <class D>
HWY_INLINE hn::Vec<D> power_of_two(D d, hn::Vec<hn::RebindToSigned<D>> n) {
  const hn::RebindToSigned<D> di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
}

// Whether y · 2^n is one operation, whatever it becomes: on AVX-512. Highway lacks it.
template <class D>
inline constexpr bool kScalesAtOnce = (HWY_ARCH_X86 != 0) && (HWY_TARGET <= HWY_AVX3) &&
                                      (hn::MaxLanes(D()) == 16);

// y · 2^n where both are normal numbers, or y · 2^n is anything that will not be used.
template <class D>
HWY_INLINE hn::Vec<D> scale_normal(D d, hn::Vec<D> y, const Whole<D>& n) {
  if constexpr (kScalesAtOnce<D>) return {_mm512_scalef_ps(y.raw, n.value.raw)};
  return hn::Mul(y, power_of_two(d, n.integer));
}

// y · 2^n in two factors, so that y · 2^n may be denormal or overflow.
template <class D>
HWY_INLINE hn::Vec<D> scale_by_power(D d, hn::Vec<D> y, const Whole<D>& n) {
  if constexpr (kScalesAtOnce<D>) return scale_normal(d, y, n);
  const auto half = hn::ShiftRight<1>(n.integer);
  return hn::Mul(hn::Mul(y, power_of_two(d, half)), power_of_two(d, hn::Sub(n.integer, half)));
}

// e^x = 2^n · e^r with n = round(x / ln 2) and |r| ≤ ln 2 / 2, e^r = 1 + r + r² q(r),
// approximation error 8e-9: this is e^r − 1.
template <class D>
HWY_INLINE hn::Vec<D> expm1_unit(D d, hn::Vec<D> x, hn::Vec<D> n) {
  static constexpr float kQ[] = {0.5f, 0.166665778f, 0.0416665561f, 0.00836317427f, 0.00139261771f};
  auto r = hn::NegMulAdd(n, hn::Set(d, kLn2High), x);
  r = hn::NegMulAdd(n, hn::Set(d, kLn2Low), r);
  const auto q = polynomial(d, r, kQ);
  return hn::MulAdd(hn::Mul(r, r), q, r);
}

template <class D>
HWY_INLINE hn::Vec<D> exp_unit(D d, hn::Vec<D> x, hn::Vec<D> n) {
  return hn::Add(expm1_unit(d, x, n), hn::Set(d, 1.0f));
}

// ≤ 2 ulp; overflows to +inf, underflows through denormals to 0.
template <class D>
LUMEN_PIECE hn::Vec<D> exp_vector(D d, hn::Vec<D> x) {
  // Beyond the clamp the result is 0 or inf; clamping keeps n small.
  const auto clamped = hn::Min(hn::Max(x, hn::Set(d, -104.0f)), hn::Set(d, 89.0f));
  const auto n = round_product(d, clamped, hn::Set(d, kLog2E));
  const auto y = scale_by_power(d, exp_unit(d, clamped, n.value), n);
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

// |x| below which e^x − 1 and ln(1 + x) are x.
inline constexpr float kSameBelow = 0x1p-25f;

// e^x − 1 = 2 (h (e^r − 1) + (h − ½)) with h = 2^(n − 1), which is finite where e^x is. ≤ 2 ulp.
template <class D>
LUMEN_PIECE hn::Vec<D> expm1_vector(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  // Below the clamp the result is −1, above it inf.
  const auto clamped = hn::Min(hn::Max(x, hn::Set(d, -20.0f)), hn::Set(d, 89.0f));
  const auto n = round_product(d, clamped, hn::Set(d, kLog2E));
  const auto h = power_of_two(d, hn::Sub(n.integer, hn::Set(di, 1)));
  const auto half = hn::MulAdd(expm1_unit(d, clamped, n.value), h, hn::Sub(h, hn::Set(d, 0.5f)));
  const auto same = hn::Or(hn::Lt(hn::Abs(x), hn::Set(d, kSameBelow)), hn::IsNaN(x));
  return hn::IfThenElse(same, x, hn::Add(half, half));
}

// e^x for x ≤ 0 (softmax), and up to 87, where the scale of the result is still a normal number:
// results below the smallest normal number become 0; NaN stays NaN.
template <class D>
LUMEN_PIECE hn::Vec<D> exp_nonpositive(D d, hn::Vec<D> x) {
  const auto n = round_product(d, x, hn::Set(d, kLog2E));
  const auto y = scale_normal(d, exp_unit(d, x, n.value), n);
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.0f)), y);
}

// 2^r = 1 + r p(r) on |r| ≤ 1/2, approximation error 7e-9.
template <class D>
HWY_INLINE hn::Vec<D> exp2_unit(D d, hn::Vec<D> r) {
  static constexpr float kP[] = {0.693147182f,   0.240226507f,   0.0555035695f,
                                 0.00961808302f, 0.00133908633f, 0.000154531634f};
  return hn::MulAdd(r, polynomial(d, r, kP), hn::Set(d, 1.0f));
}

// 2^x = 2^n · 2^r with n = round(x). ≤ 2 ulp.
template <class D>
LUMEN_PIECE hn::Vec<D> exp2_vector(D d, hn::Vec<D> x) {
  const auto clamped = hn::Min(hn::Max(x, hn::Set(d, -151.0f)), hn::Set(d, 129.0f));
  const auto n = round_product(d, clamped, hn::Set(d, 1.0f));
  const auto y = exp2_unit(d, hn::Sub(clamped, n.value));
  return hn::IfThenElse(hn::IsNaN(x), x, scale_by_power(d, y, n));
}

// 2^x for x ≤ 0, as exp_nonpositive.
template <class D>
LUMEN_PIECE hn::Vec<D> exp2_nonpositive(D d, hn::Vec<D> x) {
  const auto n = round_product(d, x, hn::Set(d, 1.0f));
  const auto y = scale_normal(d, exp2_unit(d, hn::Sub(x, n.value)), n);
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0f)), y);
}

// 2^x for x ≤ 126 in fewer steps, relative error 2.6e-6: 2^⌊x⌋ · 2^r with r in [0, 1). −inf and all
// that underflows give 0 or next to nothing, NaN stays NaN.
template <class D>
LUMEN_PIECE hn::Vec<D> exp2_coarse(D d, hn::Vec<D> x) {
  static constexpr float kPower[] = {1.00000262f, 0.693003833f, 0.241442755f, 0.0520114601f,
                                     0.0135341678f};
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  if constexpr (kScalesAtOnce<D>) {
    const hn::Vec<D> r{_mm512_reduce_ps(x.raw, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)};
    return {_mm512_scalef_ps(polynomial(d, r, kPower).raw, x.raw)};
  }
#endif
  const auto whole = hn::Floor(x);
  const auto y = polynomial(d, hn::Sub(x, whole), kPower);
  // The last bit of the sum is worth 1; its last 8 bits become the exponent of 2^⌊x⌋.
  const hn::RebindToSigned<D> di;
  const auto biased = hn::BitCast(di, hn::Add(whole, hn::Set(d, 0x1.8p23f + 127)));
  const auto product = hn::Mul(y, hn::BitCast(d, hn::ShiftLeft<23>(biased)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0f)), product);
}

// x = 2^e · (1 + f) with 1 + f in [√½, √2): e and f for finite x > 0, denormals included.
template <class D>
HWY_INLINE void split_exponent(D d, hn::Vec<D> x, hn::Vec<D>& e, hn::Vec<D>& f) {
  const hn::RebindToSigned<D> di;
  const auto tiny = hn::Lt(x, hn::Set(d, FLT_MIN));
  const auto bits = hn::BitCast(di, hn::IfThenElse(tiny, hn::Mul(x, hn::Set(d, 0x1p25f)), x));
  const auto exponent = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3F3504F3)));  // bits of √½
  f = hn::Sub(hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(exponent))), hn::Set(d, 1.0f));
  e = hn::Sub(hn::ConvertTo(d, exponent), hn::IfThenElseZero(tiny, hn::Set(d, 25.0f)));
}

// ln(1 + f) − f = −f²/2 + f³ q(f) on [√½ − 1, √2 − 1], relative error 6e-9.
template <Rounding kRounding = Rounding::kFused, class D>
HWY_INLINE hn::Vec<D> log1p_rest(D d, hn::Vec<D> f) {
  static constexpr float kQ[] = {0.333333313f,  -0.24999997f,  0.200007156f,
                                 -0.166678026f, 0.142490581f,  -0.124256872f,
                                 0.116854198f,  -0.114797339f, 0.0697161183f};
  const auto square = hn::Mul(f, f);
  const auto cubic = hn::Mul(hn::Mul(square, f), polynomial<kRounding>(d, f, kQ));
  return multiply_add<kRounding>(hn::Set(d, -0.5f), square, cubic);
}

// The logarithm's values where there is no exponent to split: 0 → −inf, < 0 → NaN, inf, NaN.
template <class D>
HWY_INLINE hn::Vec<D> log_specials(D d, hn::Vec<D> x, hn::Vec<D> y) {
  const auto zero = hn::Zero(d);
  y = hn::IfThenElse(hn::Lt(x, hn::Set(d, kInf)), y, x);  // +inf and NaN
  y = hn::IfThenElse(hn::Lt(x, zero), hn::Set(d, kNan), y);
  return hn::IfThenElse(hn::Eq(x, zero), hn::Set(d, -kInf), y);
}

// ln x = e ln 2 + ln(1 + f). ≤ 2 ulp.
template <class D>
LUMEN_PIECE hn::Vec<D> log_vector(D d, hn::Vec<D> x) {
  hn::Vec<D> e, f;
  split_exponent(d, x, e, f);
  const auto rest = hn::MulAdd(e, hn::Set(d, kLn2Low), log1p_rest(d, f));
  return log_specials(d, x, hn::MulAdd(e, hn::Set(d, kLn2High), hn::Add(f, rest)));
}

// ln(1 + x) = e ln 2 + ln(1 + f) + c / u, where u is 1 + x rounded, c what the rounding lost, and
// f = x if e = 0. ≤ 2 ulp.
template <class D>
LUMEN_PIECE hn::Vec<D> log1p_vector(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0f), u = hn::Add(one, x);
  hn::Vec<D> e, f;
  split_exponent(d, u, e, f);
  const auto small = hn::Eq(e, hn::Zero(d)), large = hn::Lt(one, x);
  f = hn::IfThenElse(small, x, f);
  const auto lost = hn::IfThenElse(large, hn::Sub(one, hn::Sub(u, x)), hn::Sub(x, hn::Sub(u, one)));
  const auto rest = hn::MulAdd(e, hn::Set(d, kLn2Low), log1p_rest(d, f));
  const auto corrected = hn::Add(rest, hn::IfThenZeroElse(small, hn::Div(lost, u)));
  const auto y = hn::MulAdd(e, hn::Set(d, kLn2High), hn::Add(f, corrected));
  return hn::IfThenElse(hn::Lt(hn::Abs(x), hn::Set(d, kSameBelow)), x, log_specials(d, u, y));
}

// log2 x = e + ln(1 + f) / ln 2; exact for powers of two. ≤ 3 ulp.
template <class D>
LUMEN_PIECE hn::Vec<D> log2_vector(D d, hn::Vec<D> x) {
  hn::Vec<D> e, f;
  split_exponent(d, x, e, f);
  const auto natural = hn::Add(f, log1p_rest(d, f));
  return log_specials(d, x, hn::MulAdd(natural, hn::Set(d, kLog2E), e));
}

// On |r| ≤ π/4 with z = r²: sin r = r + r z s(z) and cos r = 1 − z/2 + z² c(z).
template <Rounding kRounding = Rounding::kFused, class D>
HWY_INLINE hn::Vec<D> sin_unit(D d, hn::Vec<D> r, hn::Vec<D> z) {
  static constexpr float kS[] = {-0.166666642f, 0.00833274797f, -0.000195878907f};
  return multiply_add<kRounding>(hn::Mul(r, z), polynomial<kRounding>(d, z, kS), r);
}
template <Rounding kRounding = Rounding::kFused, class D>
HWY_INLINE hn::Vec<D> cos_unit(D d, hn::Vec<D> z) {
  static constexpr float kC[] = {0.0416666642f, -0.00138883025f, 2.45479423e-05f};
  const auto parabola = multiply_add<kRounding>(hn::Set(d, -0.5f), z, hn::Set(d, 1.0f));
  return multiply_add<kRounding>(hn::Mul(z, z), polynomial<kRounding>(d, z, kC), parabola);
}

// |x| beyond which sin_cos loses accuracy: n · kHalfPiHigh below must be exact.
inline constexpr float kMaxSinCosAngle = 1e7f;

// sin (or cos) of |x| ≤ kMaxSinCosAngle. |x| = n · π/2 + r, reduced in double with π/2 in two
// parts of 28 and 53 bits; then sin r or cos r by the quadrant n mod 4. ≤ 2 ulp. D has at most as
// many lanes as a vector of doubles.
template <bool kCosine, class D>
LUMEN_PIECE hn::Vec<D> sin_cos(D d, hn::Vec<D> x) {
  const hn::Rebind<double, D> dd;
  const hn::Rebind<int32_t, D> di;
  const auto wide = hn::PromoteTo(dd, hn::Abs(x));
  const auto n = hn::Round(hn::Mul(wide, hn::Set(dd, 0x1.45f306dc9c883p-1)));  // 2/π
  auto reduced = hn::Sub(wide, hn::Mul(n, hn::Set(dd, 0x1.921fb54p+0)));
  reduced = hn::Sub(reduced, hn::Mul(n, hn::Set(dd, 0x1.10b4611a62633p-30)));
  const auto r = hn::DemoteTo(d, reduced);
  const auto z = hn::Mul(r, r);
  const auto sine = sin_unit(d, r, z), cosine = cos_unit(d, z);

  const auto quadrant = hn::Add(hn::DemoteTo(di, n), hn::Set(di, kCosine ? 1 : 0));
  const auto one = hn::Set(di, 1);
  const auto odd = hn::RebindMask(d, hn::Eq(hn::And(quadrant, one), one));
  // Bit 1 of the quadrant is the sign; sine is odd.
  auto sign = hn::ShiftLeft<30>(hn::AndNot(one, quadrant));
  if (!kCosine) sign = hn::Xor(sign, hn::BitCast(di, x));
  const auto sign_bit = hn::And(hn::BitCast(d, sign), hn::SignBit(d));
  return hn::Xor(hn::IfThenElse(odd, cosine, sine), sign_bit);
}

// xʸ for finite y and x that is not NaN, with C's special values: 2^(y log₂ |x|) in double, ≤ 1
// ulp. |x| = 2^n m with √½ ≤ m < √2; log₂ m = s p(s²) with s = (m − 1) / (m + 1), relative error
// 5e-12; 2^f on [−½, ½], error 3e-9. D has at most as many lanes as a vector of doubles.
template <class D>
LUMEN_PIECE hn::Vec<D> pow_vector(D d, hn::Vec<D> x, hn::Vec<D> y) {
  static constexpr double kLog[] = {2.8853900817899869, 0.96179667345154851, 0.57708356600486588,
                                    0.41167376623771057, 0.3407120415619086};
  static constexpr double kExp[] = {1.0,
                                    0.69314720670283259,
                                    0.24022650922288757,
                                    0.05550327226670302,
                                    0.0096180566785246373,
                                    0.0013400428177615838,
                                    0.00015461444698569129};
  constexpr uint64_t kOne = 0x3ff0000000000000, kRootHalf = 0x3fe6a09e667f3bcd;
  const hn::Rebind<double, D> dd;
  const hn::RebindToUnsigned<decltype(dd)> du;
  const auto one = hn::Set(dd, 1.0), magnitude = hn::PromoteTo(dd, hn::Abs(x));
  const auto shifted = hn::Add(hn::BitCast(du, magnitude), hn::Set(du, kOne - kRootHalf));
  // An integer below 2^52 in the last bits of 2^52 is added to it.
  const auto biased = hn::Or(hn::ShiftRight<52>(shifted), hn::BitCast(du, hn::Set(dd, 0x1p52)));
  const auto exponent = hn::Sub(hn::BitCast(dd, biased), hn::Set(dd, 0x1p52 + 1023));
  const auto fraction = hn::And(shifted, hn::Set(du, 0x000fffffffffffff));
  const auto m = hn::BitCast(dd, hn::Add(fraction, hn::Set(du, kRootHalf)));
  const auto s = hn::Div(hn::Sub(m, one), hn::Add(m, one));
  auto log = hn::MulAdd(s, polynomial(dd, hn::Mul(s, s), kLog), exponent);
  // Those of 0 and ∞ are taken beyond every float by any y but 0.
  log = hn::IfThenElse(hn::Eq(magnitude, hn::Zero(dd)), hn::Set(dd, -1e300), log);
  log = hn::IfThenElse(hn::Gt(magnitude, hn::Set(dd, DBL_MAX)), hn::Set(dd, 1e300), log);

  const auto limit = hn::Set(dd, 1000.0), shift = hn::Set(dd, 0x1.8p52);
  const auto power = hn::Min(hn::Max(hn::Mul(hn::PromoteTo(dd, y), log), hn::Neg(limit)), limit);
  const auto sum = hn::Add(power, shift);
  const auto unit = polynomial(dd, hn::Sub(power, hn::Sub(sum, shift)), kExp);
  const auto scaled = hn::BitCast(
      dd, hn::Add(hn::BitCast(du, unit), hn::ShiftLeft<52>(hn::BitCast(du, sum))));  // · 2^n
  auto result = hn::DemoteTo(d, scaled);
  if constexpr (HWY_TARGET == HWY_EMU128) {  // where ∞ is demoted to the largest float
    const auto halved = hn::DemoteTo(d, hn::Mul(scaled, hn::Set(dd, 0.5)));
    result = hn::IfThenElse(hn::Eq(result, hn::Set(d, FLT_MAX)), hn::Add(halved, halved), result);
  }

  // Of a negative x an odd power is negative, one that is not whole NaN.
  const auto half = hn::Mul(y, hn::Set(d, 0.5f));
  const auto is_whole = hn::Eq(y, hn::Round(y));
  const auto is_odd = hn::AndNot(hn::Eq(half, hn::Round(half)), is_whole);
  const auto negative = hn::And(hn::Lt(x, hn::Zero(d)), hn::Gt(x, hn::Set(d, -kInf)));
  const auto signed_result = hn::IfThenElse(is_odd, hn::CopySign(result, x), result);
  return hn::IfThenElse(hn::AndNot(is_whole, negative), hn::Set(d, kNan), signed_result);
}

// a / x for x in [1, 2^64]: with AVX-512 what a quotient of 14 bits leaves over is divided, too,
// ≤ 1 ulp in less than half of a division's time.
template <class D>
LUMEN_PIECE hn::Vec<D> quotient(D d, hn::Vec<D> a, hn::Vec<D> x) {
  if constexpr (kScalesAtOnce<D>) {
    const auto inverse = hn::ApproximateReciprocal(x), y = hn::Mul(a, inverse);
    return hn::MulAdd(hn::NegMulAdd(x, y, a), inverse, y);
  }
  return hn::Div(a, x);
}

// ±e / (2 − e) with e = 1 − e^(−2|x|) = (1 − 2^n) − 2^n (e^r − 1), which keeps small x. ≤ 3 ulp.
template <class D>
LUMEN_PIECE hn::Vec<D> tanh_vector(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0f), least = hn::Set(d, -40.0f);  // where tanh is 1
  const auto y = hn::Mul(hn::Abs(x), hn::Set(d, -2.0f));
  // Max would lose a NaN on some targets.
  const auto clamped = hn::IfThenElse(hn::Lt(y, least), least, y);
  const auto n = round_product(d, clamped, hn::Set(d, kLog2E));
  const auto scale = power_of_two(d, n.integer);
  const auto e = hn::NegMulAdd(expm1_unit(d, clamped, n.value), scale, hn::Sub(one, scale));
  return hn::CopySign(quotient(d, e, hn::Sub(hn::Set(d, 2.0f), e)), x);
}

// cap · tanh(x) of y = 2 x log₂ e in fewer steps, as cap − 2 cap / (1 + 2^y): error 1.3e-6 · cap.
template <class D>
LUMEN_PIECE hn::Vec<D> capped_coarse(D d, hn::Vec<D> y, hn::Vec<D> cap) {
  // Min would lose a NaN on some targets.
  const auto most = hn::Set(d, 63.0f);
  const auto power = exp2_coarse(d, hn::IfThenElse(hn::Lt(most, y), most, y));
  const auto one = hn::Set(d, 1.0f);
  return hn::NegMulAdd(hn::Add(cap, cap), quotient(d, one, hn::Add(power, one)), cap);
}

// 1 / (1 + e^−x) = (x < 0 ? e^−|x| : 1) / (1 + e^−|x|): nothing overflows. ≤ 4 ulp; below −87,
// where results are no normal numbers any more, 0.
template <class D>
LUMEN_PIECE hn::Vec<D> sigmoid_vector(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0f);
  const auto power = exp_nonpositive(d, hn::Neg(hn::Abs(x)));
  return quotient(d, hn::IfNegativeThenElse(x, power, one), hn::Add(one, power));
}

// |x| < 1: x + x p(x²), error 4e-8; else ±(1 − e^−q(|x|)) with q = −ln erfc on [1, 4], beyond which
// erf is 1 in float. ≤ 3 ulp.
template <class D>
LUMEN_PIECE hn::Vec<D> erf_vector(D d, hn::Vec<D> x) {
  static constexpr float kP[] = {0.128379166f,   -0.37612626f,    0.112835944f,   -0.0268542115f,
                                 0.00518908724f, -0.00080168643f, 7.87587487e-05f};
  static constexpr float kQ[] = {-0.000320138061f, 1.13023341f,     0.631826043f,
                                 0.110080086f,     -0.0264211353f,  0.0047595962f,
                                 -0.00059680565f,  4.60580413e-05f, -1.6371514e-06f};
  const auto one = hn::Set(d, 1.0f);
  const auto magnitude = hn::Abs(x);
  const auto small = hn::MulAdd(x, polynomial(d, hn::Mul(x, x), kP), x);
  const auto clamped = hn::Min(magnitude, hn::Set(d, 4.0f));
  const auto large = hn::Sub(one, exp_nonpositive(d, hn::Neg(polynomial(d, clamped, kQ))));
  const auto y = hn::CopySign(hn::IfThenElse(hn::Lt(magnitude, one), small, large), x);
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

// The normal distribution function Φ(x) = erfc(−x/√2) / 2 as 2^q(−x) / 2 for x < 0, else
// 1 − 2^q(x) / 2, with q(t) = log₂ 2Φ(−t) = t p(t) on [0, 6], error 3e-8. From |x| = 6 on 0 or 1,
// which is less than 1e-9 off. ≤ 3 ulp for x ≥ −1, ≤ 22 ulp for x ≥ −4: the rounding of q counts.
// Even and odd powers of p apart: two short chains of multiply-adds instead of a long one.
template <class D>
LUMEN_PIECE hn::Vec<D> normal_cdf_vector(D d, hn::Vec<D> x) {
  static constexpr float kEven[] = {-1.15110505f,   -0.0524552129f,  1.52790781e-05f,
                                    8.8238543e-05f, 1.50906908e-06f, 2.37645548e-09f};
  static constexpr float kOdd[] = {-0.459213942f, 0.00695138006f, -0.000300239015f,
                                   -1.46460015e-05f, -8.99613894e-08f};
  const auto one = hn::Set(d, 1.0f);
  const auto t = hn::Abs(x);
  const auto square = hn::Mul(t, t);
  const auto p = hn::MulAdd(t, polynomial(d, square, kOdd), polynomial(d, square, kEven));
  const auto q = hn::Mul(t, p);
  const auto n = round_product(d, q, one);
  const auto power = scale_normal(d, exp2_unit(d, hn::Sub(q, n.value)), n);
  const auto half = hn::Mul(power, hn::Set(d, 0.5f));
  const auto tail = hn::IfThenZeroElse(hn::Gt(t, hn::Set(d, 6.0f)), half);
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(one, tail));
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
