// The inner part of the int8 product of weights with codes of eight bits on AVX2 without VNNI.
//
// vpmaddubsw multiplies unsigned by signed bytes, so a product of signed ones needs the weights'
// magnitudes and their signs on x. To give x a sign takes one of the two units that multiply;
// inverting its bits, −xcode − 1, does not, and what is missing then does not depend on x:
//
//   Σ code · xcode = Σ |code| · (xcode ^ sign) + Σ |code| of the codes below zero
#pragma once

#include <cstdint>

#include "lib/kernels/weights/int8_tile.h"

namespace lumen::kernels {

// Whether the target in use has this tile: AVX2 and better.
bool has_split_tile();

inline constexpr int kSplitStripRows = 5;

// Sixteen rows of int8 codes with a scale per 32 columns, taken apart. Arrays are 64-byte aligned.
struct SplitPanel {
  uint8_t* codes;  // [cols / 4][16][4]: |code|
  uint8_t* signs;  // [cols / 4][16][4]: 255 of a code below zero, else 0
  float* scale;    // [cols / 32][16]
  int32_t* owed;   // [cols / 32][16]: Σ |code| of the codes below zero
};

// Splits 32 · blocks columns of signed codes, which lie in to.codes. Only where has_split_tile().
// noexcept.
void split_codes(int64_t blocks, const SplitPanel& to);

// Fills `to` from 32 · blocks columns of a panel of Q8_0 (panels.h). Only where has_split_tile().
// noexcept.
void split_q8_0(const std::byte* panel, int64_t blocks, const SplitPanel& to);

// As a CodeMultiplier (int8_tile.h), of strips of at most kSplitStripRows: the same bits. Only
// where has_split_tile(). Single-threaded, noexcept.
void multiply_split(const SplitPanel (&w)[2], const CodeStrip& x, int64_t blocks, bool add,
                    float* y, int64_t y_stride, int64_t cols);

}  // namespace lumen::kernels
