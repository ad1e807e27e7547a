#include "lib/kernels/attention_tile.h"

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
using attention_tile::Tile;
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

void softmax_kernel(const Tile& tile, float* scores, float* maximum, float* sum, float* output,
                    int64_t rows) {
  const TileFloat d;
  const auto hidden = hn::Set(d, -kInf);
  for (int64_t column = 0; column < tile.width; column += kTileLanes) {
    float* score = scores + column;
    if (tile.mask) {
      const ColumnMask mask(*tile.mask, column);
      for (int64_t key = 0; key < tile.keys; ++key) {
        float* at = score + key * tile.width;
        hn::StoreU(hn::IfThenElse(mask.sees(key), hn::LoadU(d, at), hidden), d, at);
      }
    }
    const auto before = hn::LoadU(d, maximum + column);
    auto top0 = before, top1 = before;
    int64_t key = 0;
    for (; key + 2 <= tile.keys; key += 2) {
      top0 = hn::Max(hn::LoadU(d, score + key * tile.width), top0);
      top1 = hn::Max(hn::LoadU(d, score + (key + 1) * tile.width), top1);
    }
    if (key < tile.keys) top0 = hn::Max(hn::LoadU(d, score + key * tile.width), top0);
    const auto top = hn::Max(top0, top1);
    // A column that has seen only −inf must not subtract −inf from it.
    const auto shift = hn::IfThenZeroElse(hn::Eq(top, hidden), top);
    auto total = hn::Zero(d);
    for (key = 0; key < tile.keys; ++key) {
      float* at = score + key * tile.width;
      const auto e = exp2_nonpositive(d, hn::Sub(hn::LoadU(d, at), shift));
      hn::StoreU(e, d, at);
      total = hn::Add(total, e);
    }
    if (tile.factors) apply_factors(tile, column, scores);
    const auto correction = exp2_nonpositive(d, hn::Sub(before, shift));
    hn::StoreU(hn::MulAdd(hn::LoadU(d, sum + column), correction, total), d, sum + column);
    hn::StoreU(top, d, maximum + column);
    for (int64_t i = 0; i < rows; ++i) {
      float* at = output + i * tile.width + column;
      hn::StoreU(hn::Mul(hn::LoadU(d, at), correction), d, at);
    }
  }
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
void softmax(const Tile& tile, float* scores, float* maximum, float* sum, float* output,
             int64_t rows) {
  HWY_DYNAMIC_DISPATCH(softmax_kernel)(tile, scores, maximum, sum, output, rows);
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
