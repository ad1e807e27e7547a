#include "lib/kernels/simd/targets-inl.h"
#include "lib/kernels/weights/dot_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/weights/dot_rows_float.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/float16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

using FloatTag = hn::ScalableTag<float>;
using FloatVector = hn::VFromD<FloatTag>;

// How far ahead of the loads the weights are fetched: the memory latency (~100 ns) at the
// bandwidth of one core (~16 GB/s) is 1.6 KB; twice that leaves room for bursts.
inline constexpr int64_t kPrefetchBytes = 3072;

// Element types of the weights: how a vector of them becomes float.
struct F32 {
  using Storage = float;
  static HWY_INLINE FloatVector load(const float* p) { return hn::LoadU(FloatTag(), p); }
  static HWY_INLINE float load_one(const float* p) { return *p; }
};
struct F16 {
  using Storage = uint16_t;
  static HWY_INLINE FloatVector load(const uint16_t* p) { return load_half(FloatTag(), p); }
  static HWY_INLINE float load_one(const uint16_t* p) { return load_f16(p); }
};
struct BF16 {
  using Storage = uint16_t;
  static HWY_INLINE FloatVector load(const uint16_t* p) { return load_bfloat(FloatTag(), p); }
  static HWY_INLINE float load_one(const uint16_t* p) { return to_float(bf16{load_bits(p)}); }
};

// out[r] = Σ_k w[k] · x[r][k] for kRows rows of x. Four partial sums per row cover the latency of
// the multiply-add (4 cycles, two a cycle) with kRows = 1 or 2. Loops over them are unrolled to
// keep them in registers, see ../README.md.
template <class Type, int kRows>
void dot_row(const typename Type::Storage* w, const float* x, int64_t x_stride, int64_t cols,
             float* out) {
  const FloatTag d;
  constexpr int kSums = 4;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVector sum[kRows][kSums];
  HWY_UNROLL(4)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int s = 0; s < kSums; ++s) sum[r][s] = hn::Zero(d);
  }
  int64_t k = 0;
  for (; k + kSums * lanes <= cols; k += kSums * lanes) {
    for (size_t line = 0; line < kSums * sizeof(typename Type::Storage) * lanes; line += 64) {
      hwy::Prefetch(reinterpret_cast<const char*>(w + k) + kPrefetchBytes + line);
    }
    HWY_UNROLL(4)
    for (int s = 0; s < kSums; ++s) {
      const auto v = Type::load(w + k + s * lanes);
      HWY_UNROLL(4)
      for (int r = 0; r < kRows; ++r) {
        const auto xv = hn::LoadU(d, x + r * x_stride + k + s * lanes);
        sum[r][s] = hn::MulAdd(v, xv, sum[r][s]);
      }
    }
  }
  for (; k + lanes <= cols; k += lanes) {
    const auto v = Type::load(w + k);
    HWY_UNROLL(4)
    for (int r = 0; r < kRows; ++r) {
      sum[r][0] = hn::MulAdd(v, hn::LoadU(d, x + r * x_stride + k), sum[r][0]);
    }
  }
  HWY_UNROLL(4)
  for (int r = 0; r < kRows; ++r) {
    const auto total = hn::Add(hn::Add(sum[r][0], sum[r][1]), hn::Add(sum[r][2], sum[r][3]));
    out[r] = hn::GetLane(hn::SumOfLanes(d, total));
  }
  for (; k < cols; ++k) {
    for (int r = 0; r < kRows; ++r) out[r] += Type::load_one(w + k) * x[r * x_stride + k];
  }
}

template <class Type>
void dot_rows(const Weight& w, int64_t begin, int64_t end, const float* x, int64_t x_stride,
              int64_t m, float* y, int64_t y_stride) {
  const auto* row = static_cast<const typename Type::Storage*>(w.data) + begin * w.cols;
  for (int64_t j = 0; j < end - begin; ++j, row += w.cols) {
    for (int64_t r = 0; r < m;) {
      float out[4];
      const int64_t count = m - r >= 4 ? 4 : m - r >= 2 ? 2 : 1;
      if (count == 4) {
        dot_row<Type, 4>(row, x + r * x_stride, x_stride, w.cols, out);
      } else if (count == 2) {
        dot_row<Type, 2>(row, x + r * x_stride, x_stride, w.cols, out);
      } else {
        dot_row<Type, 1>(row, x + r * x_stride, x_stride, w.cols, out);
      }
      for (int64_t i = 0; i < count; ++i) y[(r + i) * y_stride + j] = out[i];
      r += count;
    }
  }
}

void dot_rows_float_kernel(const Weight& w, int64_t begin, int64_t end, const float* x,
                           int64_t x_stride, int64_t m, float* y, int64_t y_stride) {
  switch (w.dtype) {
    case DType::kF32:
      return dot_rows<F32>(w, begin, end, x, x_stride, m, y, y_stride);
    case DType::kF16:
      return dot_rows<F16>(w, begin, end, x, x_stride, m, y, y_stride);
    case DType::kBF16:
      return dot_rows<BF16>(w, begin, end, x, x_stride, m, y, y_stride);
    default:
      LUMEN_CHECK(!"a float weight");
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
namespace {
HWY_EXPORT(dot_rows_float_kernel);
}  // namespace

void dot_rows_float(const Weight& w, int64_t begin, int64_t end, const float* x, int64_t x_stride,
                    int64_t m, float* y, int64_t y_stride) {
  HWY_DYNAMIC_DISPATCH(dot_rows_float_kernel)(w, begin, end, x, x_stride, m, y, y_stride);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
