// Products of small integers that are added to int32 in one instruction, for which Highway has no
// operation: AVX512-VNNI for the target AVX3 (512 bits), AVX-VNNI for AVX2 (256 bits). LUMEN_VNNI
// says whether the target being compiled has them; what uses them stands between
// HWY_PUSH_ATTRIBUTES(LUMEN_VNNI_ATTRIBUTES) and HWY_POP_ATTRIBUTES in namespace
// HWY_NAMESPACE::vnni and is reached by LUMEN_VNNI_CALL only.

#if defined(LUMEN_KERNELS_VNNI_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LUMEN_KERNELS_VNNI_INL_H_
#undef LUMEN_KERNELS_VNNI_INL_H_
#else
#define LUMEN_KERNELS_VNNI_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lib/base/check.h"
#include "lib/kernels/simd.h"
#include "lib/kernels/x86_intrinsics.h"

#undef LUMEN_VNNI
#undef LUMEN_VNNI_ATTRIBUTES
#undef LUMEN_VNNI_INTRINSIC
#if HWY_TARGET == HWY_AVX3
#define LUMEN_VNNI 1
#define LUMEN_VNNI_ATTRIBUTES HWY_TARGET_STR ",avx512vnni"
#define LUMEN_VNNI_INTRINSIC(operation) _mm512_##operation##_epi32
#elif HWY_TARGET == HWY_AVX2
#define LUMEN_VNNI 1
#define LUMEN_VNNI_ATTRIBUTES HWY_TARGET_STR ",avxvnni"
#define LUMEN_VNNI_INTRINSIC(operation) _mm256_##operation##_avx_epi32
#else
#define LUMEN_VNNI 0
#endif

#if LUMEN_VNNI

HWY_PUSH_ATTRIBUTES(LUMEN_VNNI_ATTRIBUTES)

namespace lumen::kernels {
namespace HWY_NAMESPACE {
namespace vnni {

#include "lib/kernels/tile_vectors-inl.h"

// sum + Σ u[i] · s[i] over the four bytes of each lane, u unsigned and s signed.
HWY_INLINE IntVector add_byte_products(IntVector sum, IntVector u, IntVector s) {
  return IntVector{LUMEN_VNNI_INTRINSIC(dpbusd)(sum.raw, u.raw, s.raw)};
}

// sum + Σ a[i] · b[i] over the two int16 of each lane.
HWY_INLINE IntVector add_word_products(IntVector sum, IntVector a, IntVector b) {
  return IntVector{LUMEN_VNNI_INTRINSIC(dpwssd)(sum.raw, a.raw, b.raw)};
}

}  // namespace vnni
}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels

HWY_POP_ATTRIBUTES

#endif  // LUMEN_VNNI

// Calls `function` as compiled for the width in use; only where uses_vnni().
#if HWY_ONCE
#if (HWY_TARGETS & HWY_AVX3) && (HWY_TARGETS & HWY_AVX2)
#define LUMEN_VNNI_CALL(function, ...) \
  (vnni_bits() == 512 ? N_AVX3::vnni::function : N_AVX2::vnni::function)(__VA_ARGS__)
#elif HWY_TARGETS & HWY_AVX3
#define LUMEN_VNNI_CALL(function, ...) N_AVX3::vnni::function(__VA_ARGS__)
#elif HWY_TARGETS & HWY_AVX2
#define LUMEN_VNNI_CALL(function, ...) N_AVX2::vnni::function(__VA_ARGS__)
#else
#define LUMEN_VNNI_CALL(function, ...) LUMEN_CHECK(!"VNNI")
#endif
#endif  // HWY_ONCE

#endif  // LUMEN_KERNELS_VNNI_INL_H_
