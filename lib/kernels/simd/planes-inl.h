// Planes of pixels that lie one after another, computed one by one, included by kernel files once
// per Highway target.
#if defined(LUMEN_KERNELS_PLANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LUMEN_KERNELS_PLANES_INL_H_
#undef LUMEN_KERNELS_PLANES_INL_H_
#else
#define LUMEN_KERNELS_PLANES_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "lib/kernels/simd/rows-inl.h"
#include "lib/kernels/streaming.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

// compute(plane, begin, count, to) for pieces of `planes` planes of y; floats go past the caches
// with `streamed`, by way of a buffer: finish_streams() is the caller's.
template <class T, class Compute>
HWY_INLINE void write_planes(bool streamed, int64_t planes, int64_t pixels, T* y,
                             const Compute& compute) {
  if constexpr (std::is_same_v<T, float>) {
    if (streamed) {
      constexpr int64_t kPiece = 1024;
      HWY_ALIGN float piece[kPiece];
      int64_t filled = 0;
      for (int64_t plane = 0; plane < planes; ++plane) {
        for (int64_t at = 0, count; at < pixels; at += count) {
          count = std::min(kPiece - filled, pixels - at);
          compute(plane, at, count, piece + filled);
          filled += count;
          if (filled < kPiece) continue;
          stream(piece, kPiece, y);
          y += kPiece;
          filled = 0;
        }
      }
      return stream(piece, filled, y);
    }
  }
  for (int64_t plane = 0; plane < planes; ++plane, y += pixels) {
    compute(plane, int64_t{0}, pixels, y);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
