// Matrices of small integer codes with scales, as programs that round weights store them, made
// matrices of the types that Lumen computes with. For this room only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lib/tensor/array.h"

namespace lumen::io {

// How the codes of a matrix [rows, cols] lie in words of 32 bits (little-endian, codes from the
// lowest bit on, one may go on in the next word).
enum class CodeOrder {
  kRows,     // [rows][words]: a row's codes one behind the other
  kColumns,  // [words][rows]: the same, word i of all rows side by side (GPTQ)
  kAwq,      // [cols][rows / 8]: eight rows of a column in a word, 4 bits each, in the order of AWQ
};

// Element (r, c) is scale[r][g] · code[r][c] + offset[r][g], where g is the group of column c.
// Codes count from 0.
struct CodedMatrix {
  int64_t rows = 0, cols = 0;
  int bits = 0;  // of a code, 1 to 8
  CodeOrder order = CodeOrder::kRows;
  const std::byte* words = nullptr;      // unaligned
  int64_t groups = 1;                    // of cols / groups columns each, or as group_of says
  std::vector<int32_t> group_of{};       // [cols], each in [0, groups); empty: columns in order
  std::vector<float> scale{}, offset{};  // [rows][groups]
};

// Words of 32 bits that a row's codes fill; bits · cols must be a multiple of 32.
constexpr int64_t code_words(int64_t cols, int bits) {
  return cols * bits / 32;
}

// The matrix in rows: where whole blocks of 32 columns share a scale, codes of 8 bits or 4 around
// the middle (offset = −2^(bits − 1) · scale) as q8_0 and q4_0, others of at most 4 bits as q4_1,
// all with the codes' very values; else f16. What those types keep as f16 is rounded: scales,
// offsets of q4_1, elements. On several threads. Throws Error(kResource) without memory.
Array unpacked(const CodedMatrix& matrix);

// Element i of a matrix [rows, cols], row-major, is scale[i / block] · table[code i]; codes are
// nibbles, the first in the upper half of its byte.
struct TableMatrix {
  int64_t rows = 0, cols = 0;
  const std::byte* codes = nullptr;
  std::vector<float> table{};  // sixteen
  int64_t block = 1;
  std::vector<float> scale{};
};

// The matrix in f16. Throws as for a CodedMatrix.
Array unpacked(const TableMatrix& matrix);

// Element (r, c) is scale · (code − 1), with codes 0, 1 and 2 for −1, 0 and 1.
struct TernaryMatrix {
  int64_t rows = 0, cols = 0;
  std::vector<uint8_t> codes{};  // [rows][cols]
  float scale = 0;
};

// The matrix as q2_k where rows are whole blocks of it, with the codes' very values and a scale
// that is rounded to a product of a float16 and a number up to 15, else f16. Throws as for a
// CodedMatrix.
Array unpacked(const TernaryMatrix& matrix);

// A matrix of 8-bit floats (E4M3 without infinities) [rows, cols], each multiplied by the scale of
// its block of block_rows · block_cols, in f16. `scale` is row-major, [⌈rows / block_rows⌉]
// [⌈cols / block_cols⌉]. Throws as unpacked.
Array unpacked_e4m3(const std::byte* values, int64_t rows, int64_t cols,
                    const std::vector<float>& scale, int64_t block_rows, int64_t block_cols);

}  // namespace lumen::io
