// Products of pairs of int16 by AVX2 alone, in two operations. Included in
// HWY_NAMESPACE::word_pairs of the target AVX2; no guard, no includes of its own.

#include "lib/kernels/weights/tile_vectors-inl.h"

// sum + Σ a[i] · b[i] over the two int16 of each lane.
HWY_INLINE IntVector add_word_products(IntVector sum, IntVector a, IntVector b) {
  auto result = hn::Add(sum, IntVector{_mm256_madd_epi16(a.raw, b.raw)});
  finish(result.raw);
  return result;
}
