// The element-wise part of attention for training, and for prompts on the matrix unit, on tiles of
// scores [keys, width]: a column per query, a row per key, as matrix products leave and take them
// (attention_products.h). Scores are in units of ln 2. Private to this room.
#pragma once

#include <cstdint>

#include "lib/kernels/random_fill.h"

namespace lumen::kernels::attention_tile {

// Which keys a column sees: those at positions in [first, last) of its own segment.
struct Mask {
  int64_t position;             // of the tile's first key
  const float* first;           // per column, as exact floats (positions < 2^24)
  const float* last;            // per column
  const int32_t* key_segments;  // per key of the tile; null: no segments
  const int32_t* segments;      // per column
  int64_t clear = 0;            // keys, the tile's first, that every column sees; even
};

// A tile of `keys` rows of `width` numbers, a multiple of a vector. `mask` is null where every
// column sees every key. `factors` [keys, width] are those of dropout, null without. What the tile
// holds is `scale` times too small to be scores. Capped scores (soft_cap.h) keep what their
// gradients are multiplied by, 1 − (score / cap)².
struct Tile {
  int64_t keys, width;
  const Mask* mask;
  const float* factors;
  float scale = 1;
  float inverse_cap = 0;  // 1 / cap, of softmax_grad; 0: none
};

// Where the random numbers of a tile stand: of groups of 64 elements (random_fill.h), each four
// keys by sixteen columns, there is a row of `key_groups` for every sixteen columns.
struct DropoutPlace {
  int64_t first_group;  // of column 0 and position 0
  int64_t key_groups;
  int64_t column, position;  // the tile's first; multiples of its width and of 4
};

// The factors of dropout for `keys` keys, up to the next multiple of 4.
void dropout_factors(const RandomKey& key, const DropoutRule& rule, const DropoutPlace& place,
                     int64_t keys, int64_t width, float* factors);

// Of a strip of columns.
struct SoftmaxState {
  float* reference;  // per column: what scores are taken relative to; −inf before any is seen
  float* sum;        // per column: Σ 2^(score − reference)
  float* output;     // [rows, width]: the values weighted likewise
  int64_t rows;
};

// Where weights and their gradients go for products on tiles, instead of staying in the tile: to
// panels of sixteen, `pitch` numbers apart.
struct Panels {
  uint16_t* high = nullptr;  // null: they stay in the tile
  uint16_t* low = nullptr;   // null: they are rounded to bfloat16
  int64_t pitch = 0;
};

// Online softmax (Milakov & Gimelshein 2018): scores → 2^(score − reference) · factor, 0 for hidden
// keys; the sum, which has no factors, grows by 2^(score − reference). The reference becomes the
// largest score of a column, with sum and output scaled to it, only where that exceeds it by more
// than kSlack: 2^kSlack is far from what float32 cannot hold, and few tiles are left that scale the
// output. Panels are of columns (PanelOrder::kPairs): pairs of keys one behind the other, zeros up
// to a whole number of kTileDepth keys; the tile is left as anything then.
inline constexpr float kSlack = 8;
void softmax(const Tile& tile, float* scores, const SoftmaxState& state, const Panels& panels);

// Per column: lse = ln Σ e^score in natural units, −inf where nothing was seen; sum → 1 / sum or 0.
void finish_softmax(const SoftmaxState& state, int64_t width, float* lse);

// Of a strip of columns.
struct SoftmaxGradState {
  const float* log_sum;  // per column, in units of ln 2
  const float* delta;    // per column, `scale` times
  float scale;           // of the gradients
};

// Where the results of softmax_grad are multiplied: columns as of softmax, and panels of keys, from
// the tile's first column on (PanelOrder::kRows, width = kTileDepth), zeros for the keys up to
// `rows`.
struct GradPanels {
  Panels dscores, weights_left, dscores_left;
  int64_t rows;
};

// With p = 2^(score − log_sum): scores → p · factor, dp → p · (scale · dp · factor − delta), both 0
// for hidden keys; or, where there are panels, there.
void softmax_grad(const Tile& tile, float* scores, float* dp, const SoftmaxGradState& state,
                  const GradPanels& panels);

// to[i] = factor · x[i] for `rows` rows of `dim` numbers, so many numbers apart.
void copy_rows(const float* x, int64_t x_stride, int64_t rows, int64_t dim, float factor, float* to,
               int64_t to_stride);

// x[i][c] *= factors[c] for `rows` rows of `width` numbers.
void scale_columns(float* x, int64_t rows, int64_t width, const float* factors);

// dots[row] = Σ_i x[row][i] · y[row][i] for `rows` rows of `dim` numbers, so many numbers apart, y
// in float32 or bfloat16.
void dot_rows(const float* x, int64_t x_stride, const float* y, int64_t y_stride, int64_t rows,
              int64_t dim, float* dots);
void dot_rows(const float* x, int64_t x_stride, const uint16_t* y, int64_t y_stride, int64_t rows,
              int64_t dim, float* dots);

}  // namespace lumen::kernels::attention_tile
