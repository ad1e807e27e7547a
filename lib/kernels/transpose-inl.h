// Rows to columns and back, included by kernel files once per Highway target.

#if defined(LUMEN_KERNELS_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LUMEN_KERNELS_TRANSPOSE_INL_H_
#undef LUMEN_KERNELS_TRANSPOSE_INL_H_
#else
#define LUMEN_KERNELS_TRANSPOSE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The numbers in a block of 128 bits.
template <class D>
inline constexpr int kPerBlock = static_cast<int>(16 / sizeof(hn::TFromD<D>));

// Block b of the vector is the one at x + b · stride.
template <class D>
HWY_INLINE hn::VFromD<D> load_blocks(D d, const hn::TFromD<D>* x, int64_t stride) {
  if constexpr (hn::MaxLanes(D()) == kPerBlock<D>) {
    return hn::LoadU(d, x);
  } else {
    constexpr int64_t kHalf = hn::MaxLanes(D()) / kPerBlock<D> / 2;
    const hn::Half<D> half;
    const auto low = load_blocks(half, x, stride);
    return hn::Combine(d, load_blocks(half, x + kHalf * stride, stride), low);
  }
}
template <class D>
HWY_INLINE void store_blocks(D d, hn::VFromD<D> v, hn::TFromD<D>* y, int64_t stride) {
  if constexpr (hn::MaxLanes(D()) == kPerBlock<D>) {
    hn::StoreU(v, d, y);
  } else {
    constexpr int64_t kHalf = hn::MaxLanes(D()) / kPerBlock<D> / 2;
    const hn::Half<D> half;
    store_blocks(half, hn::LowerHalf(half, v), y, stride);
    store_blocks(half, hn::UpperHalf(half, v), y + kHalf * stride, stride);
  }
}

// Within each block lane i of v[j] becomes lane j of v[i]: a perfect shuffle of the vectors, log2 n
// times.
template <class D, class V>
HWY_INLINE void turn_blocks(D d, V (&v)[kPerBlock<D>]) {
  constexpr int kCount = kPerBlock<D>;
  for (int step = 1; step < kCount; step *= 2) {
    V shuffled[kCount];
    HWY_UNROLL(16)
    for (int i = 0; i < kCount / 2; ++i) {
      shuffled[2 * i] = hn::InterleaveLower(d, v[i], v[i + kCount / 2]);
      shuffled[2 * i + 1] = hn::InterleaveUpper(d, v[i], v[i + kCount / 2]);
    }
    HWY_UNROLL(16)
    for (int i = 0; i < kCount; ++i) v[i] = shuffled[i];
  }
}

// v[i] = column i of the rows at x, x + stride, …, as many as a vector has lanes.
template <class D, class V>
HWY_INLINE void load_columns(D d, const hn::TFromD<D>* x, int64_t stride, V (&v)[kPerBlock<D>]) {
  HWY_UNROLL(16)
  for (int i = 0; i < kPerBlock<D>; ++i) {
    v[i] = load_blocks(d, x + i * stride, kPerBlock<D> * stride);
  }
  turn_blocks(d, v);
}
// The inverse, which overwrites v.
template <class D, class V>
HWY_INLINE void store_columns(D d, V (&v)[kPerBlock<D>], hn::TFromD<D>* y, int64_t stride) {
  turn_blocks(d, v);
  HWY_UNROLL(16)
  for (int i = 0; i < kPerBlock<D>; ++i) {
    store_blocks(d, v[i], y + i * stride, kPerBlock<D> * stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
