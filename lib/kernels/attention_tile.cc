#include "lib/kernels/attention_tile.h"

#include "lib/base/round_up.h"
#include "lib/kernels/bf16_panels.h"
#include "lib/kernels/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/attention_tile.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/float16-inl.h"
#include "lib/kernels/math-inl.h"
#include "lib/kernels/philox-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

using attention_tile::DropoutPlace;
using attention_tile::Mask;
using attention_tile::SoftmaxState;
using attention_tile::Tile;
using attention_tile::WeightPanels;
using TileFloat = hn::ScalableTag<float>;
using TileVector = hn::Vec<TileFloat>;
inline constexpr int64_t kTileLanes = hn::MaxLanes(TileFloat());

// Which of one vector of columns see the keys of a tile.
class ColumnMask {
 public:
  ColumnMask(const Mask& mask, int64_t column)
      : first_(hn::LoadU(d_, mask.first + column)),
        last_(hn::LoadU(d_, mask.last + column)),
        segments_(mask.key_segments ? hn::LoadU(di_, mask.segments + column) : hn::Zero(di_)),
        key_segments_(mask.key_segments),
        position_(mask.position) {}

  HWY_INLINE hn::Mask<TileFloat> sees(int64_t key) const {
    const auto position = hn::Set(d_, static_cast<float>(position_ + key));
    const auto near = hn::And(hn::Ge(position, first_), hn::Lt(position, last_));
    if (!key_segments_) return near;
    return hn::And(near, hn::RebindMask(d_, hn::Eq(segments_, hn::Set(di_, key_segments_[key]))));
  }

 private:
  TileFloat d_;
  hn::RebindToSigned<TileFloat> di_;
  TileVector first_, last_;
  hn::Vec<hn::RebindToSigned<TileFloat>> segments_;
  const int32_t* key_segments_;
  int64_t position_;
};

void dropout_factors_kernel(const RandomKey& key, const DropoutRule& rule,
                            const DropoutPlace& place, int64_t keys, int64_t width,
                            float* factors) {
  const TileFloat d;
  const auto threshold = hn::Set(d, rule.threshold), scale = hn::Set(d, rule.scale);
  for (int64_t i = 0; i < width; i += kTileLanes) {
    const int64_t column = place.column + i;
    const int64_t groups =
        place.first_group + column / kCounters * place.key_groups + place.position / 4;
    for (int64_t row = 0; row < keys; row += 4) {
      WordVec words[4];
      philox(key, static_cast<uint64_t>((groups + row / 4) * kCounters + column % kCounters),
             words);
      for (int w = 0; w < 4; ++w) {
        hn::StoreU(dropout_factor(words[w], threshold, scale), d, factors + (row + w) * width + i);
      }
    }
  }
}

// x · factor for one vector of columns of a tile with dropout.
HWY_INLINE void apply_factors(const Tile& tile, int64_t column, float* x) {
  const TileFloat d;
  for (int64_t i = column; i < tile.keys * tile.width; i += tile.width) {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::LoadU(d, tile.factors + i)), d, x + i);
  }
}

// Hides from one vector of columns the keys that it does not see.
HWY_INLINE void hide_keys(const Tile& tile, int64_t column, float* score) {
  const TileFloat d;
  const auto hidden = hn::Set(d, -kInf);
  const ColumnMask mask(*tile.mask, column);
  for (int64_t key = 0; key < tile.keys; ++key) {
    float* at = score + key * tile.width;
    hn::StoreU(hn::IfThenElse(mask.sees(key), hn::LoadU(d, at), hidden), d, at);
  }
}

// The largest of `top` and a vector of columns of a tile.
HWY_INLINE TileVector largest_score(const Tile& tile, const float* score, TileVector top) {
  const TileFloat d;
  TileVector tops[4] = {top, top, top, top};
  int64_t key = 0;
  for (; key + 4 <= tile.keys; key += 4, score += 4 * tile.width) {
    for (int64_t j = 0; j < 4; ++j) {
      tops[j] = hn::Max(hn::LoadU(d, score + j * tile.width), tops[j]);
    }
  }
  for (; key < tile.keys; ++key, score += tile.width) {
    tops[0] = hn::Max(hn::LoadU(d, score), tops[0]);
  }
  return hn::Max(hn::Max(tops[0], tops[1]), hn::Max(tops[2], tops[3]));
}

// The reference of one vector of columns, brought up to date, as what is subtracted: a column that
// has seen only −inf must not subtract −inf from it.
HWY_INLINE TileVector raise_reference(const Tile& tile, int64_t column, const float* scores,
                                      const SoftmaxState& state) {
  const TileFloat d;
  const auto before = hn::LoadU(d, state.reference + column);
  const auto top = largest_score(tile, scores + column, before);
  const auto keeps = hn::Le(hn::Sub(top, hn::Set(d, attention_tile::kSlack)), before);
  const auto reference = hn::IfThenElse(keeps, before, top);
  const auto shift = hn::IfThenZeroElse(hn::Eq(reference, hn::Set(d, -kInf)), reference);
  if (hn::AllTrue(d, keeps)) return shift;
  hn::StoreU(reference, d, state.reference + column);
  const auto correction =
      hn::IfThenElse(keeps, hn::Set(d, 1.0f), exp2_nonpositive(d, hn::Sub(before, shift)));
  float* const sum = state.sum + column;
  hn::StoreU(hn::Mul(hn::LoadU(d, sum), correction), d, sum);
  for (int64_t i = 0; i < state.rows; ++i) {
    float* at = state.output + i * tile.width + column;
    hn::StoreU(hn::Mul(hn::LoadU(d, at), correction), d, at);
  }
  return shift;
}

using TileBits = hn::RebindToUnsigned<TileFloat>;

// The bits of x ≥ 0, rounded to bfloat16 (nearest), in the upper halves; anything below. A NaN
// stays one.
HWY_INLINE hn::Vec<TileBits> round_weight(TileVector x) {
  const TileBits d;
  return hn::Add(hn::BitCast(d, x), hn::Set(d, 0x8000u));
}
HWY_INLINE hn::Vec<TileBits> upper_half(hn::Vec<TileBits> bits) {
  return hn::And(bits, hn::Set(TileBits(), 0xFFFF0000u));
}
// Lanes of two numbers, `first` below.
HWY_INLINE void store_pair(hn::Vec<TileBits> first, hn::Vec<TileBits> second, uint16_t* to) {
  const TileBits d;
  hn::StoreU(hn::Or(hn::ShiftRight<16>(first), upper_half(second)), d,
             reinterpret_cast<uint32_t*>(to));
}

// Scores → weights of one vector of columns.
template <bool kFactors>
class ColumnWeights {
 public:
  ColumnWeights(const Tile& tile, int64_t column, TileVector shift, float* scores, float* sum)
      : width_(tile.width),
        keys_(tile.keys),
        shift_(shift),
        scores_(scores + column),
        factors_(kFactors ? tile.factors + column : nullptr),
        sum_(sum + column),
        sums_{hn::LoadU(d_, sum_), hn::Zero(d_)} {}

  void in_place() {
    for (int64_t key = 0; key < keys_; ++key) {
      hn::StoreU(weight<false>(key, sums_[0]), d_, scores_ + key * width_);
    }
    store_sum();
  }

  template <bool kTwoParts>
  void to_panels(uint16_t* high, uint16_t* low) {
    const auto none = hn::Zero(d_);
    int64_t key = 0;
    for (; key + 2 <= keys_; key += 2) {
      const auto even = weight<!kTwoParts>(key, sums_[0]);
      const auto odd = weight<!kTwoParts>(key + 1, sums_[1]);
      store<kTwoParts>(even, odd, high + key * kTileRows, low + key * kTileRows);
    }
    if (key < keys_) {
      const auto last = weight<!kTwoParts>(key, sums_[0]);
      store<kTwoParts>(last, none, high + key * kTileRows, low + key * kTileRows);
      key += 2;
    }
    for (; key < padded_depth(keys_); key += 2) {
      store<kTwoParts>(none, none, high + key * kTileRows, low + key * kTileRows);
    }
    store_sum();
  }

 private:
  template <bool kCoarse>
  HWY_INLINE TileVector weight(int64_t key, TileVector& sum) const {
    const auto x = hn::Sub(hn::LoadU(d_, scores_ + key * width_), shift_);
    const auto weight = kCoarse ? exp2_coarse(d_, x) : exp2_nonpositive(d_, x);
    sum = hn::Add(sum, weight);
    if constexpr (kFactors) return hn::Mul(weight, hn::LoadU(d_, factors_ + key * width_));
    return weight;
  }

  template <bool kTwoParts>
  HWY_INLINE void store(TileVector even, TileVector odd, uint16_t* high, uint16_t* low) const {
    const auto high0 = round_weight(even), high1 = round_weight(odd);
    store_pair(high0, high1, high);
    if constexpr (kTwoParts) {
      const auto rest0 = hn::Sub(even, hn::BitCast(d_, upper_half(high0)));
      const auto rest1 = hn::Sub(odd, hn::BitCast(d_, upper_half(high1)));
      store_pair(round_weight(rest0), round_weight(rest1), low);
    }
  }

  void store_sum() { hn::StoreU(hn::Add(sums_[0], sums_[1]), d_, sum_); }

  TileFloat d_;
  int64_t width_, keys_;
  TileVector shift_;
  float* scores_;
  const float* factors_;
  float* sum_;
  TileVector sums_[2];
};

template <bool kFactors>
void softmax_columns_of(const Tile& tile, float* scores, const SoftmaxState& state,
                        const WeightPanels& panels) {
  for (int64_t column = 0; column < tile.width; column += kTileLanes) {
    if (tile.mask) hide_keys(tile, column, scores + column);
    const auto shift = raise_reference(tile, column, scores, state);
    ColumnWeights<kFactors> weights(tile, column, shift, scores, state.sum);
    const int64_t first = column / kTileRows * panels.pitch + column % kTileRows * 2;
    if (!panels.high) {
      weights.in_place();
    } else if (panels.low) {
      weights.template to_panels<true>(panels.high + first, panels.low + first);
    } else {
      weights.template to_panels<false>(panels.high + first, panels.high + first);
    }
  }
}

void softmax_kernel(const Tile& tile, float* scores, const SoftmaxState& state,
                    const WeightPanels& panels) {
  if (tile.factors) return softmax_columns_of<true>(tile, scores, state, panels);
  softmax_columns_of<false>(tile, scores, state, panels);
}

void softmax_grad_kernel(const Tile& tile, float* scores, float* dp, const float* log_sum,
                         const float* delta) {
  const TileFloat d;
  for (int64_t column = 0; column < tile.width; column += kTileLanes) {
    const auto shift = hn::LoadU(d, log_sum + column), minus = hn::LoadU(d, delta + column);
    if (tile.factors) apply_factors(tile, column, dp);
    for (int64_t key = 0; key < tile.keys; ++key) {
      float* at = scores + key * tile.width + column;
      float* gradient = dp + key * tile.width + column;
      // p may exceed 1 by rounding: the argument may exceed 0 a little.
      const auto p = exp2_nonpositive(d, hn::Sub(hn::LoadU(d, at), shift));
      hn::StoreU(p, d, at);
      hn::StoreU(hn::Mul(p, hn::Sub(hn::LoadU(d, gradient), minus)), d, gradient);
    }
    if (tile.factors) apply_factors(tile, column, scores);
    if (!tile.mask) continue;
    const ColumnMask mask(*tile.mask, column);
    for (int64_t key = 0; key < tile.keys; ++key) {
      const auto sees = mask.sees(key);
      for (float* x : {scores, dp}) {
        float* at = x + key * tile.width + column;
        hn::StoreU(hn::IfThenElseZero(sees, hn::LoadU(d, at)), d, at);
      }
    }
  }
}

template <class T>
void copy_rows_of(const T* x, int64_t x_stride, int64_t rows, int64_t dim, float factor, float* to,
                  int64_t to_stride) {
  const TileFloat d;
  const auto by = hn::Set(d, factor);
  for (int64_t row = 0; row < rows; ++row, x += x_stride, to += to_stride) {
    int64_t i = 0;
    for (; i + kTileLanes <= dim; i += kTileLanes) {
      hn::StoreU(hn::Mul(load_numbers(d, x + i), by), d, to + i);
    }
    for (; i < dim; ++i) to[i] = factor * number(x[i]);
  }
}

void copy_rows_kernel(const float* x, int64_t x_stride, int64_t rows, int64_t dim, float factor,
                      float* to, int64_t to_stride) {
  copy_rows_of(x, x_stride, rows, dim, factor, to, to_stride);
}
void widen_rows_kernel(const uint16_t* x, int64_t x_stride, int64_t rows, int64_t dim, float factor,
                       float* to, int64_t to_stride) {
  copy_rows_of(x, x_stride, rows, dim, factor, to, to_stride);
}

void scale_columns_kernel(float* x, int64_t rows, int64_t width, const float* factors) {
  const TileFloat d;
  for (int64_t row = 0; row < rows; ++row, x += width) {
    for (int64_t c = 0; c < width; c += kTileLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, x + c), hn::LoadU(d, factors + c)), d, x + c);
    }
  }
}

float attention_dot_kernel(const float* a, const float* b, int64_t dim) {
  const TileFloat d;
  auto even = hn::Zero(d), odd = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * kTileLanes <= dim; i += 2 * kTileLanes) {
    even = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), even);
    odd = hn::MulAdd(hn::LoadU(d, a + i + kTileLanes), hn::LoadU(d, b + i + kTileLanes), odd);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
  for (; i < dim; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
HWY_EXPORT(dropout_factors_kernel);
HWY_EXPORT(softmax_kernel);
HWY_EXPORT(softmax_grad_kernel);
HWY_EXPORT(copy_rows_kernel);
HWY_EXPORT(widen_rows_kernel);
HWY_EXPORT(scale_columns_kernel);
HWY_EXPORT(attention_dot_kernel);

namespace attention_tile {

void dropout_factors(const RandomKey& key, const DropoutRule& rule, const DropoutPlace& place,
                     int64_t keys, int64_t width, float* factors) {
  HWY_DYNAMIC_DISPATCH(dropout_factors_kernel)(key, rule, place, keys, width, factors);
}
void softmax(const Tile& tile, float* scores, const SoftmaxState& state,
             const WeightPanels& panels) {
  HWY_DYNAMIC_DISPATCH(softmax_kernel)(tile, scores, state, panels);
}
void softmax_grad(const Tile& tile, float* scores, float* dp, const float* log_sum,
                  const float* delta) {
  HWY_DYNAMIC_DISPATCH(softmax_grad_kernel)(tile, scores, dp, log_sum, delta);
}

void copy_rows(const float* x, int64_t x_stride, int64_t rows, int64_t dim, float factor, float* to,
               int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(copy_rows_kernel)(x, x_stride, rows, dim, factor, to, to_stride);
}
void widen_rows(const uint16_t* x, int64_t x_stride, int64_t rows, int64_t dim, float factor,
                float* to, int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(widen_rows_kernel)(x, x_stride, rows, dim, factor, to, to_stride);
}
void scale_columns(float* x, int64_t rows, int64_t width, const float* factors) {
  HWY_DYNAMIC_DISPATCH(scale_columns_kernel)(x, rows, width, factors);
}

float dot(const float* a, const float* b, int64_t dim) {
  return HWY_DYNAMIC_DISPATCH(attention_dot_kernel)(a, b, dim);
}

}  // namespace attention_tile
}  // namespace lumen::kernels
#endif  // HWY_ONCE
