#include "lib/kernels/quantize_blocks.h"

#include <algorithm>
#include <cmath>

#include "lib/base/check.h"
#include "lib/kernels/pack_blocks.h"
#include "lib/kernels/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/quantize_blocks.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/float16-inl.h"

// How it is vectorised: a unit of sixteen sub-blocks is transposed, so that a lane holds a
// sub-block and goes through its elements in their order. No sum is over lanes, and every operation
// is one that IEEE 754 rounds: all targets compute the same.

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int kUnit = 16;  // sub-blocks of a unit
using FitTag = hn::CappedTag<float, kUnit>;
using FitVector = hn::VFromD<FitTag>;

constexpr float kLargestHalf = 65504.0f;
constexpr float kSmallestHalf = 0x1p-24f;

enum class Offset { kNone, kAny, kNotPositive };

// Sub-blocks of kSub elements, value = scale · code + offset with codes in [kLow, kHigh]. kLargest:
// the largest |x| that half-precision scales reach whatever else is in the block.
struct Q4_0Codes {
  static constexpr DType kType = DType::kQ4_0;
  static constexpr int kSub = 32, kLow = -8, kHigh = 7;
  static constexpr Offset kOffset = Offset::kNone;
  static constexpr float kLargest = 8 * kLargestHalf;
};
struct Q5_0Codes {
  static constexpr DType kType = DType::kQ5_0;
  static constexpr int kSub = 32, kLow = -16, kHigh = 15;
  static constexpr Offset kOffset = Offset::kNone;
  static constexpr float kLargest = 16 * kLargestHalf;
};
struct Q5_1Codes {
  static constexpr DType kType = DType::kQ5_1;
  static constexpr int kSub = 32, kLow = 0, kHigh = 31;
  static constexpr Offset kOffset = Offset::kAny;
  static constexpr float kLargest = kLargestHalf;
};
// Of super-blocks of 256: scale = d · s, offset = −e · m with half-precision d, e and integers s in
// [kScaleLow, kScaleHigh], m in [0, kMinHigh].
struct Q4_KCodes {
  static constexpr DType kType = DType::kQ4_K;
  static constexpr int kSub = 32, kLow = 0, kHigh = 15;
  static constexpr Offset kOffset = Offset::kNotPositive;
  static constexpr int kScaleLow = 0, kScaleHigh = 63, kMinHigh = 63;
  static constexpr float kLargest = 63 * kLargestHalf;
};
struct Q5_KCodes : Q4_KCodes {
  static constexpr DType kType = DType::kQ5_K;
  static constexpr int kHigh = 31;
};
struct Q6_KCodes {
  static constexpr DType kType = DType::kQ6_K;
  static constexpr int kSub = 16, kLow = -32, kHigh = 31;
  static constexpr Offset kOffset = Offset::kNone;
  static constexpr int kScaleLow = -128, kScaleHigh = 127, kMinHigh = 0;
  static constexpr float kLargest = 127 * 32 * kLargestHalf;
};

template <class F>
inline constexpr bool kHasOffset = F::kOffset != Offset::kNone;

// The nearest integer, ties to even, of |v| < 2²².
HWY_INLINE FitVector nearest(FitVector v) {
  const auto magic = hn::Set(FitTag(), 12582912.0f);  // 1.5 · 2²³: its last bit is worth 1
  return hn::Sub(hn::Add(v, magic), magic);
}

HWY_INLINE FitVector clamped(FitVector v, float low, float high) {
  return hn::Min(hn::Max(v, hn::Set(FitTag(), low)), hn::Set(FitTag(), high));
}

// 1 / v, 0 for what is next to 0.
HWY_INLINE FitVector reciprocal(FitVector v) {
  const FitTag d;
  const auto is_normal = hn::Gt(hn::Abs(v), hn::Set(d, 1e-30f));
  return hn::IfThenElseZero(
      is_normal, hn::Div(hn::Set(d, 1.0f), hn::IfThenElse(is_normal, v, hn::Set(d, 1.0f))));
}

// a / b, `otherwise` where b is not positive.
HWY_INLINE FitVector quotient(FitVector a, FitVector b, FitVector otherwise) {
  const FitTag d;
  const auto is_positive = hn::Gt(b, hn::Zero(d));
  return hn::IfThenElse(is_positive, hn::Div(a, hn::IfThenElse(is_positive, b, hn::Set(d, 1.0f))),
                        otherwise);
}

// The nearest finite half-precision numbers.
HWY_INLINE FitVector as_halves(FitVector v) {
  const FitTag d;
  uint16_t bits[kUnit];
  store_half(d, clamped(v, -kLargestHalf, kLargestHalf), bits);
  return load_half(d, bits);
}

template <class F>
HWY_INLINE FitVector code_of(FitVector x, FitVector inverse, FitVector offset) {
  if constexpr (kHasOffset<F>) x = hn::Sub(x, offset);
  return nearest(clamped(hn::Mul(x, inverse), F::kLow, F::kHigh));
}

template <class F>
HWY_INLINE FitVector value_of(FitVector code, FitVector scale, FitVector offset) {
  const auto scaled = hn::Mul(scale, code);
  return kHasOffset<F> ? hn::Add(scaled, offset) : scaled;
}

struct Fit {
  FitVector scale, offset;
};

// Of the nearest codes for a fit: Σ (x − value)², Σ code, Σ code², Σ x · code.
struct FitSums {
  FitVector error, q, qq, xq;
};

// `x`: [kSub][kUnit], from a lane on.
template <class F>
HWY_INLINE FitSums sums_of(const float* x, FitVector scale, FitVector offset) {
  const FitTag d;
  const auto inverse = reciprocal(scale);
  auto error = hn::Zero(d), q = hn::Zero(d), qq = hn::Zero(d), xq = hn::Zero(d);
  for (int i = 0; i < F::kSub; ++i) {
    const auto v = hn::Load(d, x + i * kUnit);
    const auto code = code_of<F>(v, inverse, offset);
    const auto rest = hn::Sub(v, value_of<F>(code, scale, offset));
    error = hn::Add(error, hn::Mul(rest, rest));
    qq = hn::Add(qq, hn::Mul(code, code));
    xq = hn::Add(xq, hn::Mul(v, code));
    if constexpr (kHasOffset<F>) q = hn::Add(q, code);
  }
  return {error, q, qq, xq};
}

// The fit of least squares for the codes of `sums`; `sum` is Σ x.
template <class F>
HWY_INLINE Fit least_squares(const FitSums& sums, FitVector sum, FitVector scale) {
  const FitTag d;
  const auto proportional = quotient(sums.xq, sums.qq, scale);
  if constexpr (!kHasOffset<F>) {
    return {proportional, hn::Zero(d)};
  } else {
    const auto n = hn::Set(d, static_cast<float>(F::kSub));
    const auto determinant = hn::Sub(hn::Mul(n, sums.qq), hn::Mul(sums.q, sums.q));
    const auto slope =
        quotient(hn::Sub(hn::Mul(n, sums.xq), hn::Mul(sum, sums.q)), determinant, scale);
    const auto offset = hn::Div(hn::Sub(sum, hn::Mul(slope, sums.q)), n);
    if constexpr (F::kOffset == Offset::kAny) return {slope, offset};
    const auto is_positive = hn::Gt(offset, hn::Zero(d));
    return {hn::IfThenElse(is_positive, proportional, slope),
            hn::IfThenZeroElse(is_positive, offset)};
  }
}

// Replaces `best`, whose error is `error`, where `fit` has less.
HWY_INLINE void keep_better(const Fit& fit, FitVector fit_error, Fit& best, FitVector& error) {
  const auto is_better = hn::Lt(fit_error, error);
  best.scale = hn::IfThenElse(is_better, fit.scale, best.scale);
  best.offset = hn::IfThenElse(is_better, fit.offset, best.offset);
  error = hn::IfThenElse(is_better, fit_error, error);
}

// Where the search begins. Without offsets: the largest element takes code kLow − step, or the
// opposite one. With: the range is 1 / (kHigh + step) of a scale, and lies at the lower end of the
// codes, in the middle, or at the upper end.
constexpr float kSteps[] = {-2.0f, -1.5f, -1.0f, -0.5f, -0.25f, 0.0f, 0.25f,
                            0.5f,  0.75f, 1.0f,  1.5f,  2.0f,   3.0f};
constexpr float kRangeSteps[] = {-1.5f, -0.75f, 0.0f, 0.6f, 1.2f, 2.0f, 3.0f};
constexpr float kRangePlaces[] = {0.0f, 0.5f, 1.0f};

// Calls attempt(fit) for the fits where the search begins.
template <class F, class Attempt>
HWY_INLINE void for_each_start(const float* x, const Attempt& attempt) {
  const FitTag d;
  if constexpr (!kHasOffset<F>) {
    auto largest = hn::Zero(d);
    for (int i = 0; i < F::kSub; ++i) {
      const auto v = hn::Load(d, x + i * kUnit);
      largest = hn::IfThenElse(hn::Gt(hn::Abs(v), hn::Abs(largest)), v, largest);
    }
    for (const float step : kSteps) {
      for (const float sign : {1.0f, -1.0f}) {
        const auto code = hn::Set(d, sign * (static_cast<float>(F::kLow) - step));
        attempt(Fit{hn::Div(largest, code), hn::Zero(d)});
      }
    }
  } else {
    auto low = hn::Load(d, x), high = low;
    for (int i = 1; i < F::kSub; ++i) {
      const auto v = hn::Load(d, x + i * kUnit);
      low = hn::Min(low, v), high = hn::Max(high, v);
    }
    if constexpr (F::kOffset == Offset::kNotPositive) low = hn::Min(low, hn::Zero(d));
    const auto range = hn::Max(hn::Sub(high, low), hn::Zero(d));
    for (const float step : kRangeSteps) {
      const auto scale = hn::Div(range, hn::Set(d, static_cast<float>(F::kHigh) + step));
      const auto rest = hn::Sub(range, hn::Mul(scale, hn::Set(d, static_cast<float>(F::kHigh))));
      for (const float place : kRangePlaces) {
        auto offset = hn::Add(low, hn::Mul(rest, hn::Set(d, place)));
        if constexpr (F::kOffset == Offset::kNotPositive) offset = hn::Min(offset, hn::Zero(d));
        attempt(Fit{scale, offset});
      }
    }
  }
}

constexpr int kLloydSteps = 4;

// The best fit found for the sub-blocks from a lane on, with scales of any precision.
template <class F>
HWY_INLINE Fit best_fit(const float* x, FitVector sum) {
  const FitTag d;
  Fit best = {hn::Zero(d), hn::Zero(d)};
  auto error = hn::Set(d, INFINITY);
  for_each_start<F>(x, [&](const Fit& start) HWY_ATTR {
    const FitSums sums = sums_of<F>(x, start.scale, start.offset);
    keep_better(start, sums.error, best, error);
    const Fit next = least_squares<F>(sums, sum, start.scale);
    keep_better(next, sums_of<F>(x, next.scale, next.offset).error, best, error);
  });
  for (int step = 0; step < kLloydSteps; ++step) {
    const FitSums sums = sums_of<F>(x, best.scale, best.offset);
    const Fit next = least_squares<F>(sums, sum, best.scale);
    keep_better(next, sums_of<F>(x, next.scale, next.offset).error, best, error);
  }
  return best;
}

// The same with half-precision scale and offset: the best of the scales next to it.
template <class F>
HWY_INLINE Fit best_half_fit(const float* x, FitVector sum) {
  const FitTag d;
  const Fit fit = best_fit<F>(x, sum);
  const auto middle = as_halves(fit.scale);
  const auto apart =  // about one unit of the last place
      hn::Max(hn::Mul(hn::Abs(middle), hn::Set(d, 0.75f / 1024)), hn::Set(d, kSmallestHalf));
  Fit best = {middle, as_halves(fit.offset)};
  auto error = sums_of<F>(x, best.scale, best.offset).error;
  for (const float side : {-1.0f, 1.0f}) {
    Fit next = {as_halves(hn::Add(middle, hn::Mul(apart, hn::Set(d, side)))), best.offset};
    if constexpr (kHasOffset<F>) {
      const auto q = sums_of<F>(x, next.scale, next.offset).q;
      next.offset = as_halves(
          hn::Div(hn::Sub(sum, hn::Mul(next.scale, q)), hn::Set(d, static_cast<float>(F::kSub))));
    }
    keep_better(next, sums_of<F>(x, next.scale, next.offset).error, best, error);
  }
  return best;
}

// A unit: sixteen sub-blocks side by side, and what is known of them.
template <class F>
struct QuantUnit {
  alignas(64) float x[F::kSub * kUnit];  // [element][sub-block]
  alignas(64) float sum[kUnit];          // Σ x
  alignas(64) float scale[kUnit], offset[kUnit];
  alignas(64) float xx[kUnit], xy[kUnit];  // Σ x², Σ x · value
  uint8_t codes[F::kSub * kUnit];          // [sub-block][element], from 0
};

// Fills x and sum from `count` sub-blocks. Those of a block that halves cannot scale become zeros;
// so do those that would be rounded to zero: their squares could underflow. Returns a bit for each
// sub-block that is not finite or too large.
template <class F>
uint32_t load_unit(const float* from, int count, QuantUnit<F>& unit) {
  uint32_t bad = 0;
  for (int block = 0; block < kUnit; ++block) {
    float largest = 0, sum = 0, check = 0;
    for (int i = 0; i < F::kSub && block < count; ++i) {
      const float v = from[block * F::kSub + i];
      largest = std::max(largest, std::abs(v));
      check += v * 0.0f;  // NaN if v is not finite
      sum += v;
    }
    if (check != 0 || largest > F::kLargest) bad |= 1u << block;
    const bool take = block < count && check == 0 && largest <= F::kLargest && largest > 0x1p-26f;
    for (int i = 0; i < F::kSub; ++i) {
      unit.x[i * kUnit + block] = take ? from[block * F::kSub + i] : 0.0f;
    }
    unit.sum[block] = take ? sum : 0.0f;
  }
  return bad;
}

// The nearest codes for scale and offset, counted from kLow; xx and xy of their values.
template <class F>
void choose_codes(QuantUnit<F>& unit) {
  const FitTag d;
  const hn::RebindToSigned<FitTag> di;
  alignas(64) int32_t codes[kUnit];
  for (int lane = 0; lane < kUnit; lane += static_cast<int>(hn::Lanes(d))) {
    const auto scale = hn::Load(d, unit.scale + lane);
    const auto inverse = reciprocal(scale);
    const auto offset = hn::Load(d, unit.offset + lane);
    auto xx = hn::Zero(d), xy = hn::Zero(d);
    for (int i = 0; i < F::kSub; ++i) {
      const auto x = hn::Load(d, unit.x + i * kUnit + lane);
      const auto code = code_of<F>(x, inverse, offset);
      xx = hn::Add(xx, hn::Mul(x, x));
      xy = hn::Add(xy, hn::Mul(x, value_of<F>(code, scale, offset)));
      hn::Store(hn::ConvertTo(di, hn::Sub(code, hn::Set(d, static_cast<float>(F::kLow)))), di,
                codes);
      for (int j = 0; j < static_cast<int>(hn::Lanes(d)); ++j) {
        unit.codes[(lane + j) * F::kSub + i] = static_cast<uint8_t>(codes[j]);
      }
    }
    hn::Store(xx, d, unit.xx + lane);
    hn::Store(xy, d, unit.xy + lane);
  }
}

// What the values of least squares are multiplied by so that they are no shorter than x along x.
// Their error is orthogonal to them: ‖x‖² = ‖value‖² + error. So products with them are too small
// by that share in every layer, while the rest of the error differs from row to row. It adds the
// square of the share to the error; no more than kMostGain, for blocks that lose much.
constexpr float kMostGain = 0.02f;

template <class F>
float gain_of(const QuantUnit<F>& unit, int first, int count) {
  // A min of half precision cancels scales that were rounded with it.
  if constexpr (F::kOffset == Offset::kAny) return 1.0f;
  float xx = 0, xy = 0;
  for (int i = first; i < first + count; ++i) xx += unit.xx[i], xy += unit.xy[i];
  return xy > 0 ? std::clamp(xx / xy, 1 - kMostGain, 1 + kMostGain) : 1.0f;
}

HWY_INLINE float within_halves(float value) {
  return std::clamp(value, -kLargestHalf, kLargestHalf);
}

template <class F>
void quantize_blocks_of_32(const float* x, uint8_t* y, int64_t n) {
  const FitTag d;
  QuantUnit<F> unit;
  for (int64_t done = 0; done < n; done += kUnit * F::kSub) {
    const int count = static_cast<int>(std::min<int64_t>(kUnit, (n - done) / F::kSub));
    const uint32_t bad = load_unit(x + done, count, unit);
    for (int lane = 0; lane < kUnit; lane += static_cast<int>(hn::Lanes(d))) {
      const Fit fit = best_half_fit<F>(unit.x + lane, hn::Load(d, unit.sum + lane));
      hn::Store(fit.scale, d, unit.scale + lane);
      hn::Store(fit.offset, d, unit.offset + lane);
    }
    choose_codes(unit);
    for (int block = 0; block < count; ++block, y += info(F::kType).block_bytes) {
      const bool is_bad = (bad >> block & 1) != 0;
      const float gain = gain_of(unit, block, 1);
      pack_block(F::kType, unit.codes + block * F::kSub,
                 is_bad ? INFINITY : within_halves(unit.scale[block] * gain),
                 within_halves(unit.offset[block] * gain), y);
    }
  }
}

// The integers s and m of sixteen sub-blocks, with d and e of their super-blocks in every lane, and
// what came of them.
struct SuperFit {
  alignas(64) float d[kUnit], e[kUnit];
  alignas(64) float s[kUnit], m[kUnit];
  alignas(64) float error[kUnit], q[kUnit], qq[kUnit], xq[kUnit];
};

// How far from the nearest s the search goes.
constexpr int kScaleReach = 2;

// For d and e as given, the best s and m around scales and offsets of the unit: for every s nearby
// the m of least squares for the nearest codes, twice.
template <class F>
HWY_INLINE void choose_scales(const QuantUnit<F>& unit, int lane, SuperFit& to) {
  const FitTag tag;
  const float* x = unit.x + lane;
  const auto d = hn::Load(tag, to.d + lane), e = hn::Load(tag, to.e + lane);
  const auto sum = hn::Load(tag, unit.sum + lane);
  const auto wanted_offset = hn::Load(tag, unit.offset + lane);
  const auto inverse_e = reciprocal(e);
  const auto middle = nearest(clamped(hn::Mul(hn::Load(tag, unit.scale + lane), reciprocal(d)),
                                      F::kScaleLow, F::kScaleHigh));
  Fit best = {middle, hn::Zero(tag)};  // s and m
  auto error = hn::Set(tag, INFINITY);
  for (int away = -kScaleReach; away <= kScaleReach; ++away) {
    const auto s = clamped(hn::Add(middle, hn::Set(tag, static_cast<float>(away))), F::kScaleLow,
                           F::kScaleHigh);
    const auto scale = hn::Mul(d, s);
    if constexpr (!kHasOffset<F>) {
      keep_better({s, hn::Zero(tag)}, sums_of<F>(x, scale, hn::Zero(tag)).error, best, error);
    } else {
      auto q = sums_of<F>(x, scale, wanted_offset).q;
      for (int round = 0; round < 2; ++round) {
        const auto min =
            hn::Div(hn::Sub(hn::Mul(scale, q), sum), hn::Set(tag, static_cast<float>(F::kSub)));
        const auto m = nearest(clamped(hn::Mul(min, inverse_e), 0, F::kMinHigh));
        const FitSums sums = sums_of<F>(x, scale, hn::Neg(hn::Mul(e, m)));
        keep_better({s, m}, sums.error, best, error);
        q = sums.q;
      }
    }
  }
  const FitSums sums = sums_of<F>(x, hn::Mul(d, best.scale), hn::Neg(hn::Mul(e, best.offset)));
  hn::Store(best.scale, tag, to.s + lane);
  hn::Store(best.offset, tag, to.m + lane);
  hn::Store(sums.error, tag, to.error + lane);
  hn::Store(sums.q, tag, to.q + lane);
  hn::Store(sums.qq, tag, to.qq + lane);
  hn::Store(sums.xq, tag, to.xq + lane);
}

HWY_INLINE float positive_half(float value) {
  return std::max(to_float(to_f16(std::min(value, kLargestHalf))), kSmallestHalf);
}

// d and e of least squares for the super-block's codes, s and m, in all its lanes:
// Σ (x − d s q + e m)², two equations.
template <class F>
void fit_factors(const QuantUnit<F>& unit, int first, int count, SuperFit& fit) {
  double ss = 0, sm = 0, mm = 0, sx = 0, mx = 0;
  for (int i = first; i < first + count; ++i) {
    const double s = fit.s[i], m = fit.m[i];
    ss += s * s * fit.qq[i];
    sm += s * m * fit.q[i];
    mm += m * m * F::kSub;
    sx += s * fit.xq[i];
    mx += m * unit.sum[i];
  }
  double d = fit.d[first], e = fit.e[first];
  const double determinant = ss * mm - sm * sm;
  if (kHasOffset<F> && determinant > 1e-6 * ss * mm) {
    d = (sx * mm - mx * sm) / determinant;
    e = (sm * sx - ss * mx) / determinant;
  } else if (ss > 0) {
    d = (sx + e * sm) / ss;
  }
  for (int i = first; i < first + count; ++i) {
    if (d > 0) fit.d[i] = positive_half(static_cast<float>(d));
    if (kHasOffset<F> && e > 0) fit.e[i] = positive_half(static_cast<float>(e));
  }
}

// Parts of the range of s and m that the largest scale and min take at first.
constexpr float kTopShares[] = {1.0f, 0.96f, 0.91f};
constexpr int kFactorFits = 2;  // for each of them

// Sets scale and offset of the unit, whose fits are of any precision, to d · s and −e · m; `best`
// says which. A super-block has `count` sub-blocks.
template <class F>
void fit_super_blocks(QuantUnit<F>& unit, int count, SuperFit& best) {
  const int lanes = static_cast<int>(hn::Lanes(FitTag()));
  SuperFit fit;
  std::fill_n(best.error, kUnit, INFINITY);
  for (const float share : kTopShares) {
    for (int first = 0; first < kUnit; first += count) {
      float scale = 0, min = 0;
      for (int i = first; i < first + count; ++i) {
        scale = std::max(scale, std::abs(unit.scale[i]));
        min = std::max(min, -unit.offset[i]);
      }
      const float d = scale > 0 ? positive_half(scale / (F::kScaleHigh * share)) : 0.0f;
      const float e = min > 0 ? positive_half(min / (F::kMinHigh * share)) : 0.0f;
      std::fill_n(fit.d + first, count, d);
      std::fill_n(fit.e + first, count, e);
    }
    for (int round = 0; round <= kFactorFits; ++round) {
      for (int lane = 0; lane < kUnit; lane += lanes) choose_scales(unit, lane, fit);
      for (int first = 0; first < kUnit; first += count) {
        float error = 0, least = 0;
        for (int i = first; i < first + count; ++i) error += fit.error[i], least += best.error[i];
        if (error < least) {
          std::copy_n(fit.d + first, count, best.d + first);
          std::copy_n(fit.e + first, count, best.e + first);
          std::copy_n(fit.s + first, count, best.s + first);
          std::copy_n(fit.m + first, count, best.m + first);
          std::copy_n(fit.error + first, count, best.error + first);
        }
        fit_factors(unit, first, count, fit);
      }
    }
  }
  for (int i = 0; i < kUnit; ++i) {
    unit.scale[i] = best.d[i] * best.s[i];
    unit.offset[i] = -(best.e[i] * best.m[i]);
  }
}

template <class F>
void quantize_super_blocks(const float* x, uint8_t* y, int64_t n) {
  constexpr int kCount = 256 / F::kSub;  // sub-blocks of a super-block
  const FitTag d;
  QuantUnit<F> unit;
  SuperFit fit;
  for (int64_t done = 0; done < n; done += kUnit * F::kSub) {
    const int count = static_cast<int>(std::min<int64_t>(kUnit, (n - done) / F::kSub));
    const uint32_t bad = load_unit(x + done, count, unit);
    for (int lane = 0; lane < kUnit; lane += static_cast<int>(hn::Lanes(d))) {
      const Fit best = best_fit<F>(unit.x + lane, hn::Load(d, unit.sum + lane));
      hn::Store(best.scale, d, unit.scale + lane);
      hn::Store(best.offset, d, unit.offset + lane);
    }
    fit_super_blocks(unit, kCount, fit);
    choose_codes(unit);
    for (int first = 0; first < count; first += kCount, y += info(F::kType).block_bytes) {
      const bool is_bad = (bad >> first & ((1u << kCount) - 1)) != 0;
      const float gain = gain_of(unit, first, kCount);
      fit.d[first] = is_bad ? INFINITY : within_halves(fit.d[first] * gain);
      fit.e[first] = within_halves(fit.e[first] * gain);
      pack_super_block(F::kType, unit.codes + first * F::kSub,
                       {fit.d[first], fit.e[first], fit.s + first, fit.m + first}, y);
    }
  }
}

void quantize_row_of(DType dtype, const float* x, uint8_t* y, int64_t n) {
  switch (dtype) {
    case DType::kQ4_0:
      return quantize_blocks_of_32<Q4_0Codes>(x, y, n);
    case DType::kQ5_0:
      return quantize_blocks_of_32<Q5_0Codes>(x, y, n);
    case DType::kQ5_1:
      return quantize_blocks_of_32<Q5_1Codes>(x, y, n);
    case DType::kQ4_K:
      return quantize_super_blocks<Q4_KCodes>(x, y, n);
    case DType::kQ5_K:
      return quantize_super_blocks<Q5_KCodes>(x, y, n);
    case DType::kQ6_K:
      return quantize_super_blocks<Q6_KCodes>(x, y, n);
    default:
      LUMEN_CHECK(!"a type that can be quantised to");
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

HWY_EXPORT(quantize_row_of);

bool can_quantize(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
      return true;
    default:
      return false;
  }
}

void quantize_blocks(DType dtype, const float* x, void* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(quantize_row_of)(dtype, x, static_cast<uint8_t*>(y), n);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
