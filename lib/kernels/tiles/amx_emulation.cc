#include "lib/kernels/tiles/amx_emulation.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace lumen::kernels {
namespace {

constexpr int kRows = EmulatedTiles::kRows;

float flush(float x) {
  const auto bits = std::bit_cast<int32_t>(x);
  constexpr int32_t kSign = INT32_MIN, kSmallestNormal = 0x00800000;
  return std::bit_cast<float>((bits & ~kSign) < kSmallestNormal ? bits & kSign : bits);
}

// The numbers of a tile, flushed: those at even places of a row, then those at odd ones.
struct Operand {
  float at[kRows][2][kRows];
  // Least and greatest exponent of numbers that are not zero, as they are stored; infinities and
  // NaN have 255.
  int least = 255, greatest = 0;

  explicit Operand(const std::byte (*tile)[EmulatedTiles::kRowBytes]) {
    for (int i = 0; i < kRows; ++i) {
      uint16_t row[2 * kRows];
      std::memcpy(row, tile[i], sizeof row);
      for (int j = 0; j < 2 * kRows; ++j) {
        at[i][j % 2][j / 2] = flush(std::bit_cast<float>(uint32_t{row[j]} << 16));
        const int exponent = row[j] >> 7 & 255;
        if (exponent != 0) least = std::min(least, exponent);
        greatest = std::max(greatest, exponent);
      }
    }
  }
};

// Whether every product of two numbers is zero or a normal float32: then it is exact, as two
// significands of 8 bits have one of 16, and to multiply and to add is one rounding.
bool exact_products(const Operand& a, const Operand& b) {
  constexpr int kBias = 127;
  return a.greatest < 255 && b.greatest < 255 && a.least + b.least - 2 * kBias >= -126 &&
         a.greatest + b.greatest - 2 * kBias < 126;
}

template <bool kExact>
void multiply_all(std::byte (*sum)[EmulatedTiles::kRowBytes], const Operand& a, const Operand& b) {
  for (int m = 0; m < kRows; ++m) {
    float products[2][kRows] = {};
    for (int k = 0; k < kRows; ++k) {
      for (int odd = 0; odd < 2; ++odd) {
        const float left = a.at[m][odd][k];
        const float* const right = b.at[k][odd];
        float* const to = products[odd];
        for (int n = 0; n < kRows; ++n) {
          to[n] = flush(kExact ? left * right[n] + to[n] : std::fma(left, right[n], to[n]));
        }
      }
    }
    float c[kRows];
    std::memcpy(c, sum[m], sizeof c);
    for (int n = 0; n < kRows; ++n) {
      c[n] = flush(flush(c[n]) + flush(products[0][n] + products[1][n]));
    }
    std::memcpy(sum[m], c, sizeof c);
  }
}

}  // namespace

void EmulatedTiles::multiply(std::byte (*sum)[kRowBytes], std::byte (*a)[kRowBytes],
                             std::byte (*b)[kRowBytes]) {
  const Operand left(a), right(b);
  exact_products(left, right) ? multiply_all<true>(sum, left, right)
                              : multiply_all<false>(sum, left, right);
}

constinit const TileUnit kEmulatedTileUnit = {
    EmulatedTiles::enter, EmulatedTiles::leave, multiply_any_strips<EmulatedTiles>,
    multiply_any_short_strips<EmulatedTiles>, multiply_any_row<EmulatedTiles>};

}  // namespace lumen::kernels
