#include "lib/kernels/products/small_product.h"

#include <algorithm>

#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/products/small_product.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/first_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

// kRows rows from row i on by kVectors vectors of columns from j on, the last of them `last` ≤ a
// vector's lanes wide.
template <int kRows, int kVectors, typename T>
HWY_INLINE void multiply_tile(const SmallProduct<T>& p, int64_t i, int64_t j, int64_t last) {
  const hn::ScalableTag<T> d;
  constexpr int kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  hn::VFromD<decltype(d)> sums[kRows][kVectors];
  T* const c = p.c + i * p.c_stride + j;
  HWY_UNROLL(8)
  for (int row = 0; row < kRows; ++row) {
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      sums[row][v] = hn::Zero(d);
      if (!p.go_on) continue;
      const T* const from = c + row * p.c_stride + v * kLanes;
      sums[row][v] = v + 1 < kVectors ? hn::LoadU(d, from) : load_first(d, from, last);
    }
  }
  const T* a = p.a + i * p.a_row_stride;
  const T* b = p.b + j;
  for (int64_t k = 0; k < p.depth; ++k, a += p.a_col_stride, b += p.b_stride) {
    hn::VFromD<decltype(d)> row_of_b[kVectors];
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      const T* const from = b + v * kLanes;
      row_of_b[v] = v + 1 < kVectors ? hn::LoadU(d, from) : load_first(d, from, last);
    }
    HWY_UNROLL(8)
    for (int row = 0; row < kRows; ++row) {
      const auto factor = hn::Set(d, a[row * p.a_row_stride]);
      HWY_UNROLL(8)
      for (int v = 0; v < kVectors; ++v) {
        sums[row][v] = hn::MulAdd(factor, row_of_b[v], sums[row][v]);
      }
    }
  }
  HWY_UNROLL(8)
  for (int row = 0; row < kRows; ++row) {
    HWY_UNROLL(8)
    for (int v = 0; v < kVectors; ++v) {
      T* const to = c + row * p.c_stride + v * kLanes;
      if (v + 1 < kVectors) {
        hn::StoreU(sums[row][v], d, to);
      } else {
        store_first(sums[row][v], d, to, last);
      }
    }
  }
}

// All rows, kRows at a time: as many sums at once as hide how long one takes.
template <int kRows, int kVectors, typename T>
HWY_INLINE void multiply_columns(const SmallProduct<T>& p, int64_t j, int64_t last) {
  int64_t i = 0;
  for (; i + kRows <= p.m; i += kRows) multiply_tile<kRows, kVectors>(p, i, j, last);
  if (kRows > 4 && i + 4 <= p.m) {
    multiply_tile<4, kVectors>(p, i, j, last);
    i += 4;
  }
  if (i + 2 <= p.m) {
    multiply_tile<2, kVectors>(p, i, j, last);
    i += 2;
  }
  if (i < p.m) multiply_tile<1, kVectors>(p, i, j, last);
}

template <typename T>
HWY_INLINE void multiply(const SmallProduct<T>& p) {
  constexpr int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  for (int64_t j = 0; j < p.n; j += 2 * kLanes) {
    const int64_t cols = std::min(2 * kLanes, p.n - j);
    if (cols > kLanes) {
      multiply_columns<4, 2>(p, j, cols - kLanes);
    } else {
      multiply_columns<8, 1>(p, j, cols);
    }
  }
}

void multiply_f32(const SmallProduct<float>& p) {
  multiply(p);
}
void multiply_f64(const SmallProduct<double>& p) {
  multiply(p);
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
namespace {
HWY_EXPORT(multiply_f32);
HWY_EXPORT(multiply_f64);
}  // namespace

void small_product(const SmallProduct<float>& product) {
  HWY_DYNAMIC_DISPATCH(multiply_f32)(product);
}
void small_product(const SmallProduct<double>& product) {
  HWY_DYNAMIC_DISPATCH(multiply_f64)(product);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
