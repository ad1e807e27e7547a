#include "lib/kernels/tiles/bf16_dot.h"

#include "lib/base/check.h"
#include "lib/base/prefetch.h"
#include "lib/kernels/simd/x86_intrinsics.h"

#if HWY_ARCH_X86_64

#include <algorithm>
#include <cstring>

// Everything up to HWY_POP_ATTRIBUTES is compiled for this instruction set and reached only through
// native_dot_unit and the functions on tiles.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512bf16")

namespace lumen::kernels {
namespace {

// Rows of sums in registers: with two panels of B 16 sums, of which 12 hide the latency (6 cycles,
// two start in each); two vectors of B and the broadcast take three registers more.
constexpr int kRows = 8;
constexpr int64_t kTile = kTileRows * kTileDepth;  // numbers in a panel per step

__m512i repeat_pair(const uint16_t* pair) {
  int32_t bits;
  std::memcpy(&bits, pair, sizeof bits);
  return _mm512_set1_epi32(bits);
}

// Rows [row, row + kRows) of the strip's c; kCols panels of B.
template <int kCols>
void multiply_rows(const TileStrips& s, int64_t row) {
  const uint16_t* a = s.a_high + row / kTileRows * s.a_pitch + row % kTileRows * kTileDepth;
  const uint16_t* b = s.b_high;
  __m512 sum[kRows][kCols];
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(2)
    for (int j = 0; j < kCols; ++j) {
      sum[r][j] = s.add ? _mm512_loadu_ps(s.add + (row + r) * s.add_stride + j * kTileRows)
                        : _mm512_setzero_ps();
    }
  }
  for (int64_t step = 0; step < s.steps; ++step, a += kTile) {
    HWY_UNROLL(2)
    for (int pair = 0; pair < kTileDepth / 2; ++pair, b += 2 * kTileRows) {
      __m512i column[kCols];
      HWY_UNROLL(2)
      for (int j = 0; j < kCols; ++j) column[j] = _mm512_loadu_si512(b + j * s.b_pitch);
      HWY_UNROLL(8)
      for (int r = 0; r < kRows; ++r) {
        const __m512i row = repeat_pair(a + r * kTileDepth + 2 * pair);
        HWY_UNROLL(2)
        for (int j = 0; j < kCols; ++j) {
          sum[r][j] = _mm512_dpbf16_ps(sum[r][j], (__m512bh)row, (__m512bh)column[j]);
        }
      }
    }
  }
  HWY_UNROLL(8)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(2)
    for (int j = 0; j < kCols; ++j) {
      _mm512_storeu_ps(s.c + (row + r) * s.c_stride + j * kTileRows, sum[r][j]);
    }
  }
}

void multiply(const TileStrips& s) {
  LUMEN_CHECK(s.a_low == nullptr && s.b_low == nullptr);
  const auto rows = s.col_panels == 2 ? multiply_rows<2> : multiply_rows<1>;
  const int64_t count = std::min(s.rows, s.row_panels * kTileRows);
  for (int64_t row = 0; row < count; row += kRows) rows(s, row);
}

// Two vectors as bfloat16, one after the other.
__m512i rounded(__m512 first, __m512 second) {
  return (__m512i)_mm512_cvtne2ps_pbh(second, first);
}

// Of two columns of sixteen rows the pairs.
__m512i pairs_of(__m512i columns) {
  alignas(64) static constexpr uint16_t kPairs[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                      21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                      11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kPairs), columns);
}

// Two columns of sixteen rows as bfloat16, in pairs.
void store_pairs(__m512 even, __m512 odd, uint16_t* to) {
  _mm512_storeu_si512(to, pairs_of(rounded(even, odd)));
}

// The lower or upper half of bfloat16 numbers, widened.
__m512 widened(__m256i half) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

// Takes numbers apart and remembers what they were like.
struct Splitter {
  __m512i low_bits;
  __m512i largest;  // bits of magnitudes

  // The implicit one is not of this target.
  Splitter() : low_bits(_mm512_setzero_si512()), largest(_mm512_setzero_si512()) {}

  // The parts of 32 numbers.
  void split(__m512 first, __m512 second, __m512i& high, __m512i& low) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    high = rounded(first, second);
    low = rounded(_mm512_sub_ps(first, widened(_mm512_castsi512_si256(high))),
                  _mm512_sub_ps(second, widened(_mm512_extracti64x4_epi64(high, 1))));
    low_bits = _mm512_or_si512(low_bits, low);
    largest = _mm512_max_epi32(largest, _mm512_and_si512(_mm512_castps_si512(first), magnitude));
    largest = _mm512_max_epi32(largest, _mm512_and_si512(_mm512_castps_si512(second), magnitude));
  }

  bool finish(uint32_t& seen) const {
    seen |= static_cast<uint32_t>(_mm512_reduce_or_epi32(low_bits));
    constexpr int32_t kRoundsToInfinity = 0x7f7f8000;
    return _mm512_reduce_max_epi32(largest) < kRoundsToInfinity;
  }
};

// For a shuffle of bytes: what moves byte `byte` of every word to its upper byte.
__m512i byte_of_words(int byte) {
  return _mm512_broadcast_i32x4(
      _mm_setr_epi32(byte << 24, (byte + 4) << 24, (byte + 8) << 24, (byte + 12) << 24));
}

// The values of codes in the upper bytes of words.
template <bool kHasMin>
__m512 values_of(__m512i codes, __m512 scale, __m512 min) {
  const __m512 x = _mm512_cvtepi32_ps(codes);
  return kHasMin ? _mm512_fmadd_ps(x, scale, min) : _mm512_mul_ps(x, scale);
}

// A code is moved to the upper byte of its word, where it has its sign and is 2²⁴ times as large;
// the scale makes up for that.
template <bool kHasMin>
void round_codes(const CodePanel& from, int sub, int64_t cols, uint16_t* to) {
  constexpr __mmask64 kUpperByte = 0x8888888888888888;
  const __m512i byte_1 = byte_of_words(1), byte_2 = byte_of_words(2);
  const uint8_t* codes = from.codes;
  const float *scales = from.scale, *mins = from.min;
  for (int64_t k = 0; k < cols; k += sub) {
    const __m512 scale = _mm512_mul_ps(_mm512_load_ps(scales), _mm512_set1_ps(0x1p-24f));
    const __m512 min = kHasMin ? _mm512_load_ps(mins) : _mm512_setzero_ps();
    for (int i = 0; i < sub; i += 4, codes += 4 * kTileRows, to += 4 * kTileRows) {
      const __m512i four = _mm512_load_si512(codes);
      const __m512i first = _mm512_slli_epi32(four, 24);
      const __m512i second = _mm512_maskz_shuffle_epi8(kUpperByte, four, byte_1);
      const __m512i third = _mm512_maskz_shuffle_epi8(kUpperByte, four, byte_2);
      const __m512i fourth = _mm512_maskz_mov_epi8(kUpperByte, four);
      store_pairs(values_of<kHasMin>(first, scale, min), values_of<kHasMin>(second, scale, min),
                  to);
      store_pairs(values_of<kHasMin>(third, scale, min), values_of<kHasMin>(fourth, scale, min),
                  to + 2 * kTileRows);
    }
    scales += kTileRows;
    mins += kTileRows;
  }
}

// Two panels of B are 16 KiB: with 32 KiB they would leave no room for the rows of A in 48.
constexpr TileUnit kUnit = {
    .enter = [] {}, .leave = [] {}, .multiply = multiply, .strip_depth = 256};

}  // namespace

const TileUnit* native_dot_unit() {
  return &kUnit;
}

// Tiles are read a few lines from each of many rows, which the processor does not foresee. Panels
// of rows are made one after another, those of columns side by side, step by step: fetched are the
// lines of the next panel, or of the next step.

void round_tile_rows(const float* x, int64_t row_stride, uint16_t* to) {
  for (int64_t i = 0; i < kTileRows; ++i, x += row_stride, to += kTileDepth) {
    prefetch(x + kTileRows * row_stride, kTileDepth * sizeof(float));
    _mm512_storeu_si512(to, rounded(_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16)));
  }
}

void round_tile_columns(const float* x, int64_t col_stride, uint16_t* to) {
  for (int64_t k = 0; k < kTileDepth; k += 2, x += 2 * col_stride, to += 2 * kTileRows) {
    prefetch(x + kTileDepth * col_stride, kTileRows * sizeof(float));
    prefetch(x + (kTileDepth + 1) * col_stride, kTileRows * sizeof(float));
    store_pairs(_mm512_loadu_ps(x), _mm512_loadu_ps(x + col_stride), to);
  }
}

void pair_tile_columns(const uint16_t* x, int64_t col_stride, uint16_t* to) {
  for (int64_t k = 0; k < kTileDepth; k += 2, x += 2 * col_stride, to += 2 * kTileRows) {
    const __m256i even = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
    const __m256i odd = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + col_stride));
    _mm512_storeu_si512(to, pairs_of(_mm512_inserti64x4(_mm512_castsi256_si512(even), odd, 1)));
  }
}

bool split_tile_rows(const float* x, int64_t row_stride, uint16_t* high, uint16_t* low,
                     uint32_t& seen) {
  Splitter splitter;
  for (int64_t i = 0; i < kTileRows; ++i, x += row_stride) {
    __m512i high_part, low_part;
    prefetch(x + kTileRows * row_stride, kTileDepth * sizeof(float));
    splitter.split(_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16), high_part, low_part);
    _mm512_storeu_si512(high + i * kTileDepth, high_part);
    _mm512_storeu_si512(low + i * kTileDepth, low_part);
  }
  return splitter.finish(seen);
}

bool split_tile_columns(const float* x, int64_t col_stride, uint16_t* high, uint16_t* low,
                        uint32_t& seen) {
  Splitter splitter;
  for (int64_t k = 0; k < kTileDepth; k += 2, x += 2 * col_stride) {
    __m512i high_part, low_part;
    prefetch(x + kTileDepth * col_stride, kTileRows * sizeof(float));
    prefetch(x + (kTileDepth + 1) * col_stride, kTileRows * sizeof(float));
    splitter.split(_mm512_loadu_ps(x), _mm512_loadu_ps(x + col_stride), high_part, low_part);
    _mm512_storeu_si512(high + k * kTileRows, pairs_of(high_part));
    _mm512_storeu_si512(low + k * kTileRows, pairs_of(low_part));
  }
  return splitter.finish(seen);
}

void round_rows_native(const float* x, int64_t x_stride, int64_t rows, int64_t count, uint16_t* to,
                       int64_t to_stride) {
  const auto mask = (uint32_t{1} << count % 32) - 1;
  const auto first = static_cast<__mmask16>(mask), second = static_cast<__mmask16>(mask >> 16);
  for (int64_t i = 0; i < rows; ++i, x += x_stride, to += to_stride) {
    int64_t j = 0;
    for (; j + 32 <= count; j += 32) {
      _mm512_storeu_si512(to + j, rounded(_mm512_loadu_ps(x + j), _mm512_loadu_ps(x + j + 16)));
    }
    if (mask == 0) continue;
    const __m512i last =
        rounded(_mm512_maskz_loadu_ps(first, x + j), _mm512_maskz_loadu_ps(second, x + j + 16));
    _mm512_mask_storeu_epi16(to + j, mask, last);
  }
}

void round_codes_native(const CodePanel& from, const CodeForm& form, int64_t cols, uint16_t* to) {
  form.has_min ? round_codes<true>(from, form.sub, cols, to)
               : round_codes<false>(from, form.sub, cols, to);
}

}  // namespace lumen::kernels

HWY_POP_ATTRIBUTES

#else  // not x86-64

namespace lumen::kernels {

const TileUnit* native_dot_unit() {
  return nullptr;
}
void round_tile_rows(const float*, int64_t, uint16_t*) {
  LUMEN_CHECK(!"AVX512-BF16");
}
void round_tile_columns(const float*, int64_t, uint16_t*) {
  LUMEN_CHECK(!"AVX512-BF16");
}
bool split_tile_rows(const float*, int64_t, uint16_t*, uint16_t*, uint32_t&) {
  LUMEN_CHECK(!"AVX512-BF16");
  return false;
}
bool split_tile_columns(const float*, int64_t, uint16_t*, uint16_t*, uint32_t&) {
  LUMEN_CHECK(!"AVX512-BF16");
  return false;
}
void pair_tile_columns(const uint16_t*, int64_t, uint16_t*) {
  LUMEN_CHECK(!"AVX512-BF16");
}
void round_rows_native(const float*, int64_t, int64_t, int64_t, uint16_t*, int64_t) {
  LUMEN_CHECK(!"AVX512-BF16");
}
void round_codes_native(const CodePanel&, const CodeForm&, int64_t, uint16_t*) {
  LUMEN_CHECK(!"AVX512-BF16");
}

}  // namespace lumen::kernels

#endif  // HWY_ARCH_X86_64
