#include "lib/io/coded_matrix.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "lib/base/check.h"
#include "lib/base/function_ref.h"
#include "lib/base/pool.h"
#include "lib/base/round_up.h"

namespace lumen::io {
namespace {

constexpr int64_t kBlock = 32;  // columns of a block of q8_0, q4_0 and q4_1

// Rows that are unpacked together: those of a cache line of words that hold one row each, and
// whole words of AWQ's, of eight rows.
constexpr int64_t kRowsTogether = 16;

uint32_t word_at(const std::byte* words, int64_t index) {
  uint32_t word;
  std::memcpy(&word, words + 4 * index, sizeof word);
  return word;
}

// Writes the codes of one row, whose word i is word(i).
template <class Word>
void split_words(const Word& word, int64_t cols, int bits, uint8_t* codes) {
  const auto mask = static_cast<uint32_t>((1 << bits) - 1);
  uint64_t held = 0;
  int count = 0;  // bits of it that are left
  for (int64_t c = 0, next = 0; c < cols; ++c) {
    if (count < bits) {
      held |= uint64_t{word(next++)} << count;
      count += 32;
    }
    codes[c] = static_cast<uint8_t>(held & mask);
    held >>= bits;
    count -= bits;
  }
}

// The codes of rows [row, row + count) to codes[count][cols].
void read_codes(const CodedMatrix& m, int64_t row, int64_t count, uint8_t* codes) {
  if (m.order == CodeOrder::kAwq) {
    // Four bits from 4 · i on are row kRow[i] of the eight.
    constexpr int kRow[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    for (int64_t c = 0; c < m.cols; ++c) {
      for (int64_t first = 0; first < count; first += 8) {
        const uint32_t word = word_at(m.words, (c * m.rows + row + first) / 8);
        for (int i = 0; i < 8; ++i) {
          codes[(first + kRow[i]) * m.cols + c] = word >> (4 * i) & 15;
        }
      }
    }
    return;
  }
  const int64_t words = code_words(m.cols, m.bits);
  for (int64_t r = 0; r < count; ++r) {
    const auto word = [&](int64_t i) {
      return word_at(m.words,
                     m.order == CodeOrder::kRows ? (row + r) * words + i : i * m.rows + row + r);
    };
    split_words(word, m.cols, m.bits, codes + r * m.cols);
  }
}

bool is_symmetric(const CodedMatrix& m) {
  const auto middle = static_cast<float>(1 << (m.bits - 1));
  for (size_t i = 0; i < m.scale.size(); ++i) {
    if (m.offset[i] != -middle * m.scale[i]) return false;
  }
  return true;
}

// The type that holds the codes as they are; f16 if none does.
DType type_for(const CodedMatrix& m) {
  const bool in_blocks = m.group_of.empty() && m.cols / m.groups % kBlock == 0;
  if (!in_blocks) return DType::kF16;
  if ((m.bits == 8 || m.bits == 4) && is_symmetric(m)) {
    return m.bits == 8 ? DType::kQ8_0 : DType::kQ4_0;
  }
  return m.bits <= 4 ? DType::kQ4_1 : DType::kF16;
}

void put_f16(float value, std::byte* to) {
  const f16 half = to_f16(value);
  std::memcpy(to, &half, sizeof half);
}

void write_block(DType dtype, const uint8_t* codes, float scale, float offset, std::byte* to) {
  put_f16(scale, to);
  if (dtype == DType::kQ8_0) {
    for (int i = 0; i < 32; ++i) to[2 + i] = static_cast<std::byte>(codes[i] ^ 128);
    return;
  }
  if (dtype == DType::kQ4_1) put_f16(offset, to + 2);
  to += dtype == DType::kQ4_1 ? 4 : 2;
  for (int i = 0; i < 16; ++i) to[i] = static_cast<std::byte>(codes[i] | codes[i + 16] << 4);
}

void write_row(const CodedMatrix& m, DType dtype, int64_t row, const uint8_t* codes,
               std::byte* to) {
  const float* scale = m.scale.data() + row * m.groups;
  const float* offset = m.offset.data() + row * m.groups;
  const int64_t in_group = m.cols / m.groups;
  if (dtype != DType::kF16) {
    for (int64_t c = 0; c < m.cols; c += kBlock, to += info(dtype).block_bytes) {
      write_block(dtype, codes + c, scale[c / in_group], offset[c / in_group], to);
    }
    return;
  }
  for (int64_t c = 0; c < m.cols; ++c, to += sizeof(f16)) {
    const int64_t g = m.group_of.empty() ? c / in_group : m.group_of[c];
    put_f16(scale[g] * static_cast<float>(codes[c]) + offset[g], to);
  }
}

// Runs body(row, count, codes) for all rows, at most kRowsTogether at a time, on several threads;
// `codes` is room for as many rows of `code_bytes`.
void for_rows(int64_t rows, int64_t code_bytes,
              FunctionRef<void(int64_t row, int64_t count, uint8_t* codes)> body) {
  ThreadPool pool(default_thread_count());
  std::vector<uint8_t> codes(pool.threads() * kRowsTogether * code_bytes);
  pool.parallel_for(rows, kRowsTogether, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t row = begin; row < end; row += kRowsTogether) {
      body(row, std::min(kRowsTogether, end - row),
           codes.data() + thread * kRowsTogether * code_bytes);
    }
  });
}

// 1 sign, 4 exponent and 3 mantissa bits, bias 7; all ones but the sign is NaN.
float from_e4m3(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  float value = exponent == 0 ? static_cast<float>(mantissa) * 0x1p-9f
                              : std::bit_cast<float>((exponent + 120) << 23 | mantissa << 20);
  if ((bits & 127) == 127) value = std::numeric_limits<float>::quiet_NaN();
  return (bits & 128) != 0 ? -value : value;
}

}  // namespace

Array unpacked(const CodedMatrix& m) {
  LUMEN_CHECK(m.bits >= 1 && m.bits <= 8 && m.bits * m.cols % 32 == 0);
  LUMEN_CHECK(static_cast<int64_t>(m.scale.size()) == m.rows * m.groups);
  LUMEN_CHECK(m.offset.size() == m.scale.size());
  LUMEN_CHECK(!m.group_of.empty() || m.cols % m.groups == 0);
  const DType dtype = type_for(m);
  Array array = Array::zeros(dtype, {m.rows, m.cols});
  const int64_t stride = row_bytes(dtype, m.cols);
  std::byte* const to = array.mutable_data();
  for_rows(m.rows, m.cols, [&](int64_t row, int64_t count, uint8_t* codes) {
    read_codes(m, row, count, codes);
    for (int64_t r = 0; r < count; ++r) {
      write_row(m, dtype, row + r, codes + r * m.cols, to + (row + r) * stride);
    }
  });
  return array;
}

Array unpacked(const TableMatrix& m) {
  LUMEN_CHECK(m.table.size() == 16);
  Array array = Array::zeros(DType::kF16, {m.rows, m.cols});
  const auto to = array.as_mutable<f16>();
  for_rows(m.rows, 0, [&](int64_t row, int64_t count, uint8_t*) {
    for (int64_t i = row * m.cols; i < (row + count) * m.cols; ++i) {
      const auto code = std::to_integer<size_t>(m.codes[i / 2] >> (i % 2 == 0 ? 4 : 0)) & 15;
      to[i] = to_f16(m.scale[i / m.block] * m.table[code]);
    }
  });
  return array;
}

namespace {

// A whole number, in units of a float16 d: number · d is as close to `scale` as any.
struct TwoFactors {
  int number;
  f16 unit;
};

TwoFactors factors_of(float scale) {
  TwoFactors best{};
  double least = std::numeric_limits<double>::infinity();
  for (int number = 1; number <= 15; ++number) {
    const f16 unit = to_f16(scale / static_cast<float>(number));
    const double error = std::fabs(double{to_float(unit)} * number - double{scale});
    if (error < least) best = {number, unit};
    least = std::min(least, error);
  }
  return best;
}

// 256 codes as ggml's q2_k: 16 scales, of which the lower half multiplies codes and d and the upper
// half is subtracted in units of the second d, 64 bytes of four codes each, and both d.
void write_ternary_block(const uint8_t* codes, TwoFactors scale, std::byte* to) {
  std::fill_n(to, 16, static_cast<std::byte>(scale.number * 17));
  for (int i = 0; i < 64; ++i) {
    const uint8_t* const c = codes + i / 32 * 128 + i % 32;
    to[16 + i] = static_cast<std::byte>(c[0] | c[32] << 2 | c[64] << 4 | c[96] << 6);
  }
  for (const int at : {80, 82}) std::memcpy(to + at, &scale.unit, sizeof scale.unit);
}

}  // namespace

Array unpacked(const TernaryMatrix& m) {
  LUMEN_CHECK(static_cast<int64_t>(m.codes.size()) == m.rows * m.cols);
  constexpr DType kPacked = DType::kQ2_K;
  constexpr int64_t kElements = info(kPacked).block_elements, kBytes = info(kPacked).block_bytes;
  if (m.cols % kElements != 0 || m.cols == 0) {
    Array array = Array::zeros(DType::kF16, {m.rows, m.cols});
    const auto to = array.as_mutable<f16>();
    for (size_t i = 0; i < m.codes.size(); ++i) {
      to[i] = to_f16(m.scale * (static_cast<float>(m.codes[i]) - 1));
    }
    return array;
  }
  Array array = Array::zeros(kPacked, {m.rows, m.cols});
  std::byte* const to = array.mutable_data();
  const TwoFactors scale = factors_of(m.scale);
  for_rows(m.rows * (m.cols / kElements), 0, [&](int64_t block, int64_t count, uint8_t*) {
    for (int64_t b = block; b < block + count; ++b) {
      write_ternary_block(m.codes.data() + b * kElements, scale, to + b * kBytes);
    }
  });
  return array;
}

Array unpacked_e4m3(const std::byte* values, int64_t rows, int64_t cols,
                    const std::vector<float>& scale, int64_t block_rows, int64_t block_cols) {
  std::array<float, 256> table;
  for (int i = 0; i < 256; ++i) table[i] = from_e4m3(static_cast<uint8_t>(i));
  const int64_t scales = divide_up(cols, block_cols);
  Array array = Array::zeros(DType::kF16, {rows, cols});
  const auto to = array.as_mutable<f16>();
  for_rows(rows, 0, [&](int64_t row, int64_t count, uint8_t*) {
    for (int64_t r = row; r < row + count; ++r) {
      const float* row_scale = scale.data() + r / block_rows * scales;
      for (int64_t c = 0; c < cols; ++c) {
        const auto value = static_cast<uint8_t>(values[r * cols + c]);
        to[r * cols + c] = to_f16(table[value] * row_scale[c / block_cols]);
      }
    }
  });
  return array;
}

}  // namespace lumen::io
