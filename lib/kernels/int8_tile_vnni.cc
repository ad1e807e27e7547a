#include "lib/kernels/int8_tile_vnni.h"

#include "lib/kernels/x86_intrinsics.h"

#if HWY_ARCH_X86_64

#include "lib/kernels/vnni-inl.h"

// As in dot_rows_vnni.cc.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,f16c,fma")

namespace lumen::kernels {
namespace {

// Strips come from L2 one after another, four blocks ahead of their use.
constexpr int64_t kPrefetchBytes = 4 * kStripBlockBytes * kMaxStripRows;

// kRows × 2 sums of integers and as many of floats, 24 of 32 registers.
template <int kRows, int kSub, bool kHasMin>
void multiply(const CodePanel (&w)[2], const CodeStrip& x, int64_t blocks, bool add, float* y,
              int64_t y_stride, int64_t cols) {
  constexpr int kSubs = 32 / kSub, kSteps = kSub / 4;
  __m512 sum[kRows][2];
  load_sums(add, y, y_stride, cols, sum);
  const std::byte* xp = x.blocks;
  const std::byte* hp = x.halves;
  const uint8_t *codes0 = w[0].codes, *codes1 = w[1].codes;
  const float *scale0 = w[0].scale, *scale1 = w[1].scale;
  const float *min0 = w[0].min, *min1 = w[1].min;
  for (int64_t block = 0; block < blocks; ++block) {
    for (int line = 0; line < kRows * kStripBlockBytes; line += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(xp + kPrefetchBytes + line), _MM_HINT_T0);
    }
    const std::byte* x_scale = xp + 32 * kRows;
    for (int sub = 0; sub < kSubs; ++sub) {
      const std::byte* x_sum = kSubs == 1 ? x_scale + 4 * kRows : hp + 4 * kRows * sub;
      const std::byte* owed = kSubs == 1 ? x_scale + 8 * kRows : hp + 4 * kRows * (2 + sub);
      __m512i dot[kRows][2];
      for (int r = 0; r < kRows; ++r) {
        dot[r][0] = dot[r][1] = kHasMin ? _mm512_setzero_si512() : repeat_word(owed + 4 * r);
      }
      for (int step = 0; step < kSteps; ++step) {
        const __m512i c0 = _mm512_load_si512(codes0 + 64 * step);
        const __m512i c1 = _mm512_load_si512(codes1 + 64 * step);
        for (int r = 0; r < kRows; ++r) {
          const __m512i four = repeat_word(xp + 32 * r + kSub * sub + 4 * step);
          dot[r][0] = _mm512_dpbusd_epi32(dot[r][0], c0, four);
          dot[r][1] = _mm512_dpbusd_epi32(dot[r][1], c1, four);
        }
      }
      const __m512 s0 = _mm512_load_ps(scale0), s1 = _mm512_load_ps(scale1);
      for (int r = 0; r < kRows; ++r) {
        const __m512 xs = repeat_float(x_scale + 4 * r);
        sum[r][0] =
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r][0]), _mm512_mul_ps(xs, s0), sum[r][0]);
        sum[r][1] =
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r][1]), _mm512_mul_ps(xs, s1), sum[r][1]);
      }
      if constexpr (kHasMin) {
        const __m512 m0 = _mm512_load_ps(min0), m1 = _mm512_load_ps(min1);
        for (int r = 0; r < kRows; ++r) {
          const __m512 xs = repeat_float(x_sum + 4 * r);
          sum[r][0] = _mm512_fmadd_ps(xs, m0, sum[r][0]);
          sum[r][1] = _mm512_fmadd_ps(xs, m1, sum[r][1]);
        }
        min0 += 16;
        min1 += 16;
      }
      codes0 += 16 * kSub;
      codes1 += 16 * kSub;
      scale0 += 16;
      scale1 += 16;
    }
    xp += kStripBlockBytes * kRows;
    hp += kStripHalfBytes * kRows;
  }
  store_sums(sum, y, y_stride, cols);
}

template <int kSub, bool kHasMin>
void multiply_rows(const CodePanel (&w)[2], const CodeStrip& x, int64_t blocks, bool add, float* y,
                   int64_t y_stride, int64_t cols) {
  switch (x.rows) {
    case 1:
      return multiply<1, kSub, kHasMin>(w, x, blocks, add, y, y_stride, cols);
    case 2:
      return multiply<2, kSub, kHasMin>(w, x, blocks, add, y, y_stride, cols);
    case 3:
      return multiply<3, kSub, kHasMin>(w, x, blocks, add, y, y_stride, cols);
    case 4:
      return multiply<4, kSub, kHasMin>(w, x, blocks, add, y, y_stride, cols);
    case 5:
      return multiply<5, kSub, kHasMin>(w, x, blocks, add, y, y_stride, cols);
    default:
      return multiply<6, kSub, kHasMin>(w, x, blocks, add, y, y_stride, cols);
  }
}

}  // namespace

void multiply_codes_vnni(CodeForm form, const CodePanel (&w)[2], const CodeStrip& x, int64_t blocks,
                         bool add, float* y, int64_t y_stride, int64_t cols) {
  const auto multiply = form.sub == 32
                            ? (form.has_min ? multiply_rows<32, true> : multiply_rows<32, false>)
                            : (form.has_min ? multiply_rows<16, true> : multiply_rows<16, false>);
  multiply(w, x, blocks, add, y, y_stride, cols);
}

}  // namespace lumen::kernels

HWY_POP_ATTRIBUTES

#else  // not x86-64

namespace lumen::kernels {

void multiply_codes_vnni(CodeForm, const CodePanel (&)[2], const CodeStrip&, int64_t, bool, float*,
                         int64_t, int64_t) {
  LUMEN_CHECK(!"VNNI");
}

}  // namespace lumen::kernels

#endif  // HWY_ARCH_X86_64
