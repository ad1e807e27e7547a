#include "lib/kernels/quantize_rows.h"

#include "lib/kernels/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/quantize_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;
using Ints = hn::RebindToSigned<Floats>;

// Below this 127 / max|x| would overflow; such a block is rounded to zero.
inline constexpr float kSmallestMax = 1e-35f;

struct BlockScale {
  float scale, inverse;
};

HWY_INLINE BlockScale scale_of_block(const float* x) {
  const Floats d;
  auto largest = hn::Zero(d);
  auto bad = hn::Zero(d);  // Σ 0 · x: NaN if any x is not finite
  for (size_t i = 0; i < 32; i += hn::Lanes(d)) {
    const auto v = hn::LoadU(d, x + i);
    largest = hn::Max(largest, hn::Abs(v));
    bad = hn::MulAdd(v, hn::Zero(d), bad);
  }
  const float max_abs = hn::GetLane(hn::MaxOfLanes(d, largest));
  const float poison = hn::GetLane(hn::SumOfLanes(d, bad));
  if (max_abs < kSmallestMax) return {poison, 0};
  return {max_abs / 127.0f + poison, 127.0f / max_abs};
}

// Clamped, because the codes of a NaN would overflow their sum; its scale is NaN in any case.
HWY_INLINE hn::VFromD<Ints> round_codes(const float* x, float inverse) {
  const Floats d;
  const Ints di;
  const auto q = hn::NearestInt(hn::Mul(hn::LoadU(d, x), hn::Set(d, inverse)));
  return hn::Max(hn::Min(q, hn::Set(di, 127)), hn::Set(di, -127));
}

void quantize_row_kernel(const float* x, int64_t row, const QuantizedRows& to) {
  const Ints di;
  const hn::Rebind<int16_t, Ints> di16;
  const hn::Rebind<int8_t, Ints> di8;
  const int64_t cols = to.cols;
  int8_t* codes = to.codes + row * cols;
  float* scale_32 = to.scale_32 + row * (cols / 32);
  float* scale_16 = to.scale_16 + row * (cols / 16);
  float* sum_16 = to.sum_16 + row * (cols / 16);
  float* sum_32 = to.sum_32 + row * (cols / 32);
  int32_t* codes_16 = to.codes_16 + row * (cols / 16);
  int32_t* codes_32 = to.codes_32 + row * (cols / 32);
  for (int64_t block = 0; block < cols / 32; ++block) {
    const BlockScale s = scale_of_block(x + 32 * block);
    scale_32[block] = scale_16[2 * block] = scale_16[2 * block + 1] = s.scale;
    int32_t sums[2];
    for (int half = 0; half < 2; ++half) {
      auto sum = hn::Zero(di);
      for (size_t i = 0; i < 16; i += hn::Lanes(di)) {
        const int64_t at = 32 * block + 16 * half + static_cast<int64_t>(i);
        const auto q = round_codes(x + at, s.inverse);
        hn::StoreU(hn::DemoteTo(di8, hn::DemoteTo(di16, q)), di8, codes + at);
        sum = hn::Add(sum, q);
      }
      codes_16[2 * block + half] = sums[half] = hn::GetLane(hn::SumOfLanes(di, sum));
      sum_16[2 * block + half] = s.scale * static_cast<float>(sums[half]);
    }
    codes_32[block] = sums[0] + sums[1];
    sum_32[block] = s.scale * static_cast<float>(codes_32[block]);
  }
}

void round_row_kernel(const float* x, int64_t cols, float* y) {
  const Floats d;
  for (int64_t k = 0; k < cols; k += 32) {
    const BlockScale s = scale_of_block(x + k);
    for (size_t i = 0; i < 32; i += hn::Lanes(d)) {
      const auto q = hn::ConvertTo(d, round_codes(x + k + i, s.inverse));
      hn::StoreU(hn::Mul(q, hn::Set(d, s.scale)), d, y + k + i);
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
HWY_EXPORT(round_row_kernel);

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

void round_row(const float* x, int64_t cols, float* y) {
  HWY_DYNAMIC_DISPATCH(round_row_kernel)(x, cols, y);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
