#include "lib/kernels/panel_dot_vnni.h"

#include <hwy/cache_control.h>

#include "lib/kernels/panels.h"
#include "lib/kernels/x86_intrinsics.h"

#if HWY_ARCH_X86_64

#include <cstring>

// As in dot_rows_vnni.cc.
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,f16c,fma")

namespace lumen::kernels {
namespace {

struct Isa {
  static constexpr int kLanes = 16, kMostRows = 8;
  // vpdpbusd multiplies unsigned bytes: int8 codes become code + 128.
  static constexpr int kSignedOffset = 128;
  using Codes = __m512i;
  using Ints = __m512i;
  using Floats = __m512;

  static HWY_INLINE Codes load(const uint8_t* p) { return _mm512_loadu_si512(p); }
  static HWY_INLINE Codes mask(Codes v, int bits) {
    return _mm512_and_si512(v, _mm512_set1_epi8(static_cast<char>(bits)));
  }
  static HWY_INLINE Codes join(Codes a, Codes b) { return _mm512_or_si512(a, b); }
  static HWY_INLINE Codes add_bytes(Codes v, int value) {
    return _mm512_add_epi8(v, _mm512_set1_epi8(static_cast<char>(value)));
  }
  static HWY_INLINE void store_bytes(Codes v, uint8_t* p) { _mm512_store_si512(p, v); }
  template <int kBits>
  static HWY_INLINE Codes shift_left(Codes v) {
    return _mm512_slli_epi32(v, kBits);
  }
  template <int kBits>
  static HWY_INLINE Codes shift_right(Codes v) {
    return _mm512_srli_epi32(v, kBits);
  }
  static HWY_INLINE Codes shift_right_by(Codes v, int bits) {
    return _mm512_srl_epi32(v, _mm_cvtsi32_si128(bits));
  }
  template <int kByte>
  static HWY_INLINE Floats byte(Codes v) {
    const __m512i low = _mm512_set1_epi32(255);
    return _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(v, 8 * kByte), low));
  }
  static HWY_INLINE Floats halves(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static HWY_INLINE Floats signed_bytes(const uint8_t* p) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static HWY_INLINE Floats set(float value) { return _mm512_set1_ps(value); }
  static HWY_INLINE Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static HWY_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  static HWY_INLINE Floats to_float(Ints v) { return _mm512_cvtepi32_ps(v); }
  static HWY_INLINE void store(Floats v, float* p) { _mm512_storeu_ps(p, v); }

  template <int kMost>
  struct Sum {
    HWY_INLINE void start(int32_t begin) { ints = _mm512_set1_epi32(begin); }
    template <int kQuad>
    HWY_INLINE void add(Codes codes, const int8_t* x) {
      int32_t four;
      std::memcpy(&four, x, sizeof four);
      if constexpr (kMost == 0) codes = _mm512_xor_si512(codes, _mm512_set1_epi8(-128));
      ints = _mm512_dpbusd_epi32(ints, codes, _mm512_set1_epi32(four));
    }
    HWY_INLINE Ints total() const { return ints; }
    Ints ints;
  };
};

#include "lib/kernels/panel_sums-inl.h"

}  // namespace

void dot_panels_vnni(const Weight& w, int64_t begin, int64_t end, const QuantizedRows& x, int64_t m,
                     float* y, int64_t y_stride) {
  dot_panels_of_any_format(w, begin, end, x, m, y, y_stride);
}

void expand_panel_vnni(DType dtype, const uint8_t* panel, int64_t cols, int added,
                       const CodePanel& to) {
  expand_panel_of_any_format(dtype, panel, cols, added, to);
}

}  // namespace lumen::kernels

HWY_POP_ATTRIBUTES

#else  // not x86-64

namespace lumen::kernels {

void dot_panels_vnni(const Weight&, int64_t, int64_t, const QuantizedRows&, int64_t, float*,
                     int64_t) {
  LUMEN_CHECK(!"VNNI");
}
void expand_panel_vnni(DType, const uint8_t*, int64_t, int, const CodePanel&) {
  LUMEN_CHECK(!"VNNI");
}

}  // namespace lumen::kernels

#endif  // HWY_ARCH_X86_64
