// Activations rounded: to int8 per 32 columns, what products with quantised weights take, and to 16
// bits per group of columns for those with half-precision weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/kernels/weights/int16_tile.h"
#include "lib/kernels/weights/int8_tile.h"

namespace lumen::kernels {

inline constexpr int kLargestInt8Code = 127;

// x[r][k] ≈ scale[r][k / 32] · codes[r][k], codes in [−127, 127], scale = max|x| / 127 of the 32.
// A block that holds a NaN or an infinity has a NaN scale, so that the product shows it.
struct QuantizedRows {
  int64_t cols;     // a multiple of 32
  int8_t* codes;    // [rows, cols]
  float* scale_32;  // [rows, cols / 32]
  float* scale_16;  // [rows, cols / 16]: each scale twice, for weights with a scale per 16 columns
  float* sum_32;    // [rows, cols / 32]: scale · Σ codes, for weights with a min
  float* sum_16;    // [rows, cols / 16]: the same over 16 columns
  int32_t* codes_32;  // [rows, cols / 32]: Σ codes, for weights whose codes have an offset
  int32_t* codes_16;  // [rows, cols / 16]: the same over 16 columns
};

// Bytes that place_quantized_rows takes.
size_t quantized_rows_bytes(int64_t rows, int64_t cols);

// Lays the arrays out in `memory` (64-byte aligned).
QuantizedRows place_quantized_rows(std::byte* memory, int64_t rows, int64_t cols);

// Fills row `row` of `to` from x [cols]. noexcept.
void quantize_row(const float* x, int64_t row, const QuantizedRows& to);

// Rows of x in strips (int8_tile.h), one behind the other, as products of few rows with quantised
// panels take them (panel_dot.h, panel_dot_tiles.h): `height` rows each; the last one has
// `last_height`, of which those beyond m are zeros.
struct StripRows {
  std::byte* memory;  // strip_rows_bytes(m, cols), 64-byte aligned
  int64_t m, cols;    // cols is a multiple of 32
  int64_t height, last_height;

  // The strip whose first row is `row`, from block `block` of 32 columns on.
  CodeStrip strip(int64_t row, int64_t block) const;
};

inline constexpr int64_t kMostStripHeight = 16;

// For heights of at most kMostStripHeight; never decreases with m.
size_t strip_rows_bytes(int64_t m, int64_t cols);

// Rounds blocks [begin, end) of 32 columns of all rows of x [to.m, to.cols], rows x_stride floats
// apart. noexcept.
void quantize_strip_rows(const float* x, int64_t x_stride, int64_t begin, int64_t end,
                         const StripRows& to);

// Fills a strip from x [to.rows, 32 · blocks], rows x_stride floats apart; only the first `rows`
// are read, and the others are zeros. noexcept.
void quantize_strip(const float* x, int64_t x_stride, int64_t rows, int64_t blocks,
                    const CodeStrip& to);
// Codes of 16 bits per to.group blocks: with c the codes of the group's numbers up to 1023,
//
//   scale = max|x| · max(1 / 32767, (√(Σ c²) + 6) / 1023 / kInt16XNorm)
//
// where √(Σ c²) + 6 ≥ 1023 ‖x‖ / max|x|. noexcept.
void quantize_int16_strip(const float* x, int64_t x_stride, int64_t blocks, const Int16Strip& to);

}  // namespace lumen::kernels
