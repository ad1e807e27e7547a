#include "lib/kernels/products/vector_product.h"

#include <algorithm>

#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/products/vector_product.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/float16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

// kRows rows with four vectors of sums each, which are added at the end.
template <int kRows, typename A, typename T>
HWY_INLINE void dot_some(const A* a, int64_t a_stride, const T* x, int64_t depth, T* sums) {
  const hn::ScalableTag<T> d;
  constexpr int kLanes = hn::MaxLanes(hn::ScalableTag<T>()), kChains = 4;
  hn::VFromD<decltype(d)> sum[kRows][kChains];
  HWY_UNROLL(8)
  for (int i = 0; i < kRows; ++i) {
    HWY_UNROLL(8)
    for (int t = 0; t < kChains; ++t) sum[i][t] = hn::Zero(d);
  }
  int64_t k = 0;
  for (; k + kChains * kLanes <= depth; k += kChains * kLanes) {
    HWY_UNROLL(8)
    for (int t = 0; t < kChains; ++t) {
      const auto factor = hn::LoadU(d, x + k + t * kLanes);
      HWY_UNROLL(8)
      for (int i = 0; i < kRows; ++i) {
        sum[i][t] =
            hn::MulAdd(load_numbers(d, a + i * a_stride + k + t * kLanes), factor, sum[i][t]);
      }
    }
  }
  HWY_UNROLL(8)
  for (int t = 0; t < kChains; ++t) {
    if (k + kLanes <= depth) {
      const auto factor = hn::LoadU(d, x + k);
      HWY_UNROLL(8)
      for (int i = 0; i < kRows; ++i) {
        sum[i][t] = hn::MulAdd(load_numbers(d, a + i * a_stride + k), factor, sum[i][t]);
      }
      k += kLanes;
    } else if (k < depth) {
      const auto factor = load_first(d, x + k, depth - k);
      HWY_UNROLL(8)
      for (int i = 0; i < kRows; ++i) {
        sum[i][t] = hn::MulAdd(load_first(d, a + i * a_stride + k, depth - k), factor, sum[i][t]);
      }
      k = depth;
    }
  }
  HWY_UNROLL(8)
  for (int i = 0; i < kRows; ++i) {
    const auto halves = hn::Add(hn::Add(sum[i][0], sum[i][1]), hn::Add(sum[i][2], sum[i][3]));
    sums[i] = hn::GetLane(hn::SumOfLanes(d, halves));
  }
}

template <typename A, typename T>
HWY_INLINE void dot_rows_of(const A* a, int64_t a_stride, int64_t rows, const T* x, int64_t depth,
                            T* sums) {
  int64_t i = 0;
  for (; i + 2 <= rows; i += 2) dot_some<2>(a + i * a_stride, a_stride, x, depth, sums + i);
  if (i < rows) dot_some<1>(a + i * a_stride, a_stride, x, depth, sums + i);
}

// sums[j] += Σ of kRows rows in order.
template <int kRows, typename A, typename T>
HWY_INLINE void add_rows(const A* a, int64_t a_stride, int64_t cols, const T* x, int64_t x_stride,
                         T* sums) {
  const hn::ScalableTag<T> d;
  constexpr int kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  hn::VFromD<decltype(d)> factor[kRows];
  HWY_UNROLL(8)
  for (int i = 0; i < kRows; ++i) factor[i] = hn::Set(d, x[i * x_stride]);
  int64_t j = 0;
  for (; j + kLanes <= cols; j += kLanes) {
    auto sum = hn::LoadU(d, sums + j);
    HWY_UNROLL(8)
    for (int i = 0; i < kRows; ++i) {
      sum = hn::MulAdd(load_numbers(d, a + i * a_stride + j), factor[i], sum);
    }
    hn::StoreU(sum, d, sums + j);
  }
  if (j < cols) {
    const int64_t left = cols - j;
    auto sum = load_first(d, sums + j, left);
    HWY_UNROLL(8)
    for (int i = 0; i < kRows; ++i) {
      sum = hn::MulAdd(load_first(d, a + i * a_stride + j, left), factor[i], sum);
    }
    store_first(sum, d, sums + j, left);
  }
}

template <typename A, typename T>
HWY_INLINE void sum_rows_of(const A* a, int64_t a_stride, int64_t cols, const T* x,
                            int64_t x_stride, int64_t depth, bool add, T* y) {
  constexpr int kRows = 8;
  T room[kColumnChunk];
  T* const sums = add ? room : y;
  std::fill_n(sums, cols, T{0});
  int64_t k = 0;
  for (; k + kRows <= depth; k += kRows) {
    add_rows<kRows>(a + k * a_stride, a_stride, cols, x + k * x_stride, x_stride, sums);
  }
  for (; k < depth; ++k) add_rows<1>(a + k * a_stride, a_stride, cols, x + k * x_stride, 1, sums);
  for (int64_t j = 0; add && j < cols; ++j) y[j] += sums[j];
}

template <typename T>
HWY_INLINE void scale_row_of(T factor, const T* x, int64_t n, bool add, bool past_caches, T* y) {
  const hn::ScalableTag<T> d;
  constexpr int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  const auto a = hn::Set(d, factor);
  const auto zero = hn::Zero(d);  // added, as in a sum: −0 becomes 0
  int64_t j = 0;
  if (past_caches) {
    const auto misplaced =
        static_cast<int64_t>(reinterpret_cast<uintptr_t>(y) / sizeof(T)) % kLanes;
    j = std::min(n, misplaced == 0 ? 0 : kLanes - misplaced);
    if (j > 0) store_first(hn::MulAdd(a, load_first(d, x, j), zero), d, y, j);
    for (; j + kLanes <= n; j += kLanes) {
      hn::Stream(hn::MulAdd(a, hn::LoadU(d, x + j), zero), d, y + j);
    }
  }
  for (; j + kLanes <= n; j += kLanes) {
    auto row = hn::MulAdd(a, hn::LoadU(d, x + j), zero);
    if (add) row = hn::Add(hn::LoadU(d, y + j), row);
    hn::StoreU(row, d, y + j);
  }
  if (j < n) {
    auto row = hn::MulAdd(a, load_first(d, x + j, n - j), zero);
    if (add) row = hn::Add(load_first(d, y + j, n - j), row);
    store_first(row, d, y + j, n - j);
  }
}

void dot_rows_bf16(const uint16_t* a, int64_t a_stride, int64_t rows, const float* x, int64_t depth,
                   float* sums) {
  dot_rows_of(a, a_stride, rows, x, depth, sums);
}
void dot_rows_f16(const uint16_t* a, int64_t a_stride, int64_t rows, const float* x, int64_t depth,
                  float* sums) {
  dot_rows_of(reinterpret_cast<const HalfBits*>(a), a_stride, rows, x, depth, sums);
}
void sum_rows_bf16(const uint16_t* a, int64_t a_stride, int64_t cols, const float* x, int64_t depth,
                   bool add, float* y) {
  sum_rows_of(a, a_stride, cols, x, 1, depth, add, y);
}
void sum_rows_f16(const uint16_t* a, int64_t a_stride, int64_t cols, const float* x, int64_t depth,
                  bool add, float* y) {
  sum_rows_of(reinterpret_cast<const HalfBits*>(a), a_stride, cols, x, 1, depth, add, y);
}

void dot_rows_f32(const float* a, int64_t a_stride, int64_t rows, const float* x, int64_t depth,
                  float* sums) {
  dot_rows_of(a, a_stride, rows, x, depth, sums);
}
void dot_rows_f64(const double* a, int64_t a_stride, int64_t rows, const double* x, int64_t depth,
                  double* sums) {
  dot_rows_of(a, a_stride, rows, x, depth, sums);
}
void sum_rows_f32(const float* a, int64_t a_stride, int64_t cols, const float* x, int64_t x_stride,
                  int64_t depth, bool add, float* y) {
  sum_rows_of(a, a_stride, cols, x, x_stride, depth, add, y);
}
void sum_rows_f64(const double* a, int64_t a_stride, int64_t cols, const double* x,
                  int64_t x_stride, int64_t depth, bool add, double* y) {
  sum_rows_of(a, a_stride, cols, x, x_stride, depth, add, y);
}
void scale_row_f32(float factor, const float* x, int64_t n, bool add, bool past_caches, float* y) {
  scale_row_of(factor, x, n, add, past_caches, y);
}
void scale_row_f64(double factor, const double* x, int64_t n, bool add, bool past_caches,
                   double* y) {
  scale_row_of(factor, x, n, add, past_caches, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
namespace {
HWY_EXPORT(dot_rows_bf16);
HWY_EXPORT(dot_rows_f16);
HWY_EXPORT(sum_rows_bf16);
HWY_EXPORT(sum_rows_f16);
HWY_EXPORT(dot_rows_f32);
HWY_EXPORT(dot_rows_f64);
HWY_EXPORT(sum_rows_f32);
HWY_EXPORT(sum_rows_f64);
HWY_EXPORT(scale_row_f32);
HWY_EXPORT(scale_row_f64);
}  // namespace

void dot_rows_with(const float* a, int64_t a_stride, int64_t rows, const float* x, int64_t depth,
                   float* sums) {
  HWY_DYNAMIC_DISPATCH(dot_rows_f32)(a, a_stride, rows, x, depth, sums);
}
void dot_rows_with(const double* a, int64_t a_stride, int64_t rows, const double* x, int64_t depth,
                   double* sums) {
  HWY_DYNAMIC_DISPATCH(dot_rows_f64)(a, a_stride, rows, x, depth, sums);
}

void sum_rows_times(const float* a, int64_t a_stride, int64_t cols, const float* x,
                    int64_t x_stride, int64_t depth, bool add, float* y) {
  HWY_DYNAMIC_DISPATCH(sum_rows_f32)(a, a_stride, cols, x, x_stride, depth, add, y);
}
void sum_rows_times(const double* a, int64_t a_stride, int64_t cols, const double* x,
                    int64_t x_stride, int64_t depth, bool add, double* y) {
  HWY_DYNAMIC_DISPATCH(sum_rows_f64)(a, a_stride, cols, x, x_stride, depth, add, y);
}

void scale_row(float factor, const float* x, int64_t n, bool add, bool past_caches, float* y) {
  HWY_DYNAMIC_DISPATCH(scale_row_f32)(factor, x, n, add, past_caches, y);
}
void scale_row(double factor, const double* x, int64_t n, bool add, bool past_caches, double* y) {
  HWY_DYNAMIC_DISPATCH(scale_row_f64)(factor, x, n, add, past_caches, y);
}

void dot_rows_with(DType dtype, const uint16_t* a, int64_t a_stride, int64_t rows, const float* x,
                   int64_t depth, float* sums) {
  (dtype == DType::kBF16 ? HWY_DYNAMIC_DISPATCH(dot_rows_bf16)
                         : HWY_DYNAMIC_DISPATCH(dot_rows_f16))(a, a_stride, rows, x, depth, sums);
}
void sum_rows_times(DType dtype, const uint16_t* a, int64_t a_stride, int64_t cols, const float* x,
                    int64_t depth, bool add, float* y) {
  (dtype == DType::kBF16 ? HWY_DYNAMIC_DISPATCH(sum_rows_bf16)
                         : HWY_DYNAMIC_DISPATCH(sum_rows_f16))(a, a_stride, cols, x, depth, add, y);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
