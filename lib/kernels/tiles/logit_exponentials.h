// What tiled_cross_entropy makes of the logits that it computes, a piece at a time. Private to this
// room.
#pragma once

#include <cstdint>

#include "lib/kernels/tiles/amx.h"
#include "lib/kernels/tiles/bf16_panels.h"

namespace lumen::kernels {

// Logits are [classes][kLogitRows]: a column per row of the hidden states.
inline constexpr int64_t kLogitRows = 2 * kTileRows;

// A reference that makes zeros of finite logits; its negative is a logit that becomes zero.
inline constexpr float kBeyondLogits = 0x1p126f;

// Where the exponentials of a block of logits go, classes a multiple of kLogitRows: to panels whose
// depth the classes are (B), and whose depth the rows of hidden states are (A). Those that are not
// wanted are null.
struct ExponentialPanels {
  Bf16Panel pairs;
  int64_t pairs_pitch;
  Bf16Panel rows;
  int64_t rows_pitch;
  int64_t classes;
  bool two_parts;
  float inverse_cap;  // 1 / cap of capped logits; 0: none

  int64_t place_in_pairs(int64_t c, int64_t row) const {
    return row / kTileRows * pairs_pitch + c / 2 * 2 * kTileRows + row % kTileRows * 2 + c % 2;
  }
  int64_t place_in_rows(int64_t c, int64_t row) const {
    return c / kTileRows * rows_pitch + c % kTileRows * kTileDepth + row;
  }
};

// x = exp(min(logit − reference, 80)) of `classes` classes, then zeros up to to.classes, and
// sum[row] = Σ x. With a cap what goes to the panels is x · (1 − (logit / cap)²), x times the slope
// of the cap, 0 for logits beyond it. `reference` and `sum` are [kLogitRows]; logits are 64-byte
// aligned. Relative errors are 2.6e-6, with two parts 2 ulp. noexcept.
void write_exponentials(const float* logits, int64_t classes, const float* reference,
                        const ExponentialPanels& to, float* sum);

// Σ x[i] · y[i] for i in [0, n). noexcept.
float dot(const float* x, const float* y, int64_t n);

// y[i] = (add ? y[i] : 0) + factor · x[i] for i in [0, n). noexcept.
void add_multiple(const float* x, float factor, int64_t n, bool add, float* y);

// x[i][j] *= scale[j] for i in [0, rows), j in [0, kLogitRows); x is 64-byte aligned. noexcept.
void scale_columns(const float* scale, int64_t rows, float* x);

}  // namespace lumen::kernels
