// bfloat16 in vectors with AVX512-BF16. Only where has_bf16_dot() (simd.h); they fail a check in a
// build for another architecture.
#pragma once

#include <cstdint>

#include "lib/kernels/tiles/amx.h"
#include "lib/kernels/weights/code_panel.h"

namespace lumen::kernels {

// The products of amx.h, of numbers without low parts. Null in a build for another architecture.
const TileUnit* native_dot_unit();

// x rounded to bfloat16 (nearest, ties to even; numbers below 1.2e-38 become zero, as in products),
// as tiles of bf16_panels.h: sixteen rows of kTileDepth numbers in the order of rows, kTileDepth
// columns of sixteen numbers in the order of pairs. noexcept.
void round_tile_rows(const float* x, int64_t row_stride, uint16_t* to);
void round_tile_columns(const float* x, int64_t col_stride, uint16_t* to);

// The same with low parts (pack_bf16_panel), if no number is NaN, infinite or so large that it
// would be rounded to an infinity; false otherwise, and what is in the tiles then means nothing.
// Bits of low parts are added to `seen`, 32 of them or-ed together.
bool split_tile_rows(const float* x, int64_t row_stride, uint16_t* high, uint16_t* low,
                     uint32_t& seen);
bool split_tile_columns(const float* x, int64_t col_stride, uint16_t* high, uint16_t* low,
                        uint32_t& seen);

// A tile of columns that are bfloat16 already, kTileDepth of sixteen numbers, in the order of
// pairs.
void pair_tile_columns(const uint16_t* x, int64_t col_stride, uint16_t* to);

// round_rows and round_codes of bf16_panels.h.
void round_rows_native(const float* x, int64_t x_stride, int64_t rows, int64_t count, uint16_t* to,
                       int64_t to_stride);
void round_codes_native(const CodePanel& from, const CodeForm& form, int64_t cols, uint16_t* to);

}  // namespace lumen::kernels
