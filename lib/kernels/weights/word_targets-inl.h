// Compiles the text LUMEN_WORDS_TEXT, a file with functions of products of pairs of int16, for the
// instruction sets that have them, after native_dot-inl.h: in HWY_NAMESPACE::native in one
// operation, in N_AVX2::word_pairs in two. The text has tile_vectors-inl.h and
//
//   add_word_products(sum, a, b)   sum + Σ a[i] · b[i] over the two int16 of each lane
//
// and is reached by LUMEN_WORDS_CALL. No guard: once per target.

#if LUMEN_NATIVE_WORDS

HWY_PUSH_ATTRIBUTES(LUMEN_NATIVE_ATTRIBUTES)
namespace lumen::kernels {
namespace HWY_NAMESPACE {
namespace native {

#include LUMEN_WORDS_TEXT

}  // namespace native
}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_POP_ATTRIBUTES

#endif  // LUMEN_NATIVE_WORDS

#if HWY_TARGET == HWY_AVX2

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {
namespace word_pairs {

#include "lib/kernels/weights/word_pairs-inl.h"

}  // namespace word_pairs
namespace word_pairs {

#include LUMEN_WORDS_TEXT

}  // namespace word_pairs
}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET == HWY_AVX2
