// Products of float16 weights with many rows of x on int8 tiles (AMX-INT8), which make twice as
// many products per cycle as those of bfloat16: both operands become fixed-point numbers of 16
// bits, sums of two parts of eight. With a scale for every kFixedDepth columns of a row, the
// largest of which is 32639 = 127 · 256 + 127 times as large,
//
//   x[k] ≈ scale · (256 high[k] + low[k]),  −127 ≤ high ≤ 127,  −128 ≤ low ≤ 127
//   Σ x·w ≈ xscale · wscale · (256 (256 Σ high·high + Σ (high·low + low·high)) + Σ low·low)
//
// The sums of integers are exact. The last one, as small as the rounding otherwise, is left out
// unless the largest of these columns of x is more than twelve times their quadratic mean: most
// numbers are little more than their low part then. The error is 7e-5 of ‖y‖ for normally
// distributed numbers, 2e-4 where columns of x are 100 times larger than others, and 9e-4 if the
// weights of those are 20 times smaller besides; rounding x to float16 costs 2e-4.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/kernels/tiles/amx.h"

namespace lumen::kernels {

// So deep that two panels of B stay in L1; 2 · 127 · 128 · 512, the most that a sum can be, is
// exact as a float.
inline constexpr int64_t kFixedDepth = 512;

// The unit: only to be used where fixed_unit() (amx.h) gives it; null in a build for another
// architecture. What pack_fixed_rows and pack_fixed_columns make are its panels (a_high and b_high
// of TileStrips; panel_depth(depth) columns of them):
//
//   per 64 columns, filled up with zeros, where the four columns i, i + 16, i + 32 and i + 48 of
//   row j are at [j][i] in A, at [i][j] in B:
//     i8 high[16][16][4], low[16][16][4]
//   f32 scale[16]       256 · xscale, or wscale
//   f32 low_scale[16]   xscale, or 0 where Σ low·low is left out; nothing in B
//
// With p = float(Σ high·high), q = float(Σ (high·low + low·high)), r = float(Σ low·low):
//
//   c = fma(fma(256, p, q) · scale, wscale, add),  then  c = fma(r · low_scale, wscale, c)
const TileUnit* native_fixed_unit();

// A panel of A: rows ≤ 16 of x, row_stride floats apart, of depth ≤ kFixedDepth columns; missing
// rows are zero, and so is one whose largest magnitude is below 2⁻¹¹⁰. One that holds a NaN or an
// infinity has a NaN scale, so that the product shows it. Only where fixed_unit() is one. noexcept.
void pack_fixed_rows(const float* x, int64_t row_stride, int64_t rows, int64_t depth,
                     uint16_t* panel);

// A panel of B: sixteen rows of float16 weights as panels.h keeps them, [depth][16]. Likewise.
void pack_fixed_columns(const uint16_t* halves, int64_t depth, uint16_t* panel);

}  // namespace lumen::kernels
