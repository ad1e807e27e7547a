#include "lib/kernels/attention/attention_tile.h"

#include <algorithm>

#include "lib/base/round_up.h"
#include "lib/kernels/simd/targets-inl.h"
#include "lib/kernels/tiles/bf16_panels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/attention/attention_tile.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/float16-inl.h"
#include "lib/kernels/simd/math-inl.h"
#include "lib/kernels/simd/philox-inl.h"
#include "lib/kernels/tiles/bf16_parts-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

inline constexpr float kLn2 = 0.693147180560f;

using attention_tile::DropoutPlace;
using attention_tile::GradPanels;
using attention_tile::Mask;
using attention_tile::Panels;
using attention_tile::SoftmaxGradState;
using attention_tile::SoftmaxState;
using attention_tile::Tile;
using TileFloat = PartsFloat;
using TileVector = hn::Vec<TileFloat>;
inline constexpr int64_t kTileLanes = hn::MaxLanes(TileFloat());

// Which of one vector of columns see the keys of a tile; without a mask not to be asked.
class ColumnMask {
 public:
  ColumnMask(const Mask* mask, int64_t column)
      : first_(mask ? hn::LoadU(d_, mask->first + column) : hn::Zero(d_)),
        last_(mask ? hn::LoadU(d_, mask->last + column) : hn::Zero(d_)),
        segments_(mask && mask->key_segments ? hn::LoadU(di_, mask->segments + column)
                                             : hn::Zero(di_)),
        key_segments_(mask ? mask->key_segments : nullptr),
        position_(mask ? mask->position : 0) {}

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

// Hides from one vector of columns the keys that it does not see. Returns the factor that scores
// lack then: one that keeps their order.
HWY_INLINE float prepare_scores(const Tile& tile, int64_t column, float* score) {
  const TileFloat d;
  const bool keeps_order = tile.scale > 0;
  if (!keeps_order) {
    for (float* at = score; at != score + tile.keys * tile.width; at += tile.width) {
      hn::StoreU(hn::Mul(hn::LoadU(d, at), hn::Set(d, tile.scale)), d, at);
    }
  }
  if (tile.mask) {
    const auto hidden = hn::Set(d, -kInf);
    const ColumnMask mask(tile.mask, column);
    for (int64_t key = tile.mask->clear; key < tile.keys; ++key) {
      float* at = score + key * tile.width;
      hn::StoreU(hn::IfThenElse(mask.sees(key), hn::LoadU(d, at), hidden), d, at);
    }
  }
  return keeps_order ? tile.scale : 1;
}

// The largest of a vector of columns of a tile.
HWY_INLINE TileVector largest_score(const Tile& tile, const float* score) {
  const TileFloat d;
  const auto least = hn::Set(d, -kInf);
  TileVector tops[4] = {least, least, least, least};
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
                                      float scale, const SoftmaxState& state) {
  const TileFloat d;
  const auto before = hn::LoadU(d, state.reference + column);
  const auto largest = hn::Mul(largest_score(tile, scores + column), hn::Set(d, scale));
  const auto top = hn::Max(largest, before);
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

// Scores → weights of one vector of columns.
template <bool kFactors>
class ColumnWeights {
 public:
  ColumnWeights(const Tile& tile, int64_t column, float scale, TileVector shift, float* scores,
                float* sum)
      : width_(tile.width),
        keys_(tile.keys),
        scale_(hn::Set(d_, scale)),
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
      store_pair_of<kTwoParts>(even, odd, high, low, key * kTileRows);
    }
    if (key < keys_) {
      const auto last = weight<!kTwoParts>(key, sums_[0]);
      store_pair_of<kTwoParts>(last, none, high, low, key * kTileRows);
      key += 2;
    }
    for (; key < padded_depth(keys_); key += 2) {
      store_pair_of<kTwoParts>(none, none, high, low, key * kTileRows);
    }
    store_sum();
  }

 private:
  template <bool kCoarse>
  HWY_INLINE TileVector weight(int64_t key, TileVector& sum) const {
    const auto x = hn::MulSub(hn::LoadU(d_, scores_ + key * width_), scale_, shift_);
    const auto weight = kCoarse ? exp2_coarse(d_, x) : exp2_nonpositive(d_, x);
    sum = hn::Add(sum, weight);
    if constexpr (kFactors) return hn::Mul(weight, hn::LoadU(d_, factors_ + key * width_));
    return weight;
  }

  void store_sum() { hn::StoreU(hn::Add(sums_[0], sums_[1]), d_, sum_); }

  TileFloat d_;
  int64_t width_, keys_;
  TileVector scale_, shift_;
  float* scores_;
  const float* factors_;
  float* sum_;
  TileVector sums_[2];
};

template <bool kFactors>
void softmax_columns_of(const Tile& tile, float* scores, const SoftmaxState& state,
                        const Panels& panels) {
  for (int64_t column = 0; column < tile.width; column += kTileLanes) {
    const float scale = prepare_scores(tile, column, scores + column);
    const auto shift = raise_reference(tile, column, scores, scale, state);
    ColumnWeights<kFactors> weights(tile, column, scale, shift, scores, state.sum);
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
                    const Panels& panels) {
  if (tile.factors) return softmax_columns_of<true>(tile, scores, state, panels);
  softmax_columns_of<false>(tile, scores, state, panels);
}

void finish_softmax_kernel(const SoftmaxState& state, int64_t width, float* lse) {
  const TileFloat d;
  for (int64_t column = 0; column < width; column += kTileLanes) {
    const auto reference = hn::LoadU(d, state.reference + column);
    const auto sum = hn::LoadU(d, state.sum + column);
    const auto all = hn::MulAdd(reference, hn::Set(d, kLn2), log_vector(d, sum));
    const auto none = hn::Set(d, -kInf);
    hn::StoreU(hn::IfThenElse(hn::Eq(reference, none), none, all), d, lse + column);
    const auto inverse = hn::Div(hn::Set(d, 1.0f), sum);
    hn::StoreU(hn::IfThenZeroElse(hn::Eq(sum, hn::Zero(d)), inverse), d, state.sum + column);
  }
}

// Scores and gradients of weights → weights and gradients of scores of one vector of columns.
template <bool kCoarse, bool kCapped>
class ColumnGradients {
 public:
  ColumnGradients(const Tile& tile, int64_t column, const float* scores, const float* dp,
                  const SoftmaxGradState& state)
      : mask_(tile.mask, column),
        width_(tile.width),
        scores_(scores + column),
        dp_(dp + column),
        factors_(tile.factors ? tile.factors + column : nullptr),
        log_sum_(hn::LoadU(d_, state.log_sum + column)),
        delta_(hn::LoadU(d_, state.delta + column)),
        score_scale_(hn::Set(d_, tile.scale)),
        inverse_cap_(hn::Set(d_, tile.inverse_cap)),
        scale_(hn::Set(d_, state.scale)) {}

  template <bool kMasked>
  HWY_INLINE void compute(int64_t key, TileVector& weight, TileVector& dscore) const {
    const int64_t at = key * width_;
    const auto score = hn::LoadU(d_, scores_ + at);
    const auto x = hn::MulSub(score, score_scale_, log_sum_);
    // p may exceed 1 by rounding: the argument may exceed 0 a little.
    weight = kCoarse ? exp2_coarse(d_, x) : exp2_nonpositive(d_, x);
    auto gradient = hn::LoadU(d_, dp_ + at);
    if (factors_) gradient = hn::Mul(gradient, hn::LoadU(d_, factors_ + at));
    dscore = hn::Mul(weight, hn::MulSub(gradient, scale_, delta_));
    if constexpr (kCapped) {
      const auto part = hn::Mul(score, inverse_cap_);
      dscore = hn::Mul(dscore, hn::NegMulAdd(part, part, hn::Set(d_, 1.0f)));
    }
    if (factors_) weight = hn::Mul(weight, hn::LoadU(d_, factors_ + at));
    if constexpr (kMasked) {
      const auto sees = mask_.sees(key);
      weight = hn::IfThenElseZero(sees, weight);
      dscore = hn::IfThenElseZero(sees, dscore);
    }
  }

 private:
  TileFloat d_;
  ColumnMask mask_;
  int64_t width_;
  const float *scores_, *dp_, *factors_;
  TileVector log_sum_, delta_, score_scale_, inverse_cap_, scale_;
};

// Two vectors of columns of a tile to panels.
template <bool kTwoParts, bool kCapped>
class GradientWriter {
 public:
  GradientWriter(const Tile& tile, int64_t column, const float* scores, const float* dp,
                 const SoftmaxGradState& state, const GradPanels& panels)
      : first_(tile, column, scores, dp, state),
        second_(tile, column + kTileLanes, scores, dp, state),
        panels_(panels),
        column_(column),
        right_{right_of(column), right_of(column + kTileLanes)} {}

  // Keys [begin, end), begin even.
  template <bool kMasked>
  void write(int64_t begin, int64_t end) const {
    for (int64_t key = begin; key < end; key += 2) {
      TileVector weight[2], dscore[2][2];
      first_.template compute<kMasked>(key, weight[0], dscore[0][0]);
      second_.template compute<kMasked>(key, weight[1], dscore[0][1]);
      store_left(panels_.weights_left, key, weight);
      store_left(panels_.dscores_left, key, dscore[0]);
      if (key + 1 < end) {
        first_.template compute<kMasked>(key + 1, weight[0], dscore[1][0]);
        second_.template compute<kMasked>(key + 1, weight[1], dscore[1][1]);
        store_left(panels_.weights_left, key + 1, weight);
        store_left(panels_.dscores_left, key + 1, dscore[1]);
      } else {
        dscore[1][0] = dscore[1][1] = hn::Zero(d_);
      }
      store_right(key, dscore);
    }
  }

  // Zeros behind `keys` keys.
  void finish(int64_t keys) const {
    const TileVector none[2] = {hn::Zero(d_), hn::Zero(d_)};
    const TileVector pairs[2][2] = {{none[0], none[0]}, {none[0], none[0]}};
    for (int64_t key = keys + keys % 2; key < padded_depth(keys); key += 2) store_right(key, pairs);
    for (int64_t key = keys; key < panels_.rows; ++key) {
      store_left(panels_.weights_left, key, none);
      store_left(panels_.dscores_left, key, none);
    }
  }

 private:
  int64_t right_of(int64_t column) const {
    return column / kTileRows * panels_.dscores.pitch + column % kTileRows * 2;
  }

  HWY_INLINE void store_left(const Panels& to, int64_t key, const TileVector (&x)[2]) const {
    const int64_t at = key / kTileRows * to.pitch + key % kTileRows * kTileDepth + column_;
    store_row_of<kTwoParts>(x[0], x[1], to.high, to.low, at);
  }

  HWY_INLINE void store_right(int64_t key, const TileVector (&x)[2][2]) const {
    for (int j = 0; j < 2; ++j) {
      const int64_t at = right_[j] + key * kTileRows;
      store_pair_of<kTwoParts>(x[0][j], x[1][j], panels_.dscores.high, panels_.dscores.low, at);
    }
  }

  TileFloat d_;
  ColumnGradients<!kTwoParts, kCapped> first_, second_;
  const GradPanels& panels_;
  int64_t column_;
  int64_t right_[2];
};

template <bool kTwoParts, bool kCapped>
void softmax_grad_to_panels(const Tile& tile, const float* scores, const float* dp,
                            const SoftmaxGradState& state, const GradPanels& panels) {
  const int64_t clear = tile.mask ? std::min(tile.mask->clear, tile.keys) : tile.keys;
  for (int64_t column = 0; column < tile.width; column += 2 * kTileLanes) {
    const GradientWriter<kTwoParts, kCapped> writer(tile, column, scores, dp, state, panels);
    writer.template write<false>(0, clear);
    if (tile.mask) writer.template write<true>(clear, tile.keys);
    writer.finish(tile.keys);
  }
}

template <bool kCapped>
void softmax_grad_in_place(const Tile& tile, float* scores, float* dp,
                           const SoftmaxGradState& state) {
  const TileFloat d;
  for (int64_t column = 0; column < tile.width; column += kTileLanes) {
    const ColumnGradients<false, kCapped> gradients(tile, column, scores, dp, state);
    for (int64_t key = 0; key < tile.keys; ++key) {
      TileVector weight, dscore;
      if (tile.mask) {
        gradients.template compute<true>(key, weight, dscore);
      } else {
        gradients.template compute<false>(key, weight, dscore);
      }
      hn::StoreU(weight, d, scores + key * tile.width + column);
      hn::StoreU(dscore, d, dp + key * tile.width + column);
    }
  }
}

template <bool kCapped>
void softmax_grad_of(const Tile& tile, float* scores, float* dp, const SoftmaxGradState& state,
                     const GradPanels& panels) {
  if (panels.dscores.low) {
    softmax_grad_to_panels<true, kCapped>(tile, scores, dp, state, panels);
  } else if (panels.dscores.high) {
    softmax_grad_to_panels<false, kCapped>(tile, scores, dp, state, panels);
  } else {
    softmax_grad_in_place<kCapped>(tile, scores, dp, state);
  }
}

void softmax_grad_kernel(const Tile& tile, float* scores, float* dp, const SoftmaxGradState& state,
                         const GradPanels& panels) {
  if (tile.inverse_cap != 0) return softmax_grad_of<true>(tile, scores, dp, state, panels);
  softmax_grad_of<false>(tile, scores, dp, state, panels);
}

void copy_rows_kernel(const float* x, int64_t x_stride, int64_t rows, int64_t dim, float factor,
                      float* to, int64_t to_stride) {
  const TileFloat d;
  const auto by = hn::Set(d, factor);
  for (int64_t row = 0; row < rows; ++row, x += x_stride, to += to_stride) {
    int64_t i = 0;
    for (; i + kTileLanes <= dim; i += kTileLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, x + i), by), d, to + i);
    }
    for (; i < dim; ++i) to[i] = factor * x[i];
  }
}

void scale_columns_kernel(float* x, int64_t rows, int64_t width, const float* factors) {
  const TileFloat d;
  for (int64_t row = 0; row < rows; ++row, x += width) {
    for (int64_t c = 0; c < width; c += kTileLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, x + c), hn::LoadU(d, factors + c)), d, x + c);
    }
  }
}

template <class T>
void dot_rows_of(const float* x, int64_t x_stride, const T* y, int64_t y_stride, int64_t rows,
                 int64_t dim, float* dots) {
  const TileFloat d;
  for (int64_t row = 0; row < rows; ++row, x += x_stride, y += y_stride) {
    auto even = hn::Zero(d), odd = hn::Zero(d);
    int64_t i = 0;
    for (; i + 2 * kTileLanes <= dim; i += 2 * kTileLanes) {
      even = hn::MulAdd(hn::LoadU(d, x + i), load_numbers(d, y + i), even);
      odd = hn::MulAdd(hn::LoadU(d, x + i + kTileLanes), load_numbers(d, y + i + kTileLanes), odd);
    }
    float dot = hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
    for (; i < dim; ++i) dot += x[i] * number(y[i]);
    dots[row] = dot;
  }
}

void dot_float_rows_kernel(const float* x, int64_t x_stride, const float* y, int64_t y_stride,
                           int64_t rows, int64_t dim, float* dots) {
  dot_rows_of(x, x_stride, y, y_stride, rows, dim, dots);
}
void dot_bf16_rows_kernel(const float* x, int64_t x_stride, const uint16_t* y, int64_t y_stride,
                          int64_t rows, int64_t dim, float* dots) {
  dot_rows_of(x, x_stride, y, y_stride, rows, dim, dots);
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
HWY_EXPORT(dropout_factors_kernel);
HWY_EXPORT(softmax_kernel);
HWY_EXPORT(finish_softmax_kernel);
HWY_EXPORT(softmax_grad_kernel);
HWY_EXPORT(copy_rows_kernel);
HWY_EXPORT(scale_columns_kernel);
HWY_EXPORT(dot_float_rows_kernel);
HWY_EXPORT(dot_bf16_rows_kernel);

namespace attention_tile {

void dropout_factors(const RandomKey& key, const DropoutRule& rule, const DropoutPlace& place,
                     int64_t keys, int64_t width, float* factors) {
  HWY_DYNAMIC_DISPATCH(dropout_factors_kernel)(key, rule, place, keys, width, factors);
}
void softmax(const Tile& tile, float* scores, const SoftmaxState& state, const Panels& panels) {
  HWY_DYNAMIC_DISPATCH(softmax_kernel)(tile, scores, state, panels);
}
void finish_softmax(const SoftmaxState& state, int64_t width, float* lse) {
  HWY_DYNAMIC_DISPATCH(finish_softmax_kernel)(state, width, lse);
}
void softmax_grad(const Tile& tile, float* scores, float* dp, const SoftmaxGradState& state,
                  const GradPanels& panels) {
  HWY_DYNAMIC_DISPATCH(softmax_grad_kernel)(tile, scores, dp, state, panels);
}

void copy_rows(const float* x, int64_t x_stride, int64_t rows, int64_t dim, float factor, float* to,
               int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(copy_rows_kernel)(x, x_stride, rows, dim, factor, to, to_stride);
}
void scale_columns(float* x, int64_t rows, int64_t width, const float* factors) {
  HWY_DYNAMIC_DISPATCH(scale_columns_kernel)(x, rows, width, factors);
}

void dot_rows(const float* x, int64_t x_stride, const float* y, int64_t y_stride, int64_t rows,
              int64_t dim, float* dots) {
  HWY_DYNAMIC_DISPATCH(dot_float_rows_kernel)(x, x_stride, y, y_stride, rows, dim, dots);
}
void dot_rows(const float* x, int64_t x_stride, const uint16_t* y, int64_t y_stride, int64_t rows,
              int64_t dim, float* dots) {
  HWY_DYNAMIC_DISPATCH(dot_bf16_rows_kernel)(x, x_stride, y, y_stride, rows, dim, dots);
}

}  // namespace attention_tile
}  // namespace lumen::kernels
#endif  // HWY_ONCE
