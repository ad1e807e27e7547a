// Loads and stores of the tiles that are written for AVX512-VNNI. x86-64 only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lib/kernels/x86_intrinsics.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,f16c,fma")

namespace lumen::kernels {

// Sixteen times the four bytes at p, which need not be aligned.
HWY_INLINE __m512i repeat_word(const std::byte* p) {
  int32_t word;
  std::memcpy(&word, p, sizeof word);
  return _mm512_set1_epi32(word);
}

HWY_INLINE __m512 repeat_float(const std::byte* p) {
  float value;
  std::memcpy(&value, p, sizeof value);
  return _mm512_set1_ps(value);
}

// The first `count` lanes of sixteen; none below, all beyond.
HWY_INLINE __mmask16 first_lanes(int64_t count) {
  if (count <= 0) return 0;
  return static_cast<__mmask16>(count >= 16 ? 0xFFFF : (1 << count) - 1);
}

// The first `cols` ≤ 32 numbers of kRows rows of y, the rest and, unless `add`, all of them 0.
template <int kRows>
HWY_INLINE void load_sums(bool add, const float* y, int64_t y_stride, int64_t cols,
                          __m512 (&sum)[kRows][2]) {
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < 2; ++p) {
      const __mmask16 valid = first_lanes(cols - 16 * p);
      sum[r][p] =
          add ? _mm512_maskz_loadu_ps(valid, y + r * y_stride + 16 * p) : _mm512_setzero_ps();
    }
  }
}

template <int kRows>
HWY_INLINE void store_sums(const __m512 (&sum)[kRows][2], float* y, int64_t y_stride,
                           int64_t cols) {
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < 2; ++p) {
      _mm512_mask_storeu_ps(y + r * y_stride + 16 * p, first_lanes(cols - 16 * p), sum[r][p]);
    }
  }
}

}  // namespace lumen::kernels

HWY_POP_ATTRIBUTES
