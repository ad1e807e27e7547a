// Dot products of bytes that are added to int32 in one instruction, for which Highway has no
// operation: AVX512-VNNI for the target AVX3 (512 bits), AVX-VNNI for AVX2 (256 bits), the dot
// products of ARMv8.2 for NEON (128 bits). LUMEN_NATIVE says whether the target being compiled has
// them, LUMEN_NATIVE_WORDS whether those of int16 too; what uses them stands between
// HWY_PUSH_ATTRIBUTES(LUMEN_NATIVE_ATTRIBUTES) and HWY_POP_ATTRIBUTES in namespace
// HWY_NAMESPACE::native and is reached by LUMEN_NATIVE_CALL only.

#if defined(LUMEN_KERNELS_NATIVE_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LUMEN_KERNELS_NATIVE_DOT_INL_H_
#undef LUMEN_KERNELS_NATIVE_DOT_INL_H_
#else
#define LUMEN_KERNELS_NATIVE_DOT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lib/base/check.h"
#include "lib/kernels/simd.h"
#include "lib/kernels/simd/x86_intrinsics.h"

#undef LUMEN_NATIVE
#undef LUMEN_NATIVE_WORDS
#undef LUMEN_NATIVE_ATTRIBUTES
#undef LUMEN_NEON_FEATURES
#undef LUMEN_VNNI_INTRINSIC
#if HWY_TARGET == HWY_AVX3
#define LUMEN_NATIVE 1
#define LUMEN_NATIVE_WORDS 1
#define LUMEN_NATIVE_ATTRIBUTES HWY_TARGET_STR ",avx512vnni"
#define LUMEN_VNNI_INTRINSIC(operation) _mm512_##operation##_epi32
#elif HWY_TARGET == HWY_AVX2
#define LUMEN_NATIVE 1
#define LUMEN_NATIVE_WORDS 1
#define LUMEN_NATIVE_ATTRIBUTES HWY_TARGET_STR ",avxvnni"
#define LUMEN_VNNI_INTRINSIC(operation) _mm256_##operation##_avx_epi32
#elif HWY_TARGET == HWY_NEON && HWY_ARCH_ARM_A64
#define LUMEN_NATIVE 1
#define LUMEN_NATIVE_WORDS 0
// GCC's assembler knows them from ARMv8.2 on, which a program that is all compiled for them has.
#ifdef HWY_TARGET_STR
#define LUMEN_NEON_FEATURES HWY_TARGET_STR "+dotprod"
#else
#define LUMEN_NEON_FEATURES "+dotprod"
#endif
#if !HWY_COMPILER_GCC_ACTUAL
#define LUMEN_NATIVE_ATTRIBUTES "dotprod"
#elif defined(__ARM_FEATURE_DOTPROD)
#define LUMEN_NATIVE_ATTRIBUTES LUMEN_NEON_FEATURES
#else
#define LUMEN_NATIVE_ATTRIBUTES "arch=armv8.2-a" LUMEN_NEON_FEATURES
#endif
#else
#define LUMEN_NATIVE 0
#define LUMEN_NATIVE_WORDS 0
#endif

#if LUMEN_NATIVE

HWY_PUSH_ATTRIBUTES(LUMEN_NATIVE_ATTRIBUTES)

namespace lumen::kernels {
namespace HWY_NAMESPACE {
namespace native {

#include "lib/kernels/weights/tile_vectors-inl.h"

// kWordsAtOnce words of four bytes of x each, which one after another meet vectors of codes:
// word<i>(load_words(p)) is that at p + 4 · i. p need not be aligned.
//
// add_byte_products(sum, codes, word): sum + Σ codes[i] · word[i] over the four bytes of each lane.
// x is signed; codes are int8 to which kAddedToSigned was added, or those from 0 to 127.
#if HWY_ARCH_X86_64

inline constexpr int kWordsAtOnce = 1;
inline constexpr int kAddedToSigned = 128;  // codes are unsigned
using XWords = const void*;

HWY_INLINE XWords load_words(const void* p) {
  return p;
}

template <int kWord>
HWY_INLINE IntVector word(XWords x) {
  static_assert(kWord == 0);
  return repeat_word(x);
}

HWY_INLINE IntVector add_byte_products(IntVector sum, IntVector codes, IntVector word) {
  return IntVector{LUMEN_VNNI_INTRINSIC(dpbusd)(sum.raw, codes.raw, word.raw)};
}

// sum + Σ a[i] · b[i] over the two int16 of each lane.
HWY_INLINE IntVector add_word_products(IntVector sum, IntVector a, IntVector b) {
  return IntVector{LUMEN_VNNI_INTRINSIC(dpwssd)(sum.raw, a.raw, b.raw)};
}

#else

inline constexpr int kWordsAtOnce = 4;
inline constexpr int kAddedToSigned = 0;
using XWords = IntVector;

HWY_INLINE XWords load_words(const void* p) {
  const hn::Repartition<uint8_t, TileInts> d8;
  return hn::BitCast(TileInts(), hn::LoadU(d8, static_cast<const uint8_t*>(p)));
}

// The instruction takes one word of a vector: no broadcast.
template <int kWord>
struct WordOf {
  XWords words;
};

template <int kWord>
HWY_INLINE WordOf<kWord> word(XWords x) {
  return {x};
}

// In assembly: the intrinsic is of ARMv8.2 in GCC's header, and missing in that of clang before 16,
// unless all of the program is. It also keeps sums where they are, see finish().
template <int kWord>
HWY_INLINE IntVector add_byte_products(IntVector sum, IntVector codes, WordOf<kWord> word) {
  asm("sdot %0.4s, %1.16b, %2.4b[%3]"
      : "+w"(sum.raw)
      : "w"(codes.raw), "w"(word.words.raw), "i"(kWord));
  return sum;
}

#endif

}  // namespace native
}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels

HWY_POP_ATTRIBUTES

#endif  // LUMEN_NATIVE

// Calls `function` as compiled for the target in use; only where uses_native_dot().
#if HWY_ONCE
#if (HWY_TARGETS & HWY_AVX3) && (HWY_TARGETS & HWY_AVX2)
#define LUMEN_NATIVE_CALL(function, ...) \
  (vnni_bits() == 512 ? N_AVX3::native::function : N_AVX2::native::function)(__VA_ARGS__)
#elif HWY_TARGETS & HWY_AVX3
#define LUMEN_NATIVE_CALL(function, ...) N_AVX3::native::function(__VA_ARGS__)
#elif HWY_TARGETS & HWY_AVX2
#define LUMEN_NATIVE_CALL(function, ...) N_AVX2::native::function(__VA_ARGS__)
#elif (HWY_TARGETS & HWY_NEON) && HWY_ARCH_ARM_A64
#define LUMEN_NATIVE_CALL(function, ...) N_NEON::native::function(__VA_ARGS__)
#else
#define LUMEN_NATIVE_CALL(function, ...) LUMEN_CHECK(!"dot products of bytes")
#endif

// Calls `function`, which returns nothing and is also compiled in N_AVX2::word_pairs
// (word_pairs-inl.h); only where uses_avx2().
#if HWY_TARGETS & HWY_AVX2
#define LUMEN_WORDS_CALL(function, ...)        \
  if (!uses_vnni()) {                          \
    N_AVX2::word_pairs::function(__VA_ARGS__); \
  } else {                                     \
    LUMEN_NATIVE_CALL(function, __VA_ARGS__);  \
  }
#else
#define LUMEN_WORDS_CALL(function, ...) LUMEN_CHECK(!"AVX2")
#endif
#endif  // HWY_ONCE

#endif  // LUMEN_KERNELS_NATIVE_DOT_INL_H_
