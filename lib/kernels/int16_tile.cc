#include "lib/kernels/int16_tile.h"

#include <algorithm>

#include "lib/base/check.h"
#include "lib/kernels/x86_intrinsics.h"

#if HWY_ARCH_X86_64

#include "lib/kernels/vnni-inl.h"

// As in dot_rows_vnni.cc.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,f16c,fma")

namespace lumen::kernels {
namespace {

// Columns k and k + 1 of a block, a row per lane.
struct ColumnPair {
  __m512 first, second;
};

template <DType kType>
HWY_INLINE ColumnPair load_columns(const uint16_t* panel, int k) {
  const uint16_t* p = panel + k * kPanelRows;
  if constexpr (kType == DType::kF16) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))),
            _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + kPanelRows)))};
  } else {
    const __m512i pairs = _mm512_loadu_si512(p);
    return {_mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)),
            _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(~0xFFFF)))};
  }
}

// The bits without the sign, which order like an integer, infinity and NaNs last.
HWY_INLINE __m512i magnitude(__m512 v) {
  return _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7FFFFFFF));
}

// The scale of a block whose largest magnitude is in [2^e, 2^(e + 1)) is 2^(e − 12): codes are
// below 2^13. Zero where it or its inverse would not be a normal number.
struct PowerScale {
  __m512 scale, inverse;
};

HWY_INLINE PowerScale power_scale(__m512 largest) {
  const __m512i infinity = _mm512_set1_epi32(0x7F800000), step = _mm512_set1_epi32(12 << 23);
  const __m512i exponent = _mm512_and_si512(_mm512_castps_si512(largest), infinity);
  const __mmask16 normal = _mm512_cmpgt_epi32_mask(exponent, step);
  const __mmask16 finite = _mm512_cmplt_epi32_mask(exponent, infinity);
  const __m512i scale = _mm512_sub_epi32(exponent, step);
  const __m512i inverse = _mm512_sub_epi32(_mm512_set1_epi32(254 << 23), scale);
  const __m512i nan = _mm512_set1_epi32(0x7FC00000);
  return {_mm512_castsi512_ps(
              _mm512_maskz_mov_epi32(normal, _mm512_mask_mov_epi32(nan, finite, scale))),
          _mm512_castsi512_ps(_mm512_maskz_mov_epi32(normal & finite, inverse))};
}

// A block of 32 columns of a panel.
template <DType kType>
void expand_block(const uint16_t* panel, int16_t* codes, float* scale) {
  __m512i largest = _mm512_setzero_si512();
  for (int k = 0; k < 32; k += 2) {
    const ColumnPair pair = load_columns<kType>(panel, k);
    largest =
        _mm512_max_epi32(largest, _mm512_max_epi32(magnitude(pair.first), magnitude(pair.second)));
  }
  const PowerScale power = power_scale(_mm512_castsi512_ps(largest));
  _mm512_store_ps(scale, power.scale);
  for (int k = 0; k < 32; k += 2) {
    const ColumnPair pair = load_columns<kType>(panel, k);
    const __m512i first = _mm512_cvtps_epi32(_mm512_mul_ps(pair.first, power.inverse));
    const __m512i second = _mm512_cvtps_epi32(_mm512_mul_ps(pair.second, power.inverse));
    _mm512_store_si512(codes + k * kPanelRows,
                       _mm512_mask_blend_epi16(0xAAAAAAAA, first, _mm512_slli_epi32(second, 16)));
  }
}

template <DType kType>
void expand(const Weight& w, int64_t row, int64_t k, int64_t cols, const Int16Panel& to) {
  const auto* panel = static_cast<const uint16_t*>(w.data) + row * w.cols + k * kPanelRows;
  for (int64_t at = 0; at < cols; at += 32) {
    expand_block<kType>(panel + at * kPanelRows, to.codes + at * kPanelRows,
                        to.scale + at / 32 * kPanelRows);
  }
}

// kRows × 2 sums of integers and as many of floats, 24 of 32 registers.
template <int kRows>
void multiply(const Int16Panel (&w)[2], const Int16Strip& x, int64_t blocks, bool add, float* y,
              int64_t y_stride, int64_t cols) {
  __m512 sum[kRows][2];
  load_sums(add, y, y_stride, cols, sum);
  const std::byte* xp = x.blocks;
  const int16_t *codes0 = w[0].codes, *codes1 = w[1].codes;
  const float *scale0 = w[0].scale, *scale1 = w[1].scale;
  for (int64_t block = 0; block < blocks; ++block) {
    // Strips come from L2 one after another, four blocks ahead of their use.
    for (int line = 0; line < kRows * kInt16StripBytes; line += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(xp + 4 * kRows * kInt16StripBytes + line),
                   _MM_HINT_T0);
    }
    __m512i dot[kRows][2];
    for (int r = 0; r < kRows; ++r) dot[r][0] = dot[r][1] = _mm512_setzero_si512();
    // Unrolled, because sums in a loop would be copied from register to register each time.
    HWY_UNROLL(16)
    for (int step = 0; step < 16; ++step) {
      const __m512i c0 = _mm512_load_si512(codes0 + 32 * step);
      const __m512i c1 = _mm512_load_si512(codes1 + 32 * step);
      for (int r = 0; r < kRows; ++r) {
        const __m512i pair = repeat_word(xp + 64 * r + 4 * step);
        dot[r][0] = _mm512_dpwssd_epi32(dot[r][0], c0, pair);
        dot[r][1] = _mm512_dpwssd_epi32(dot[r][1], c1, pair);
      }
    }
    const __m512 s0 = _mm512_load_ps(scale0), s1 = _mm512_load_ps(scale1);
    for (int r = 0; r < kRows; ++r) {
      const __m512 xs = repeat_float(xp + 64 * kRows + 4 * r);
      sum[r][0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r][0]), _mm512_mul_ps(xs, s0), sum[r][0]);
      sum[r][1] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r][1]), _mm512_mul_ps(xs, s1), sum[r][1]);
    }
    xp += kInt16StripBytes * kRows;
    codes0 += 32 * kPanelRows;
    codes1 += 32 * kPanelRows;
    scale0 += kPanelRows;
    scale1 += kPanelRows;
  }
  store_sums(sum, y, y_stride, cols);
}

}  // namespace

void expand_int16(const Weight& w, int64_t row, int64_t k, int64_t cols, const Int16Panel& to) {
  LUMEN_CHECK(row % kPanelRows == 0);
  if (row >= w.rows) {
    std::fill_n(to.codes, cols * kPanelRows, int16_t{0});
    std::fill_n(to.scale, cols / 32 * kPanelRows, 0.0f);
    return;
  }
  w.dtype == DType::kF16 ? expand<DType::kF16>(w, row, k, cols, to)
                         : expand<DType::kBF16>(w, row, k, cols, to);
}

void multiply_int16(const Int16Panel (&w)[2], const Int16Strip& x, int64_t blocks, bool add,
                    float* y, int64_t y_stride, int64_t cols) {
  switch (x.rows) {
    case 1:
      return multiply<1>(w, x, blocks, add, y, y_stride, cols);
    case 2:
      return multiply<2>(w, x, blocks, add, y, y_stride, cols);
    case 3:
      return multiply<3>(w, x, blocks, add, y, y_stride, cols);
    case 4:
      return multiply<4>(w, x, blocks, add, y, y_stride, cols);
    case 5:
      return multiply<5>(w, x, blocks, add, y, y_stride, cols);
    default:
      return multiply<6>(w, x, blocks, add, y, y_stride, cols);
  }
}

}  // namespace lumen::kernels

HWY_POP_ATTRIBUTES

#else  // not x86-64

namespace lumen::kernels {

void expand_int16(const Weight&, int64_t, int64_t, int64_t, const Int16Panel&) {
  LUMEN_CHECK(!"VNNI");
}

void multiply_int16(const Int16Panel (&)[2], const Int16Strip&, int64_t, bool, float*, int64_t,
                    int64_t) {
  LUMEN_CHECK(!"VNNI");
}

}  // namespace lumen::kernels

#endif  // HWY_ARCH_X86_64
