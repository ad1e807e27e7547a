// The inner part of the int16 product: some rows of x with 32 rows of weights, both as codes of 16
// bits with a scale per group of columns. AVX512-VNNI and AVX-VNNI multiply pairs of int16 and add
// both products to an int32 in one operation: twice as many products per cycle as in float32. AVX2
// alone needs two operations for that (fast_word_pairs() in simd.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/kernels/matmul.h"

namespace lumen::kernels {

// Whether the target in use has such a tile: AVX2 and better.
bool has_int16_tile();

// Columns that share a scale. By Cauchy and Schwarz |Σ code · xcode| ≤ ‖code‖ · ‖xcode‖, so norms,
// not the largest codes, keep a group's sum below 2³¹: 2¹⁵ · 65506, of which 6 is what rounding may
// add to a norm. (Sums of a part of the group may wrap, which the last one undoes.)
inline constexpr int64_t kInt16Group = 128;
inline constexpr int kInt16NormBits = 15;
inline constexpr float kInt16XNorm = 65500;
inline constexpr int kInt16StripRows = 6;

// value[j][k] ≈ scale[k / 32][j] · codes[k / 2][j][k % 2], the scale a power of two. Arrays are
// 64-byte aligned.
struct Int16Panel {
  int16_t* codes;  // [cols / 2][16][2]
  float* scale;    // [cols / 32][16]; NaN if the group holds a NaN or an infinity
};

// A strip of R rows of x, rounded to scale · code. Per block of 32 columns: int16 codes[R][32];
// float scale[R], the same for all blocks of a group.
struct Int16Strip {
  std::byte* blocks;
  int64_t rows;   // 1 … kInt16StripRows
  int64_t group;  // blocks, of x and of the weights; the last group may be shorter
};
inline constexpr int64_t kInt16StripBytes = 68;  // per row and 32 columns

// Takes sixteen rows of `w`, float16 or bfloat16 in panels, from `row` (of sixteen) on apart,
// columns [k, k + cols), multiples of 32, in groups of kInt16Group. With numbers u of a group over
// the power of two that leaves the largest in [2, 4), and 2^E ≤ (1 + 2⁻¹⁰) Σ u² < 2^(E + 1), codes
// are u · 2^s, s = ⌊(2 · kInt16NormBits − 1 − E) / 2⌋: 11 where the largest is some 2 to 4 times
// the usual, and then a bfloat16 at least 1/32 of it, or a float16 at least 1/4, is exact. Rows
// behind the panels of `w` are zero. Only where has_int16_tile(). noexcept.
void expand_int16(const Weight& w, int64_t row, int64_t k, int64_t cols, const Int16Panel& to);

// y[r][j] = (add ? y[r][j] : 0) + Σ x[r] · w[j] over 32 · blocks columns for the rows of `x` and
// the first `cols` ≤ 32 rows of the two panels `w`. With g the groups in order,
//
//   y = fma(float(Σ code · xcode), xscale[g] · scale[g], y)
//
// whose integer sums are exact: the same bits for any number of rows and every target. Only where
// has_int16_tile().
// Single-threaded, noexcept.
void multiply_int16(const Int16Panel (&w)[2], const Int16Strip& x, int64_t blocks, bool add,
                    float* y, int64_t y_stride, int64_t cols);

}  // namespace lumen::kernels
