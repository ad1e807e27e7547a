#include "lib/kernels/quantize_blocks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "lib/base/check.h"
#include "lib/kernels/simd/targets-inl.h"
#include "lib/kernels/weights/mxfp4_values.h"
#include "lib/kernels/weights/pack_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/quantize_blocks.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/weights/quantize_fit-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

// A unit: sixteen sub-blocks side by side, and what is known of them.
template <class F>
struct QuantUnit {
  alignas(64) float x[F::kSub * kUnit];                       // [element][sub-block]
  alignas(64) float w[F::kIsWeighted ? F::kSub * kUnit : 1];  // of Weighted formats
  alignas(64) float sum[kUnit], weight[kUnit];                // Σ w x, Σ w
  alignas(64) float scale[kUnit], offset[kUnit];
  alignas(64) float xx[kUnit], xy[kUnit];  // Σ w x², Σ w x · value
  uint8_t codes[F::kSub * kUnit];          // [sub-block][element], from 0

  HWY_INLINE SubBlocks from(int lane) const {
    const FitTag d;
    return {x + lane, w + (F::kIsWeighted ? lane : 0), hn::Load(d, sum + lane),
            hn::Load(d, weight + lane)};
  }
};

// The least weight of a column, as a part of the mean: what was never multiplied by more than zero
// while the weights were measured may be, later.
constexpr float kLeastWeight = 0x1p-10f;

// Sets the weights of `count` sub-blocks to those from w[done] on, of which only the ratios within
// a group that shares scales, of `group` sub-blocks, matter; 1 where they say nothing, or there are
// none.
template <class F>
void load_weights(const float* w, int64_t done, int count, int group, QuantUnit<F>& unit) {
  if (w == nullptr) {
    std::fill_n(unit.w, F::kSub * kUnit, 1.0f);
    return;
  }
  const int size = group * F::kSub;
  for (int first = 0; first < kUnit; first += group) {
    const float* from = w + done + first * F::kSub;
    double sum = 0;
    for (int i = 0; i < size && first < count; ++i) sum += from[i] >= 0 ? from[i] : NAN;
    const bool take = first < count && sum > 0 && sum < INFINITY;
    for (int i = 0; i < size; ++i) {
      const auto share = take ? static_cast<float>(from[i] / (sum / size)) : 1.0f;
      unit.w[i % F::kSub * kUnit + first + i / F::kSub] = std::max(share, kLeastWeight);
    }
  }
}

// Fills x, sum and weight from `count` sub-blocks; w is set. Those of a block that halves cannot
// scale become zeros; so do those that would be rounded to zero (kSmallest).
// Returns a bit for each sub-block that is not finite or too large.
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
    const bool take =
        block < count && check == 0 && largest <= F::kLargest && largest > F::kSmallest;
    for (int i = 0; i < F::kSub; ++i) {
      unit.x[i * kUnit + block] = take ? from[block * F::kSub + i] : 0.0f;
    }
    unit.sum[block] = take ? sum : 0.0f;
    unit.weight[block] = F::kSub;
    if constexpr (F::kIsWeighted) {
      unit.sum[block] = unit.weight[block] = 0;
      for (int i = 0; i < F::kSub; ++i) {
        const float w = unit.w[i * kUnit + block];
        unit.weight[block] += w;
        unit.sum[block] += w * unit.x[i * kUnit + block];
      }
    }
  }
  return bad;
}

// The nearest codes for scale and offset, counted from kLow (of IQ4 types: the nibbles that stand
// for them); xx and xy of their values.
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
      auto weighted = x;
      if constexpr (F::kIsWeighted) {
        weighted = hn::Mul(hn::Load(d, unit.w + i * kUnit + lane), x);
      }
      xx = hn::Add(xx, hn::Mul(weighted, x));
      xy = hn::Add(xy, hn::Mul(weighted, value_of<F>(code, scale, offset)));
      hn::Store(hn::ConvertTo(di, hn::Sub(code, hn::Set(d, static_cast<float>(F::kLow)))), di,
                codes);
      for (int j = 0; j < static_cast<int>(hn::Lanes(d)); ++j) {
        unit.codes[(lane + j) * F::kSub + i] =
            F::kIsIq4 ? kIq4Nearest.codes[2 * codes[j]] : static_cast<uint8_t>(codes[j]);
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
void quantize_blocks_of_32(const float* x, const float* w, uint8_t* y, int64_t n) {
  const FitTag d;
  QuantUnit<F> unit;
  for (int64_t done = 0; done < n; done += kUnit * F::kSub) {
    const int count = static_cast<int>(std::min<int64_t>(kUnit, (n - done) / F::kSub));
    if constexpr (F::kIsWeighted) load_weights(w, done, count, 1, unit);
    const uint32_t bad = load_unit(x + done, count, unit);
    for (int lane = 0; lane < kUnit; lane += static_cast<int>(hn::Lanes(d))) {
      const Fit fit = best_half_fit<F>(unit.from(lane));
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
  const SubBlocks from = unit.from(lane);
  const auto d = hn::Load(tag, to.d + lane), e = hn::Load(tag, to.e + lane);
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
      keep_better({s, hn::Zero(tag)}, sums_of<F>(from, scale, hn::Zero(tag)).error, best, error);
    } else {
      auto q = sums_of<F>(from, scale, wanted_offset).q;
      for (int round = 0; round < 2; ++round) {
        const auto min = hn::Div(hn::Sub(hn::Mul(scale, q), from.sum), from.weight);
        const auto m = nearest(clamped(hn::Mul(min, inverse_e), 0, F::kMinHigh));
        const FitSums sums = sums_of<F>(from, scale, hn::Neg(hn::Mul(e, m)));
        keep_better({s, m}, sums.error, best, error);
        q = sums.q;
      }
    }
  }
  const FitSums sums = sums_of<F>(from, hn::Mul(d, best.scale), hn::Neg(hn::Mul(e, best.offset)));
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
// Σ w (x − d s q + e m)², two equations.
template <class F>
void fit_factors(const QuantUnit<F>& unit, int first, int count, SuperFit& fit) {
  double ss = 0, sm = 0, mm = 0, sx = 0, mx = 0;
  for (int i = first; i < first + count; ++i) {
    const double s = fit.s[i], m = fit.m[i];
    ss += s * s * fit.qq[i];
    sm += s * m * fit.q[i];
    mm += m * m * unit.weight[i];
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
void quantize_super_blocks(const float* x, const float* w, uint8_t* y, int64_t n) {
  constexpr int kCount = 256 / F::kSub;  // sub-blocks of a super-block
  const FitTag d;
  QuantUnit<F> unit;
  SuperFit fit;
  for (int64_t done = 0; done < n; done += kUnit * F::kSub) {
    const int count = static_cast<int>(std::min<int64_t>(kUnit, (n - done) / F::kSub));
    if constexpr (F::kIsWeighted) load_weights(w, done, count, kCount, unit);
    const uint32_t bad = load_unit(x + done, count, unit);
    for (int lane = 0; lane < kUnit; lane += static_cast<int>(hn::Lanes(d))) {
      const Fit best = best_fit<F>(unit.from(lane));
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

// Blocks of MXFP4, whose values are sign · 2^(e − 127) · {0, 0.5, 1, 1.5, 2, 3, 4, 6}.
struct Mxfp4Codes : Unweighted {
  static constexpr DType kType = DType::kMXFP4;
  static constexpr int kSub = 32;
  static constexpr float kSmallest = std::numeric_limits<float>::min();
  static constexpr float kLargest = std::numeric_limits<float>::max();
};

// The exponents e that are written: exact (mxfp4_values.h) with values that are finite, 6 · 2^125.
constexpr int kMxfp4Lowest = 2, kMxfp4Highest = 252;

// The nearest of {0, 0.5, 1, 1.5, 2, 3, 4, 6} to v ≥ 0, of two that are as near the one of an even
// code: its steps are 0.5 up to 2, 1 up to 4, then 2.
HWY_INLINE FitVector nearest_mxfp4(FitVector v) {
  const FitTag d;
  const auto below_2 = hn::Lt(v, hn::Set(d, 2.0f)), below_4 = hn::Lt(v, hn::Set(d, 4.0f));
  const auto of_step = [&](float first, float second, float third) HWY_ATTR {
    return hn::IfThenElse(below_2, hn::Set(d, first),
                          hn::IfThenElse(below_4, hn::Set(d, second), hn::Set(d, third)));
  };
  const auto rounded = hn::Mul(nearest(hn::Mul(v, of_step(2, 1, 0.5f))), of_step(0.5f, 1, 2));
  return hn::Min(rounded, hn::Set(d, 6.0f));
}

// 2^(127 − e): what makes numbers of a block's elements.
HWY_INLINE float mxfp4_inverse(int exponent) {
  return std::bit_cast<float>(static_cast<uint32_t>(254 - exponent) << 23);
}

// Sets e of sixteen blocks, and their inverses as the unit's scales: of the exponent at which the
// largest number is from 4 to below 8 (e = ⌊log2 max⌋ − 2 + 127, the rule of OCP's MX formats), the
// next larger one, at which none is cut to 6, and the next smaller one, that of the least
// Σ w (x − value)². Farther away none can err less, but for blocks of some weights.
template <class F>
void choose_exponents(QuantUnit<F>& unit, int* exponents) {
  const FitTag d;
  alignas(64) float least[kUnit], error[kUnit];
  int middle[kUnit];
  for (int block = 0; block < kUnit; ++block) {
    float largest = 0;
    for (int i = 0; i < F::kSub; ++i) {
      largest = std::max(largest, std::abs(unit.x[i * kUnit + block]));
    }
    const auto biased = static_cast<int>(std::bit_cast<uint32_t>(largest) >> 23);
    middle[block] = exponents[block] = std::clamp(biased - 2, kMxfp4Lowest, kMxfp4Highest);
    unit.scale[block] = mxfp4_inverse(middle[block]);
    least[block] = INFINITY;  // which errors of huge weights do not fall below
  }
  for (const int away : {0, 1, -1}) {
    alignas(64) float inverse[kUnit];
    int exponent[kUnit];
    for (int block = 0; block < kUnit; ++block) {
      exponent[block] = std::clamp(middle[block] + away, kMxfp4Lowest, kMxfp4Highest);
      inverse[block] = mxfp4_inverse(exponent[block]);
    }
    for (int lane = 0; lane < kUnit; lane += static_cast<int>(hn::Lanes(d))) {
      auto sum = hn::Zero(d);
      for (int i = 0; i < F::kSub; ++i) {
        const auto x = hn::Abs(hn::Load(d, unit.x + i * kUnit + lane));
        const auto v = hn::Mul(x, hn::Load(d, inverse + lane));
        const auto off = hn::Sub(v, nearest_mxfp4(v));
        const auto weighted = hn::Mul(hn::Load(d, unit.w + i * kUnit + lane), off);
        sum = hn::Add(sum, hn::Mul(weighted, off));
      }
      hn::Store(sum, d, error + lane);
    }
    for (int block = 0; block < kUnit; ++block) {
      const float scaled = std::ldexp(error[block], 2 * (exponent[block] - middle[block]));
      if (scaled >= least[block]) continue;
      least[block] = scaled;
      exponents[block] = exponent[block];
      unit.scale[block] = inverse[block];
    }
  }
}

template <class F>
void quantize_mxfp4(const float* x, const float* w, uint8_t* y, int64_t n) {
  // The code of the number of which the index is twice.
  constexpr uint8_t kCodeOf[] = {0, 1, 2, 3, 4, 0, 5, 0, 6, 0, 0, 0, 7};
  constexpr uint8_t kNegative = 8;
  const FitTag d;
  const hn::RebindToSigned<FitTag> di;
  QuantUnit<F> unit;
  int exponents[kUnit];
  for (int64_t done = 0; done < n; done += kUnit * F::kSub) {
    const int count = static_cast<int>(std::min<int64_t>(kUnit, (n - done) / F::kSub));
    load_weights(w, done, count, 1, unit);
    const uint32_t bad = load_unit(x + done, count, unit);
    choose_exponents(unit, exponents);
    for (int i = 0; i < F::kSub; ++i) {
      alignas(64) int32_t twice[kUnit];
      for (int lane = 0; lane < kUnit; lane += static_cast<int>(hn::Lanes(d))) {
        const auto v = hn::Mul(hn::Abs(hn::Load(d, unit.x + i * kUnit + lane)),
                               hn::Load(d, unit.scale + lane));
        const auto number = nearest_mxfp4(v);
        hn::Store(hn::ConvertTo(di, hn::Add(number, number)), di, twice + lane);
      }
      for (int block = 0; block < kUnit; ++block) {
        const uint8_t code = kCodeOf[twice[block]];
        const bool is_negative = code != 0 && unit.x[i * kUnit + block] < 0;
        unit.codes[block * F::kSub + i] = is_negative ? code | kNegative : code;
      }
    }
    for (int block = 0; block < count; ++block, y += info(F::kType).block_bytes) {
      const bool is_bad = (bad >> block & 1) != 0;
      pack_mxfp4(unit.codes + block * F::kSub, is_bad ? kMxfp4None : exponents[block], y);
    }
  }
}

// Weights of 1 change no bit: where few machines run it, code for none is not worth compiling.
constexpr bool kHasUnweighted = HWY_TARGET != HWY_SSE4 && HWY_TARGET != HWY_EMU128;

template <class F>
void quantize_small(const float* x, const float* w, uint8_t* y, int64_t n) {
  if constexpr (kHasUnweighted) {
    if (w == nullptr) return quantize_blocks_of_32<F>(x, w, y, n);
  }
  quantize_blocks_of_32<Weighted<F>>(x, w, y, n);
}

template <class F>
void quantize_super(const float* x, const float* w, uint8_t* y, int64_t n) {
  if constexpr (kHasUnweighted) {
    if (w == nullptr) return quantize_super_blocks<F>(x, w, y, n);
  }
  quantize_super_blocks<Weighted<F>>(x, w, y, n);
}

void quantize_row_of(DType dtype, const float* x, const float* w, uint8_t* y, int64_t n) {
  switch (dtype) {
    case DType::kQ4_0:
      return quantize_small<Q4_0Codes>(x, w, y, n);
    case DType::kQ4_1:
      return quantize_small<Q4_1Codes>(x, w, y, n);
    case DType::kQ5_0:
      return quantize_small<Q5_0Codes>(x, w, y, n);
    case DType::kQ5_1:
      return quantize_small<Q5_1Codes>(x, w, y, n);
    case DType::kIQ4_NL:
      return quantize_small<IQ4_NLCodes>(x, w, y, n);
    case DType::kQ2_K:
      return quantize_super<Q2_KCodes>(x, w, y, n);
    case DType::kQ3_K:
      return quantize_super<Q3_KCodes>(x, w, y, n);
    case DType::kQ4_K:
      return quantize_super<Q4_KCodes>(x, w, y, n);
    case DType::kQ5_K:
      return quantize_super<Q5_KCodes>(x, w, y, n);
    case DType::kQ6_K:
      return quantize_super<Q6_KCodes>(x, w, y, n);
    case DType::kIQ4_XS:
      return quantize_super<IQ4_XSCodes>(x, w, y, n);
    case DType::kMXFP4:
      return quantize_mxfp4<Weighted<Mxfp4Codes>>(x, w, y, n);
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
    case DType::kQ4_1:
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ2_K:
    case DType::kQ3_K:
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
    case DType::kMXFP4:
      return true;
    default:
      return false;
  }
}

void quantize_blocks(DType dtype, const float* x, void* y, int64_t n, const float* weights) {
  HWY_DYNAMIC_DISPATCH(quantize_row_of)(dtype, x, weights, static_cast<uint8_t*>(y), n);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
