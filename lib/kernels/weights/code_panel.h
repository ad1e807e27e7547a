// Sixteen rows of a quantised matrix taken apart for int8 products, whatever their stored format.
#pragma once

#include <cstdint>

#include "lib/base/check.h"
#include "lib/kernels/matmul.h"
#include "lib/tensor/dtype.h"

namespace lumen::kernels {

// What the codes of a quantised type are like.
struct CodeForm {
  int sub;       // columns per scale: 32 or 16
  int bits;      // of a code
  bool has_min;  // codes count from 0, and a min is added; else they are signed

  // Of the smallest code below zero.
  constexpr int offset() const { return has_min ? 0 : 1 << (bits - 1); }
};

constexpr CodeForm code_form(DType dtype) {
  switch (dtype) {
    case DType::kQ8_0:
    case DType::kIQ4_NL:  // the numbers that its nibbles stand for
    case DType::kIQ4_XS:
      return {.sub = 32, .bits = 8, .has_min = false};
    case DType::kQ4_0:
      return {.sub = 32, .bits = 4, .has_min = false};
    case DType::kQ4_1:
    case DType::kQ4_K:
      return {.sub = 32, .bits = 4, .has_min = true};
    case DType::kQ5_0:
    case DType::kMXFP4:  // twice the numbers
      return {.sub = 32, .bits = 5, .has_min = false};
    case DType::kQ5_1:
    case DType::kQ5_K:
      return {.sub = 32, .bits = 5, .has_min = true};
    case DType::kQ2_K:
      return {.sub = 16, .bits = 2, .has_min = true};
    case DType::kQ3_K:
      return {.sub = 16, .bits = 3, .has_min = false};
    default:
      LUMEN_CHECK(dtype == DType::kQ6_K);
      return {.sub = 16, .bits = 6, .has_min = false};
  }
}

// value[j][k] = scale[k / sub][j] · (codes[k / 4][j][k % 4] − added) + min[k / sub][j], where
// `added` is what expand_codes was given. Arrays are 64-byte aligned.
struct CodePanel {
  uint8_t* codes;  // [cols / 4][16][4]
  float* scale;    // [cols / sub][16]
  float* min;      // [cols / sub][16]; of types with a min only
};

// Takes rows [row, row + rows) of `w`, at most sixteen, columns [k, k + cols) apart; both are
// multiples of the type's block, and `row` of sixteen if `w` is in panels. `added`, at most 128, is
// added to every code modulo 256. Missing rows get scale and min 0. noexcept.
void expand_codes(const Weight& w, int64_t row, int64_t rows, int64_t k, int64_t cols, int added,
                  const CodePanel& to);

}  // namespace lumen::kernels
