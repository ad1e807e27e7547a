// Panels of bfloat16 for the tile unit (amx.h): sixteen rows of a matrix, their depth rounded up to
// a multiple of kTileDepth, missing rows and columns zero.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/kernels/products/gemm_tile.h"
#include "lib/kernels/tiles/amx.h"
#include "lib/kernels/weights/code_panel.h"

namespace lumen::kernels {

enum class PanelOrder {
  kRows,   // [depth / 32][16][32], as A is read
  kPairs,  // [depth / 2][16][2], as B is read
};

struct Bf16Panel {
  uint16_t* high;  // kTileRows · depth numbers, depth rounded up
  uint16_t* low;   // as many; null: not wanted
};

// What a panel with low parts turned out to hold; panels of one part always say kOnePart.
enum class PanelContent : uint8_t {
  kOnePart,  // every low part is zero: the numbers were bfloat16 already
  kTwoParts,
  kNonfinite,  // a NaN or an infinity is among them
};

// bfloat16 numbers in the room of floats, two in each, or where floats would be.
inline uint16_t* bf16_numbers(float* room) {
  return reinterpret_cast<uint16_t*>(room);
}
inline const uint16_t* bf16_numbers(const float* room) {
  return reinterpret_cast<const uint16_t*>(room);
}

// Numbers to be read: float32, or with `bf16` bfloat16 in their place.
struct Numbers {
  const float* first;
  bool bf16 = false;

  Numbers at(int64_t i) const {
    return {bf16 ? reinterpret_cast<const float*>(bf16_numbers(first) + i) : first + i, bf16};
  }
};

inline int64_t padded_depth(int64_t depth) {
  return (depth + kTileDepth - 1) / kTileDepth * kTileDepth;
}

// Where a panel, or some rows of one, comes from: element (i, k) is number i · row_stride + k ·
// col_stride from x on. float32, or with `bf16` bfloat16 in its place (bf16_numbers), at any
// address.
struct PanelSource {
  const float* x;
  int64_t row_stride, col_stride;
  bool bf16;

  PanelSource(const float* numbers, int64_t rows_apart, int64_t cols_apart, bool is_bf16 = false)
      : x(numbers), row_stride(rows_apart), col_stride(cols_apart), bf16(is_bf16) {}
  PanelSource(const StripSource& from) : PanelSource(from.x, from.row_stride, from.col_stride) {}

  PanelSource at(int64_t row, int64_t k) const {
    return {Numbers{x, bf16}.at(row * row_stride + k * col_stride).first, row_stride, col_stride,
            bf16};
  }
  PanelSource with_strides(int64_t rows_apart, int64_t cols_apart) const {
    return {x, rows_apart, cols_apart, bf16};
  }
};

// high = x rounded to bfloat16 (nearest, ties to even, but with a low part finite numbers stay
// finite), low = x − high rounded likewise: |x − high − low| ≤ 2⁻¹⁷ |x|; low is zero where x is NaN
// or infinite. Numbers that are bfloat16 are copied, and want no low part. Both orders and any
// strides; rows ≤ 16, none: zeros. noexcept.
PanelContent pack_bf16_panel(const PanelSource& from, int64_t rows, int64_t depth, PanelOrder order,
                             const Bf16Panel& panel);

// Panels, `pitch` numbers apart, from some step on.
struct Bf16Operand {
  const uint16_t* panels;
  int64_t pitch;
  int64_t rows;                   // at most 2 · kTileRows
  const uint16_t* low = nullptr;  // not null: the low parts
};

// sums[i][j] (+)= Σ_k a[i][k] · b[j][k] over `depth` columns, a multiple of kTileDepth; rows of
// sums are 2 · kTileRows numbers, a whole number of panels is written. With low parts all products
// of parts are made. The thread has entered the unit. noexcept.
void multiply_bf16_panels(const TileUnit& unit, const Bf16Operand& a, const Bf16Operand& b,
                          int64_t depth, bool add, float* sums);

// x[i] rounded as high is, in place. noexcept.
void round_to_bf16(float* x, int64_t count);

// c[i][j] = (add ? c[i][j] : 0) + sums[i][j] for i in [0, rows), j in [0, cols); rows of sums are
// `pitch` numbers apart. noexcept.
void move_sums(const float* sums, int64_t pitch, int64_t rows, int64_t cols, bool add, float* c,
               int64_t c_stride);
// c[j] = x[j] rounded as high is, for j in [0, count). noexcept.
void round_row(const float* x, int64_t count, uint16_t* c);
// The same for `rows` rows, so many numbers apart. noexcept.
void round_rows(const float* x, int64_t x_stride, int64_t rows, int64_t count, uint16_t* c,
                int64_t c_stride);
// As move_sums to c[j][i]; rows and cols are at most 2 · kTileRows.
void move_sums_transposed(const float* sums, int64_t pitch, int64_t rows, int64_t cols, bool add,
                          float* c, int64_t c_stride);

// A panel of B from rows that are quantised, taken apart with nothing added to their codes: of
// `cols` columns, a multiple of form.sub. noexcept.
void round_codes(const CodePanel& from, const CodeForm& form, int64_t cols, uint16_t* panel);

}  // namespace lumen::kernels
