// The scale and offset with which the nearest codes of a block format err least. Included once for
// every SIMD target, by quantize_blocks.cc.
//
// How it is vectorised: a unit of sixteen sub-blocks is transposed, so that a lane holds a
// sub-block and goes through its elements in their order. No sum is over lanes, and every operation
// is one that IEEE 754 rounds: all targets compute the same.
#include <cmath>

#include "lib/kernels/simd/targets-inl.h"
#include "lib/tensor/dtype.h"

#if defined(LUMEN_KERNELS_QUANTIZE_FIT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LUMEN_KERNELS_QUANTIZE_FIT_INL_H_
#undef LUMEN_KERNELS_QUANTIZE_FIT_INL_H_
#else
#define LUMEN_KERNELS_QUANTIZE_FIT_INL_H_
#endif

#include <hwy/highway.h>

#include "lib/kernels/simd/float16-inl.h"
#include "lib/kernels/simd/piece-inl.h"
#include "lib/kernels/weights/iq4_values.h"

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

// The squares of a block's errors are multiplied by the weights of its columns. kSmallest: blocks
// without larger numbers are rounded to zeros, which keeps squares from underflow.
struct Unweighted {
  static constexpr bool kIsWeighted = false;
  static constexpr float kSmallest = 0x1p-26f;
};
template <class F>
struct Weighted : F {
  static constexpr bool kIsWeighted = true;
};

// Sub-blocks of kSub elements, value = scale · code + offset with codes in [kLow, kHigh]: all
// integers there or, kIsIq4, kIq4Values. kStep: how far apart codes are near the ends. kLargest:
// the largest |x| that half-precision scales reach whatever else is in the block.
struct WholeCodes : Unweighted {
  static constexpr bool kIsIq4 = false;
  static constexpr float kStep = 1;
};
struct Q4_0Codes : WholeCodes {
  static constexpr DType kType = DType::kQ4_0;
  static constexpr int kSub = 32, kLow = -8, kHigh = 7;
  static constexpr Offset kOffset = Offset::kNone;
  static constexpr float kLargest = 8 * kLargestHalf;
};
struct Q5_0Codes : WholeCodes {
  static constexpr DType kType = DType::kQ5_0;
  static constexpr int kSub = 32, kLow = -16, kHigh = 15;
  static constexpr Offset kOffset = Offset::kNone;
  static constexpr float kLargest = 16 * kLargestHalf;
};
struct Q5_1Codes : WholeCodes {
  static constexpr DType kType = DType::kQ5_1;
  static constexpr int kSub = 32, kLow = 0, kHigh = 31;
  static constexpr Offset kOffset = Offset::kAny;
  static constexpr float kLargest = kLargestHalf;
};
struct Q4_1Codes : Q5_1Codes {
  static constexpr DType kType = DType::kQ4_1;
  static constexpr int kHigh = 15;
};
struct IQ4_NLCodes : Unweighted {
  static constexpr DType kType = DType::kIQ4_NL;
  static constexpr bool kIsIq4 = true;
  static constexpr int kSub = 32, kLow = kIq4Values[0], kHigh = kIq4Values[15];
  static constexpr float kStep = 10;
  static constexpr Offset kOffset = Offset::kNone;
  static constexpr float kLargest = 127 * kLargestHalf;
};
// Of super-blocks of 256: scale = d · s, offset = −e · m with half-precision d, e and integers s in
// [kScaleLow, kScaleHigh], m in [0, kMinHigh].
struct Q4_KCodes : WholeCodes {
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
struct Q2_KCodes : WholeCodes {
  static constexpr DType kType = DType::kQ2_K;
  static constexpr int kSub = 16, kLow = 0, kHigh = 3;
  static constexpr Offset kOffset = Offset::kNotPositive;
  static constexpr int kScaleLow = 0, kScaleHigh = 15, kMinHigh = 15;
  static constexpr float kLargest = 15 * kLargestHalf;
};
struct Q3_KCodes : WholeCodes {
  static constexpr DType kType = DType::kQ3_K;
  static constexpr int kSub = 16, kLow = -4, kHigh = 3;
  static constexpr Offset kOffset = Offset::kNone;
  static constexpr int kScaleLow = -32, kScaleHigh = 31, kMinHigh = 0;
  static constexpr float kLargest = 31 * 4 * kLargestHalf;
};
struct Q6_KCodes : WholeCodes {
  static constexpr DType kType = DType::kQ6_K;
  static constexpr int kSub = 16, kLow = -32, kHigh = 31;
  static constexpr Offset kOffset = Offset::kNone;
  static constexpr int kScaleLow = -128, kScaleHigh = 127, kMinHigh = 0;
  static constexpr float kLargest = 127 * 32 * kLargestHalf;
};
struct IQ4_XSCodes : IQ4_NLCodes {
  static constexpr DType kType = DType::kIQ4_XS;
  static constexpr int kScaleLow = -32, kScaleHigh = 31, kMinHigh = 0;
  static constexpr float kLargest = 31 * 127 * kLargestHalf;
};

template <class F>
inline constexpr bool kHasOffset = F::kOffset != Offset::kNone;

// The nearest integer, ties to even, of |v| < 2²².
LUMEN_PIECE FitVector nearest(FitVector v) {
  const auto magic = hn::Set(FitTag(), 12582912.0f);  // 1.5 · 2²³: its last bit is worth 1
  return hn::Sub(hn::Add(v, magic), magic);
}

LUMEN_PIECE FitVector clamped(FitVector v, float low, float high) {
  return hn::Min(hn::Max(v, hn::Set(FitTag(), low)), hn::Set(FitTag(), high));
}

// 1 / v, 0 for what is next to 0.
LUMEN_PIECE FitVector reciprocal(FitVector v) {
  const FitTag d;
  const auto is_normal = hn::Gt(hn::Abs(v), hn::Set(d, 1e-30f));
  return hn::IfThenElseZero(
      is_normal, hn::Div(hn::Set(d, 1.0f), hn::IfThenElse(is_normal, v, hn::Set(d, 1.0f))));
}

// a / b, `otherwise` where b is not positive.
LUMEN_PIECE FitVector quotient(FitVector a, FitVector b, FitVector otherwise) {
  const FitTag d;
  const auto is_positive = hn::Gt(b, hn::Zero(d));
  return hn::IfThenElse(is_positive, hn::Div(a, hn::IfThenElse(is_positive, b, hn::Set(d, 1.0f))),
                        otherwise);
}

// The nearest finite half-precision numbers.
LUMEN_PIECE FitVector as_halves(FitVector v) {
  const FitTag d;
  uint16_t bits[kUnit];
  store_half(d, clamped(v, -kLargestHalf, kLargestHalf), bits);
  return load_half(d, bits);
}

// The nearest of kIq4Values to the numbers from `low + i / 2` up to the next half: where two are as
// near is always such a half.
struct Iq4Nearest {
  static constexpr int kLow = kIq4Values[0], kCount = 2 * (kIq4Values[15] - kLow) + 1;
  float values[kCount];
  uint8_t codes[kCount];
};
inline constexpr Iq4Nearest kIq4Nearest = [] {
  Iq4Nearest to = {};
  int code = 0;
  for (int i = 0; i < to.kCount; ++i) {
    while (code < 15 && 2 * to.kLow + i >= kIq4Values[code] + kIq4Values[code + 1]) ++code;
    to.values[i] = kIq4Values[code];
    to.codes[i] = static_cast<uint8_t>(code);
  }
  return to;
}();

LUMEN_PIECE FitVector nearest_iq4(FitVector v) {
  const FitTag d;
  const hn::RebindToSigned<FitTag> di;
  const auto half = hn::ConvertTo(di, hn::Floor(hn::Add(v, v)));
  const auto at = hn::Sub(half, hn::Set(di, 2 * kIq4Nearest.kLow));
  const auto last = hn::Set(di, kIq4Nearest.kCount - 1);
  return hn::GatherIndex(d, kIq4Nearest.values, hn::Min(hn::Max(at, hn::Zero(di)), last));
}

template <class F>
LUMEN_PIECE FitVector code_of(FitVector x, FitVector inverse, FitVector offset) {
  if constexpr (kHasOffset<F>) x = hn::Sub(x, offset);
  const auto v = clamped(hn::Mul(x, inverse), F::kLow, F::kHigh);
  return F::kIsIq4 ? nearest_iq4(v) : nearest(v);
}

template <class F>
LUMEN_PIECE FitVector value_of(FitVector code, FitVector scale, FitVector offset) {
  const auto scaled = hn::Mul(scale, code);
  return kHasOffset<F> ? hn::Add(scaled, offset) : scaled;
}

struct Fit {
  FitVector scale, offset;
};

// Sub-blocks from a lane on: elements and, of Weighted formats, weights [kSub][kUnit]; Σ w x and Σ
// w, where w is 1 in other formats.
struct SubBlocks {
  const float* x;
  const float* w;
  FitVector sum, weight;
};

// Of the nearest codes for a fit: Σ w (x − value)², Σ w code, Σ w code², Σ w x · code.
struct FitSums {
  FitVector error, q, qq, xq;
};

template <class F>
LUMEN_PIECE FitSums sums_of(const SubBlocks& from, FitVector scale, FitVector offset) {
  const FitTag d;
  const auto inverse = reciprocal(scale);
  auto error = hn::Zero(d), q = hn::Zero(d), qq = hn::Zero(d), xq = hn::Zero(d);
  for (int i = 0; i < F::kSub; ++i) {
    const auto v = hn::Load(d, from.x + i * kUnit);
    const auto code = code_of<F>(v, inverse, offset);
    const auto rest = hn::Sub(v, value_of<F>(code, scale, offset));
    auto weighted_rest = rest, weighted_code = code;
    if constexpr (F::kIsWeighted) {
      const auto w = hn::Load(d, from.w + i * kUnit);
      weighted_rest = hn::Mul(w, rest);
      weighted_code = hn::Mul(w, code);
    }
    error = hn::Add(error, hn::Mul(weighted_rest, rest));
    qq = hn::Add(qq, hn::Mul(weighted_code, code));
    xq = hn::Add(xq, hn::Mul(v, weighted_code));
    if constexpr (kHasOffset<F>) q = hn::Add(q, weighted_code);
  }
  return {error, q, qq, xq};
}

// The fit of least squares for the codes of `sums`.
template <class F>
LUMEN_PIECE Fit least_squares(const SubBlocks& from, const FitSums& sums, FitVector scale) {
  const FitTag d;
  const auto proportional = quotient(sums.xq, sums.qq, scale);
  if constexpr (!kHasOffset<F>) {
    return {proportional, hn::Zero(d)};
  } else {
    const auto n = from.weight, sum = from.sum;
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
LUMEN_PIECE void keep_better(const Fit& fit, FitVector fit_error, Fit& best, FitVector& error) {
  const auto is_better = hn::Lt(fit_error, error);
  best.scale = hn::IfThenElse(is_better, fit.scale, best.scale);
  best.offset = hn::IfThenElse(is_better, fit.offset, best.offset);
  error = hn::IfThenElse(is_better, fit_error, error);
}

// Where the search begins. Without offsets: the largest element takes code kLow − step · kStep, or
// the opposite one. With: the range is 1 / (kHigh + step) of a scale, and lies at the lower end of
// the codes, in the middle, or at the upper end.
constexpr float kSteps[] = {-2.0f, -1.5f, -1.0f, -0.5f, -0.25f, 0.0f, 0.25f,
                            0.5f,  0.75f, 1.0f,  1.5f,  2.0f,   3.0f};
constexpr float kRangeSteps[] = {-1.5f, -0.75f, 0.0f, 0.6f, 1.2f, 2.0f, 3.0f};
constexpr float kRangePlaces[] = {0.0f, 0.5f, 1.0f};

// Calls attempt(fit) for the fits where the search begins.
template <class F, class Attempt>
LUMEN_PIECE void for_each_start(const float* x, const Attempt& attempt) {
  const FitTag d;
  if constexpr (!kHasOffset<F>) {
    auto largest = hn::Zero(d);
    for (int i = 0; i < F::kSub; ++i) {
      const auto v = hn::Load(d, x + i * kUnit);
      largest = hn::IfThenElse(hn::Gt(hn::Abs(v), hn::Abs(largest)), v, largest);
    }
    for (const float step : kSteps) {
      for (const float sign : {1.0f, -1.0f}) {
        const auto code = hn::Set(d, sign * (static_cast<float>(F::kLow) - step * F::kStep));
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
LUMEN_PIECE Fit best_fit(const SubBlocks& from) {
  const FitTag d;
  Fit best = {hn::Zero(d), hn::Zero(d)};
  auto error = hn::Set(d, INFINITY);
  for_each_start<F>(from.x, [&](const Fit& start) HWY_ATTR {
    const FitSums sums = sums_of<F>(from, start.scale, start.offset);
    keep_better(start, sums.error, best, error);
    const Fit next = least_squares<F>(from, sums, start.scale);
    keep_better(next, sums_of<F>(from, next.scale, next.offset).error, best, error);
  });
  for (int step = 0; step < kLloydSteps; ++step) {
    const FitSums sums = sums_of<F>(from, best.scale, best.offset);
    const Fit next = least_squares<F>(from, sums, best.scale);
    keep_better(next, sums_of<F>(from, next.scale, next.offset).error, best, error);
  }
  return best;
}

// The same with half-precision scale and offset: the best of the scales next to it.
template <class F>
LUMEN_PIECE Fit best_half_fit(const SubBlocks& from) {
  const FitTag d;
  const Fit fit = best_fit<F>(from);
  const auto middle = as_halves(fit.scale);
  const auto apart =  // about one unit of the last place
      hn::Max(hn::Mul(hn::Abs(middle), hn::Set(d, 0.75f / 1024)), hn::Set(d, kSmallestHalf));
  Fit best = {middle, as_halves(fit.offset)};
  auto error = sums_of<F>(from, best.scale, best.offset).error;
  for (const float side : {-1.0f, 1.0f}) {
    Fit next = {as_halves(hn::Add(middle, hn::Mul(apart, hn::Set(d, side)))), best.offset};
    if constexpr (kHasOffset<F>) {
      const auto q = sums_of<F>(from, next.scale, next.offset).q;
      next.offset = as_halves(hn::Div(hn::Sub(from.sum, hn::Mul(next.scale, q)), from.weight));
    }
    keep_better(next, sums_of<F>(from, next.scale, next.offset).error, best, error);
  }
  return best;
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#endif  // LUMEN_KERNELS_QUANTIZE_FIT_INL_H_
