// What is left of a row that is no whole vector, included by kernel files once per Highway target.
// The same of narrow floats that are read as float32: float16-inl.h.

#if defined(LUMEN_KERNELS_FIRST_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LUMEN_KERNELS_FIRST_LANES_INL_H_
#undef LUMEN_KERNELS_FIRST_LANES_INL_H_
#else
#define LUMEN_KERNELS_FIRST_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "lib/kernels/simd/piece-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr bool kMasksMemory = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2;

// The first `count` ≤ Lanes(d) numbers at x, zeros in the other lanes; reads nothing beyond.
template <class D>
LUMEN_PIECE hn::VFromD<D> load_first(D d, const hn::TFromD<D>* x, int64_t count) {
  if (count == static_cast<int64_t>(hn::Lanes(d))) return hn::LoadU(d, x);
  if constexpr (kMasksMemory) {
    return hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(count)), d, x);
  } else {
    hn::TFromD<D> lanes[hn::MaxLanes(D())] = {};
    for (int64_t i = 0; i < count; ++i) lanes[i] = x[i];
    return hn::LoadU(d, lanes);
  }
}

// Writes the first `count` ≤ Lanes(d) lanes and nothing beyond. (A masked store of AVX2 takes some
// 50 cycles on Zen 3, even of a whole vector.)
template <class D>
LUMEN_PIECE void store_first(hn::VFromD<D> v, D d, hn::TFromD<D>* x, int64_t count) {
  if (count == static_cast<int64_t>(hn::Lanes(d))) return hn::StoreU(v, d, x);
  if constexpr (kMasksMemory) {
    hn::BlendedStore(v, hn::FirstN(d, static_cast<size_t>(count)), d, x);
  } else {
    hn::TFromD<D> lanes[hn::MaxLanes(D())];
    hn::StoreU(v, d, lanes);
    for (int64_t i = 0; i < count; ++i) x[i] = lanes[i];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#endif  // LUMEN_KERNELS_FIRST_LANES_INL_H_
