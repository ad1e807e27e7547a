#include "lib/kernels/weights/quantize_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "lib/base/round_up.h"
#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/weights/quantize_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;
using Ints = hn::RebindToSigned<Floats>;

// Below this 32767 / max|x| would overflow; such a block is rounded to zero.
inline constexpr float kSmallestMax = 1e-34f;

inline constexpr int kLargestWord = 32767;

struct BlockScale {
  float scale, inverse;
};

// Of codes up to `largest_code` for the n numbers at x, a multiple of 32.
HWY_INLINE BlockScale scale_of_block(const float* x, int64_t n, int largest_code) {
  const Floats d;
  const Ints di;
  // Without its sign, a float's bits order like an integer, infinity and NaNs last.
  const auto magnitude = hn::Set(di, 0x7FFFFFFF);
  auto largest = hn::Zero(di);
  for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(d))) {
    largest = hn::Max(largest, hn::And(hn::BitCast(di, hn::LoadU(d, x + i)), magnitude));
  }
  const auto max_abs = std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(di, largest)));
  if (!(max_abs < std::numeric_limits<float>::infinity())) {
    return {std::numeric_limits<float>::quiet_NaN(), 0};
  }
  if (max_abs < kSmallestMax) return {0, 0};
  const auto most = static_cast<float>(largest_code);
  return {max_abs / most, most / max_abs};
}

// Clamped, because the codes of a NaN would overflow their sum; its scale is NaN in any case.
HWY_INLINE hn::VFromD<Ints> round_codes(const float* x, float inverse, int largest_code) {
  const Floats d;
  const Ints di;
  const auto q = hn::NearestInt(hn::Mul(hn::LoadU(d, x), hn::Set(d, inverse)));
  return hn::Max(hn::Min(q, hn::Set(di, largest_code)), hn::Set(di, -largest_code));
}

// Rounds 32 columns; sums[i] is that of the codes of half i. Returns the scale.
HWY_INLINE float quantize_block(const float* x, int8_t* codes, int32_t (&sums)[2]) {
  const Ints di;
  const hn::Rebind<int16_t, Ints> di16;
  const hn::Rebind<int8_t, Ints> di8;
  const BlockScale s = scale_of_block(x, 32, kLargestInt8Code);
  for (int half = 0; half < 2; ++half) {
    auto sum = hn::Zero(di);
    for (size_t i = 0; i < 16; i += hn::Lanes(di)) {
      const size_t at = 16 * half + i;
      const auto q = round_codes(x + at, s.inverse, kLargestInt8Code);
      hn::StoreU(hn::DemoteTo(di8, hn::DemoteTo(di16, q)), di8, codes + at);
      sum = hn::Add(sum, q);
    }
    sums[half] = hn::GetLane(hn::SumOfLanes(di, sum));
  }
  return s.scale;
}

void quantize_row_kernel(const float* x, int64_t row, const QuantizedRows& to) {
  const int64_t cols = to.cols;
  int8_t* codes = to.codes + row * cols;
  float* scale_32 = to.scale_32 + row * (cols / 32);
  float* scale_16 = to.scale_16 + row * (cols / 16);
  float* sum_16 = to.sum_16 + row * (cols / 16);
  float* sum_32 = to.sum_32 + row * (cols / 32);
  int32_t* codes_16 = to.codes_16 + row * (cols / 16);
  int32_t* codes_32 = to.codes_32 + row * (cols / 32);
  for (int64_t block = 0; block < cols / 32; ++block) {
    int32_t sums[2];
    const float scale = quantize_block(x + 32 * block, codes + 32 * block, sums);
    scale_32[block] = scale_16[2 * block] = scale_16[2 * block + 1] = scale;
    for (int half = 0; half < 2; ++half) {
      codes_16[2 * block + half] = sums[half];
      sum_16[2 * block + half] = scale * static_cast<float>(sums[half]);
    }
    codes_32[block] = sums[0] + sums[1];
    sum_32[block] = scale * static_cast<float>(codes_32[block]);
  }
}

void quantize_strip_kernel(const float* x, int64_t x_stride, int64_t x_rows, int64_t blocks,
                           const CodeStrip& to) {
  const int64_t rows = to.rows;
  for (int64_t block = 0; block < blocks; ++block) {
    std::byte* p = to.blocks + block * rows * kStripBlockBytes;
    auto* codes = reinterpret_cast<int8_t*>(p);
    auto* scale = reinterpret_cast<float*>(p + 32 * rows);
    auto* sum = scale + rows;
    auto* owed = reinterpret_cast<int32_t*>(sum + rows);
    auto* half_sum = reinterpret_cast<float*>(to.halves + block * rows * kStripHalfBytes);
    auto* half_owed = reinterpret_cast<int32_t*>(half_sum + 2 * rows);
    for (int64_t r = 0; r < rows; ++r) {
      int32_t sums[2] = {};
      if (r < x_rows) {
        scale[r] = quantize_block(x + r * x_stride + 32 * block, codes + 32 * r, sums);
      } else {
        std::fill_n(codes + 32 * r, 32, int8_t{0});
        scale[r] = 0;
      }
      sum[r] = scale[r] * static_cast<float>(sums[0] + sums[1]);
      owed[r] = -128 * (sums[0] + sums[1]);
      for (int64_t half = 0; half < 2; ++half) {
        half_sum[half * rows + r] = scale[r] * static_cast<float>(sums[half]);
        half_owed[half * rows + r] = -128 * sums[half];
      }
    }
  }
}

// Of codes of 16 bits (quantize_int16_strip). Sums of integers do not depend on their order.
HWY_INLINE BlockScale scale_of_group(const float* x, int64_t n) {
  constexpr int kCoarse = 1023;
  const Ints di;
  const BlockScale coarse = scale_of_block(x, n, kCoarse);
  if (!(coarse.scale > 0)) return coarse;
  auto squares = hn::Zero(di);
  for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(di))) {
    const auto c = round_codes(x + i, coarse.inverse, kCoarse);
    squares = hn::Add(squares, hn::Mul(c, c));
  }
  const auto norm = std::sqrt(static_cast<float>(hn::GetLane(hn::SumOfLanes(di, squares)))) + 6;
  const float steps = std::max(norm / kInt16XNorm, static_cast<float>(kCoarse) / kLargestWord);
  return {coarse.scale * steps, coarse.inverse / steps};
}

void quantize_int16_strip_kernel(const float* x, int64_t x_stride, int64_t blocks,
                                 const Int16Strip& to) {
  const Ints di;
  const hn::Rebind<int16_t, Ints> di16;
  for (int64_t first = 0; first < blocks; first += to.group) {
    const int64_t end = HWY_MIN(first + to.group, blocks);
    for (int64_t r = 0; r < to.rows; ++r) {
      const float* const row = x + r * x_stride;
      const BlockScale s = scale_of_group(row + 32 * first, 32 * (end - first));
      for (int64_t block = first; block < end; ++block) {
        std::byte* p = to.blocks + block * to.rows * kInt16StripBytes;
        auto* codes = reinterpret_cast<int16_t*>(p) + 32 * r;
        for (size_t i = 0; i < 32; i += hn::Lanes(di)) {
          const auto q = round_codes(row + 32 * block + i, s.inverse, kLargestWord);
          hn::StoreU(hn::DemoteTo(di16, q), di16, codes + i);
        }
        reinterpret_cast<float*>(p + 64 * to.rows)[r] = s.scale;
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
namespace {

HWY_EXPORT(quantize_row_kernel);
HWY_EXPORT(quantize_strip_kernel);
HWY_EXPORT(quantize_int16_strip_kernel);

size_t align_64(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

}  // namespace

size_t quantized_rows_bytes(int64_t rows, int64_t cols) {
  const auto elements = static_cast<size_t>(rows * cols);
  static_assert(sizeof(float) == sizeof(int32_t));
  return align_64(elements) + 3 * align_64(elements / 32 * sizeof(float)) +
         3 * align_64(elements / 16 * sizeof(float));
}

QuantizedRows place_quantized_rows(std::byte* memory, int64_t rows, int64_t cols) {
  const auto elements = static_cast<size_t>(rows * cols);
  auto take = [&](size_t count, auto* type) {
    auto* array = reinterpret_cast<decltype(type)>(memory);
    memory += align_64(count * sizeof *type);
    return array;
  };
  constexpr int8_t* kBytes = nullptr;
  constexpr float* kFloats = nullptr;
  constexpr int32_t* kInts = nullptr;
  return {.cols = cols,
          .codes = take(elements, kBytes),
          .scale_32 = take(elements / 32, kFloats),
          .scale_16 = take(elements / 16, kFloats),
          .sum_32 = take(elements / 32, kFloats),
          .sum_16 = take(elements / 16, kFloats),
          .codes_32 = take(elements / 32, kInts),
          .codes_16 = take(elements / 16, kInts)};
}

void quantize_row(const float* x, int64_t row, const QuantizedRows& to) {
  HWY_DYNAMIC_DISPATCH(quantize_row_kernel)(x, row, to);
}

void quantize_strip(const float* x, int64_t x_stride, int64_t rows, int64_t blocks,
                    const CodeStrip& to) {
  HWY_DYNAMIC_DISPATCH(quantize_strip_kernel)(x, x_stride, rows, blocks, to);
}

CodeStrip StripRows::strip(int64_t row, int64_t block) const {
  const int64_t rows = row + height < m ? height : last_height, blocks = cols / 32;
  std::byte* const first = memory + row * blocks * (kStripBlockBytes + kStripHalfBytes);
  return {.blocks = first + rows * block * kStripBlockBytes,
          .halves = first + rows * (blocks * kStripBlockBytes + block * kStripHalfBytes),
          .rows = rows};
}

size_t strip_rows_bytes(int64_t m, int64_t cols) {
  const int64_t rows = round_up(m, kMostStripHeight);
  return static_cast<size_t>(rows * (cols / 32) * (kStripBlockBytes + kStripHalfBytes));
}

void quantize_strip_rows(const float* x, int64_t x_stride, int64_t begin, int64_t end,
                         const StripRows& to) {
  for (int64_t row = 0; row < to.m; row += to.height) {
    const int64_t rows = std::min(to.height, to.m - row);
    quantize_strip(x + row * x_stride + 32 * begin, x_stride, rows, end - begin,
                   to.strip(row, begin));
  }
}

void quantize_int16_strip(const float* x, int64_t x_stride, int64_t blocks, const Int16Strip& to) {
  HWY_DYNAMIC_DISPATCH(quantize_int16_strip_kernel)(x, x_stride, blocks, to);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
