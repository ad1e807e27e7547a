#include "lib/kernels/convolution/direct_conv_tile.h"

#include <algorithm>

#include "lib/base/round_up.h"
#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/convolution/direct_conv_tile.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Float = hn::ScalableTag<float>;
using FloatVector = hn::VFromD<Float>;
inline constexpr int kLanes = hn::MaxLanes(Float());
static_assert(kPlaneSlack % kLanes == 0);

// Accumulators: 24 of 32 registers (AVX-512, NEON), 12 of 16 elsewhere.
inline constexpr int kSums = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON ? 24 : 12;

// Loops over sums are unrolled to keep them in registers, see ../README.md.
template <int kRows, int kVectors>
HWY_INLINE void correlate_tile(const float* x, const int64_t* offsets, int64_t taps, const float* w,
                               bool add, float* y, int64_t y_stride) {
  const Float d;
  FloatVector sum[kRows][kVectors];
  HWY_UNROLL(6)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(6)
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(d);
  }
  for (int64_t k = 0; k < taps; ++k, w += kRows) {
    const float* at = x + offsets[k];
    FloatVector part[kVectors];
    HWY_UNROLL(6)
    for (int v = 0; v < kVectors; ++v) part[v] = hn::LoadU(d, at + v * kLanes);
    HWY_UNROLL(6)
    for (int r = 0; r < kRows; ++r) {
      const auto weight = hn::Set(d, w[r]);
      HWY_UNROLL(6)
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(weight, part[v], sum[r][v]);
    }
  }
  HWY_UNROLL(6)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(6)
    for (int v = 0; v < kVectors; ++v) {
      float* to = y + r * y_stride + v * kLanes;
      hn::StoreU(add ? hn::Add(hn::LoadU(d, to), sum[r][v]) : sum[r][v], d, to);
    }
  }
}

template <int kRows>
void correlate_rows(const float* x, const int64_t* offsets, int64_t taps, const float* w,
                    int64_t count, bool add, float* y, int64_t y_stride) {
  constexpr int kVectors = std::min(kSums / kRows, 6);
  int64_t p = 0;
  for (; p + (kVectors - 1) * kLanes < count; p += kVectors * kLanes) {
    correlate_tile<kRows, kVectors>(x + p, offsets, taps, w, add, y + p, y_stride);
  }
  for (; p + kLanes < count; p += 2 * kLanes) {
    correlate_tile<kRows, 2>(x + p, offsets, taps, w, add, y + p, y_stride);
  }
  if (p < count) correlate_tile<kRows, 1>(x + p, offsets, taps, w, add, y + p, y_stride);
}

void correlate_kernel(const float* x, const int64_t* offsets, int64_t taps, const float* w,
                      int64_t rows, int64_t count, bool add, float* y, int64_t y_stride) {
  static_assert(kCorrelateRows == 6);
  switch (rows) {
    case 1:
      return correlate_rows<1>(x, offsets, taps, w, count, add, y, y_stride);
    case 2:
      return correlate_rows<2>(x, offsets, taps, w, count, add, y, y_stride);
    case 3:
      return correlate_rows<3>(x, offsets, taps, w, count, add, y, y_stride);
    case 4:
      return correlate_rows<4>(x, offsets, taps, w, count, add, y, y_stride);
    case 5:
      return correlate_rows<5>(x, offsets, taps, w, count, add, y, y_stride);
    default:
      return correlate_rows<6>(x, offsets, taps, w, count, add, y, y_stride);
  }
}

inline constexpr int kGradTaps = 4;
inline constexpr int kGradRows = kSums / kGradTaps;

// The sum of the blocks of four lanes of a vector.
template <class D>
HWY_INLINE hn::VFromD<hn::CappedTag<float, 4>> sum_blocks(D d, hn::VFromD<D> v) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return sum_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// The sums of the lanes of four vectors.
HWY_INLINE hn::VFromD<hn::CappedTag<float, 4>> sum_lanes(const FloatVector (&v)[4]) {
  const Float d;
  const auto v02 = hn::Add(hn::InterleaveLower(d, v[0], v[2]), hn::InterleaveUpper(d, v[0], v[2]));
  const auto v13 = hn::Add(hn::InterleaveLower(d, v[1], v[3]), hn::InterleaveUpper(d, v[1], v[3]));
  return sum_blocks(d, hn::Add(hn::InterleaveLower(d, v02, v13), hn::InterleaveUpper(d, v02, v13)));
}

// The sums of kRows rows with `taps` ≤ kGradTaps shifts.
template <int kRows>
HWY_INLINE void correlate_grad_tile(const PlanePairs& planes, const float* rows,
                                    const int64_t* offsets, int64_t taps, bool add, float* sums,
                                    int64_t sums_stride) {
  const Float d;
  FloatVector sum[kRows][kGradTaps];
  HWY_UNROLL(6)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int t = 0; t < kGradTaps; ++t) sum[r][t] = hn::Zero(d);
  }
  int64_t shift[kGradTaps];  // missing ones repeat the last
  for (int t = 0; t < kGradTaps; ++t) shift[t] = offsets[std::min<int64_t>(t, taps - 1)];
  for (int64_t i = 0; i < planes.pairs; ++i) {
    const float* row = rows + i * planes.d_next;
    const float* x = planes.x + i * planes.x_next;
    for (int64_t p = 0; p < planes.count; p += kLanes) {
      FloatVector right[kGradTaps];
      HWY_UNROLL(4)
      for (int t = 0; t < kGradTaps; ++t) right[t] = hn::LoadU(d, x + shift[t] + p);
      HWY_UNROLL(6)
      for (int r = 0; r < kRows; ++r) {
        const auto left = hn::LoadU(d, row + r * planes.d_stride + p);
        HWY_UNROLL(4)
        for (int t = 0; t < kGradTaps; ++t) sum[r][t] = hn::MulAdd(left, right[t], sum[r][t]);
      }
    }
  }
  const hn::CappedTag<float, 4> four;
  HWY_UNROLL(6)
  for (int r = 0; r < kRows; ++r) {
    float* to = sums + r * sums_stride;
    const auto total = sum_lanes(sum[r]);
    if (taps == kGradTaps) {
      hn::StoreU(add ? hn::Add(hn::LoadU(four, to), total) : total, four, to);
    } else {
      HWY_ALIGN float some[4];
      hn::Store(total, four, some);
      for (int t = 0; t < kGradTaps && t < taps; ++t) to[t] = add ? to[t] + some[t] : some[t];
    }
  }
}

template <int kRows>
void correlate_grad_rows(const PlanePairs& planes, const float* rows, const int64_t* offsets,
                         int64_t taps, bool add, float* sums, int64_t sums_stride) {
  for (int64_t t = 0; t < taps; t += kGradTaps) {
    correlate_grad_tile<kRows>(planes, rows, offsets + t, std::min<int64_t>(kGradTaps, taps - t),
                               add, sums + t, sums_stride);
  }
}

void correlate_grad_kernel(const PlanePairs& planes, int64_t rows, const int64_t* offsets,
                           int64_t taps, bool add, float* sums, int64_t sums_stride) {
  constexpr int kMore = kGradRows > 3 ? 3 : 0;  // 4 to 6 rows where there are registers for them
  const int64_t parts = divide_up(rows, kGradRows);
  for (int64_t part = 0; part < parts; ++part) {
    const int64_t r = rows * part / parts, count = rows * (part + 1) / parts - r;
    const auto call = count == 1   ? correlate_grad_rows<1>
                      : count == 2 ? correlate_grad_rows<2>
                      : count == 3 ? correlate_grad_rows<3>
                      : count == 4 ? correlate_grad_rows<1 + kMore>
                      : count == 5 ? correlate_grad_rows<2 + kMore>
                                   : correlate_grad_rows<3 + kMore>;
    call(planes, planes.d + r * planes.d_stride, offsets, taps, add, sums + r * sums_stride,
         sums_stride);
  }
}

void copy_rows_plus_kernel(const float* from, int64_t from_stride, int64_t rows, int64_t cols,
                           float bias, float* to, int64_t to_stride) {
  const Float d;
  const auto sum = hn::Set(d, bias);
  for (int64_t i = 0; i < rows; ++i, from += from_stride, to += to_stride) {
    int64_t j = 0;
    for (; j + kLanes <= cols; j += kLanes) {
      hn::StoreU(hn::Add(hn::LoadU(d, from + j), sum), d, to + j);
    }
    for (; j < cols; ++j) to[j] = from[j] + bias;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
namespace {
HWY_EXPORT(correlate_kernel);
HWY_EXPORT(correlate_grad_kernel);
HWY_EXPORT(copy_rows_plus_kernel);
}  // namespace

void correlate(const float* x, const int64_t* offsets, int64_t taps, const float* w, int64_t rows,
               int64_t count, bool add, float* y, int64_t y_stride) {
  HWY_DYNAMIC_DISPATCH(correlate_kernel)(x, offsets, taps, w, rows, count, add, y, y_stride);
}
void correlate_grad(const PlanePairs& planes, int64_t rows, const int64_t* offsets, int64_t taps,
                    bool add, float* sums, int64_t sums_stride) {
  HWY_DYNAMIC_DISPATCH(correlate_grad_kernel)(planes, rows, offsets, taps, add, sums, sums_stride);
}
void copy_rows_plus(const float* from, int64_t from_stride, int64_t rows, int64_t cols, float bias,
                    float* to, int64_t to_stride) {
  HWY_DYNAMIC_DISPATCH(copy_rows_plus_kernel)(from, from_stride, rows, cols, bias, to, to_stride);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
