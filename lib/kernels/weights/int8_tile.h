// The inner part of the int8 product: some rows of x with 32 rows of weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/kernels/weights/code_panel.h"

namespace lumen::kernels {

inline constexpr int64_t kInt8TileCols = 2 * kPanelRows;
inline constexpr int kMaxStripRows = 6;

// A strip of R rows of x rounded to int8 per 32 columns (quantize_rows.h), in the order in which a
// tile reads it. Per 32 columns:
//
//   blocks: int8 codes[R][32]; float scale[R]; float sum[R]; int32 owed[R]
//   halves: float sum[2][R]; int32 owed[2][R], for weights with a scale per 16 columns
//
// where sum = scale · Σ codes and owed = −128 · Σ codes: what to add to a product with weights to
// whose codes 128 was added.
struct CodeStrip {
  std::byte* blocks;
  std::byte* halves;
  int64_t rows;  // 1 … kMaxStripRows; with few rows of x 1, 2, 4, 8 or 16 (StripRows)
};
inline constexpr int64_t kStripBlockBytes = 44, kStripHalfBytes = 16;  // per row and 32 columns

// What is added to the codes of a type without a min: as little as makes them unsigned, except to
// those of eight bits; 128; or nothing, so that they keep their sign.
enum class Added { kOffset, k128, kNothing };

// What the SIMD target in use wants.
struct Int8Tile {
  int strip_rows;  // at most, and best
  Added added;
};
Int8Tile int8_tile();
Int8Tile portable_int8_tile();  // without native kernels

// What is to be added to the codes of a type in panels for this tile. Where pairs of products are
// summed in int16, codes stay as small as they are, and those of eight bits stay signed.
constexpr int added_to_codes(const Int8Tile& tile, CodeForm form) {
  if (form.has_min || tile.added == Added::kNothing) return 0;
  if (tile.added == Added::k128) return 128;
  return form.bits == 8 ? 0 : form.offset();
}

// The product of a strip with weights of one form:
//
// y[r][j] = (add ? y[r][j] : 0) + Σ x[r] · w[j] over 32 · blocks columns for the rows of `x` and
// the first `cols` ≤ 32 rows of the two panels `w`. With s the sub-blocks in order,
//
//   y = fma(float(Σ code · xcode), xscale[s] · scale[s], y)
//   y = fma(xsum[s], min[s], y)  if there is a min
//
// whose integer sums are exact: the same bits for any number of rows, and on every target with a
// fused multiply-add. Single-threaded, noexcept.
using CodeMultiplier = void (*)(const CodePanel (&w)[2], const CodeStrip& x, int64_t blocks,
                                bool add, float* y, int64_t y_stride, int64_t cols);

// Looked up once for many strips, each of which takes only a thousand cycles.
CodeMultiplier code_multiplier(const CodeForm& form);
CodeMultiplier portable_code_multiplier(const CodeForm& form);  // without native kernels

}  // namespace lumen::kernels
