#include "lib/kernels/products/integer_product.h"

#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/products/integer_product.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// a · b modulo 2⁶⁴ from products of their halves where there is no instruction.
template <class D>
HWY_INLINE hn::VFromD<D> product_of(D d, hn::VFromD<D> a, hn::VFromD<D> b) {
  if constexpr (sizeof(hn::TFromD<D>) == 4 || HWY_TARGET == HWY_AVX3) {
    return hn::Mul(a, b);
  } else {
    const hn::Repartition<uint32_t, D> halves;
    auto lower = [&](hn::VFromD<D> x, hn::VFromD<D> y) HWY_ATTR {
      return hn::MulEven(hn::BitCast(halves, x), hn::BitCast(halves, y));
    };
    const auto crossed = hn::Add(lower(hn::ShiftRight<32>(a), b), lower(a, hn::ShiftRight<32>(b)));
    return hn::Add(lower(a, b), hn::ShiftLeft<32>(crossed));
  }
}

template <int kRows, typename T>
HWY_INLINE void multiply_rows(const T* a, int64_t a_row_stride, int64_t a_col_stride, const T* b,
                              int64_t depth, T* sums) {
  const hn::ScalableTag<T> d;
  constexpr int kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  constexpr int kVectors = 2;
  for (int64_t j = 0; j < kIntegerCols; j += kVectors * kLanes) {
    hn::VFromD<decltype(d)> sum[kRows][kVectors];
    HWY_UNROLL(4)
    for (int i = 0; i < kRows; ++i) {
      HWY_UNROLL(2)
      for (int v = 0; v < kVectors; ++v) {
        sum[i][v] = hn::LoadU(d, sums + i * kIntegerCols + j + v * kLanes);
      }
    }
    for (int64_t k = 0; k < depth; ++k) {
      const T* const row = b + k * kIntegerCols + j;
      const T* const factors = a + k * a_col_stride;
      HWY_UNROLL(4)
      for (int i = 0; i < kRows; ++i) {
        const auto factor = hn::Set(d, factors[i * a_row_stride]);
        HWY_UNROLL(2)
        for (int v = 0; v < kVectors; ++v) {
          sum[i][v] = hn::Add(sum[i][v], product_of(d, factor, hn::LoadU(d, row + v * kLanes)));
        }
      }
    }
    HWY_UNROLL(4)
    for (int i = 0; i < kRows; ++i) {
      HWY_UNROLL(2)
      for (int v = 0; v < kVectors; ++v) {
        hn::StoreU(sum[i][v], d, sums + i * kIntegerCols + j + v * kLanes);
      }
    }
  }
}

template <typename T>
HWY_INLINE void multiply(const T* a, int64_t a_row_stride, int64_t a_col_stride, int64_t rows,
                         const T* b, int64_t depth, T* sums) {
  static_assert(kIntegerRows == 4);
  if (rows == kIntegerRows) {
    return multiply_rows<kIntegerRows>(a, a_row_stride, a_col_stride, b, depth, sums);
  }
  for (int64_t i = 0; i < rows; ++i) {
    multiply_rows<1>(a + i * a_row_stride, a_row_stride, a_col_stride, b, depth,
                     sums + i * kIntegerCols);
  }
}

void multiply_u32(const uint32_t* a, int64_t a_row_stride, int64_t a_col_stride, int64_t rows,
                  const uint32_t* b, int64_t depth, uint32_t* sums) {
  multiply(a, a_row_stride, a_col_stride, rows, b, depth, sums);
}
void multiply_u64(const uint64_t* a, int64_t a_row_stride, int64_t a_col_stride, int64_t rows,
                  const uint64_t* b, int64_t depth, uint64_t* sums) {
  multiply(a, a_row_stride, a_col_stride, rows, b, depth, sums);
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
namespace {
HWY_EXPORT(multiply_u32);
HWY_EXPORT(multiply_u64);
}  // namespace

void multiply_integers(const uint32_t* a, int64_t a_row_stride, int64_t a_col_stride, int64_t rows,
                       const uint32_t* b, int64_t depth, uint32_t* sums) {
  HWY_DYNAMIC_DISPATCH(multiply_u32)(a, a_row_stride, a_col_stride, rows, b, depth, sums);
}
void multiply_integers(const uint64_t* a, int64_t a_row_stride, int64_t a_col_stride, int64_t rows,
                       const uint64_t* b, int64_t depth, uint64_t* sums) {
  HWY_DYNAMIC_DISPATCH(multiply_u64)(a, a_row_stride, a_col_stride, rows, b, depth, sums);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
