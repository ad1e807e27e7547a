#include "lib/kernels/transpose.h"

#include <cstring>

#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/transpose.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

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

// Neither has to be aligned.
template <typename T>
HWY_INLINE void copy_element(const T* from, T* to) {
  std::memcpy(static_cast<void*>(to), static_cast<const void*>(from), sizeof(T));
}

// By tiles of a vector of columns and the rows of one block. The tiles of 64 bytes of rows follow
// each other, so that a cache line of x is read whole before strides of a power of two, which map
// all lines to one set, drive it out; a line of y is a vector of the widest target.
template <typename T>
void transpose_as(const T* x, int64_t column_stride, int64_t rows, int64_t columns,
                  int64_t y_stride, T* y) {
  const hn::ScalableTag<T> d;
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<T>()));
  constexpr int64_t kCount = kPerBlock<decltype(d)>;
  const int64_t whole_rows = rows / kCount * kCount, whole_columns = columns / kLanes * kLanes;
  hn::VFromD<decltype(d)> v[kCount];
  for (int64_t i = 0; i < whole_columns; i += kLanes) {
    for (int64_t r = 0; r < whole_rows; r += kCount) {
      load_columns(d, x + i * column_stride + r, column_stride, v);
      HWY_UNROLL(16)
      for (int64_t k = 0; k < kCount; ++k) hn::StoreU(v[k], d, y + (r + k) * y_stride + i);
    }
  }
  for (int64_t i = 0; i < columns; ++i) {
    for (int64_t r = i < whole_columns ? whole_rows : 0; r < rows; ++r) {
      copy_element(x + i * column_stride + r, y + r * y_stride + i);
    }
  }
}

// A vector's lanes from the last to the first.
template <class D, class V>
HWY_INLINE V reversed(D d, V v) {
  if constexpr (sizeof(hn::TFromD<D>) > 1) {
    return hn::Reverse(d, v);
  } else {
    const hn::Repartition<uint16_t, D> pairs;
    const auto turned = hn::Reverse(pairs, hn::BitCast(pairs, v));
    return hn::BitCast(d, hn::Or(hn::ShiftLeft<8>(turned), hn::ShiftRight<8>(turned)));
  }
}

template <typename T>
void reverse_as(const T* x, int64_t stride, int64_t rows, int64_t n, T* y) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < rows; ++r, x += stride, y += n) {
    const auto step = [=](int64_t i) HWY_ATTR {
      hn::StoreU(reversed(d, hn::LoadU(d, x + n - lanes - i)), d, y + i);
    };
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) step(i);
    if (i < n && n >= lanes) {  // the last vector may overlap the one before
      step(n - lanes);
    } else {
      for (; i < n; ++i) copy_element(x + n - 1 - i, y + i);
    }
  }
}

// body(T{}) with an unsigned integer as large as the elements.
template <class Body>
HWY_INLINE void with_element(int element_bytes, const Body& body) {
  switch (element_bytes) {
    case 1:
      return body(uint8_t{});
    case 2:
      return body(uint16_t{});
    case 4:
      return body(uint32_t{});
    default:
      return body(uint64_t{});
  }
}

void reverse_any(int element_bytes, const std::byte* x, int64_t stride, int64_t rows, int64_t n,
                 std::byte* y) {
  with_element(element_bytes, [=](auto element) HWY_ATTR {
    using T = decltype(element);
    reverse_as(reinterpret_cast<const T*>(x), stride, rows, n, reinterpret_cast<T*>(y));
  });
}

void transpose_any(int element_bytes, const std::byte* x, int64_t column_stride, int64_t rows,
                   int64_t columns, int64_t y_stride, std::byte* y) {
  with_element(element_bytes, [=](auto element) HWY_ATTR {
    using T = decltype(element);
    transpose_as(reinterpret_cast<const T*>(x), column_stride, rows, columns, y_stride,
                 reinterpret_cast<T*>(y));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
HWY_EXPORT(transpose_any);
HWY_EXPORT(reverse_any);

void transpose(int element_bytes, const std::byte* x, int64_t column_stride, int64_t rows,
               int64_t columns, int64_t y_stride, std::byte* y) {
  HWY_DYNAMIC_DISPATCH(transpose_any)(element_bytes, x, column_stride, rows, columns, y_stride, y);
}

void reverse_rows(int element_bytes, const std::byte* x, int64_t stride, int64_t rows, int64_t n,
                  std::byte* y) {
  HWY_DYNAMIC_DISPATCH(reverse_any)(element_bytes, x, stride, rows, n, y);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
