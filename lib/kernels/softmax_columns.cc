#include "lib/kernels/softmax_columns.h"

#include <algorithm>
#include <cstring>

#include "lib/base/round_up.h"
#include "lib/kernels/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/softmax_columns.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

// Rows whose numbers are added up before they are added to the rest.
inline constexpr int64_t kBlock = 16;

// Σ over the rows of f(x) for a vector of columns, x being `width` numbers from one row to the
// next.
template <class F>
HWY_INLINE FloatVec sum_down(int64_t n, int64_t stride, const F& f) {
  auto total = hn::Zero(Float());
  for (int64_t block = 0; block < n; block += kBlock) {
    auto part = hn::Zero(Float());
    const int64_t end = std::min(n, block + kBlock);
    for (int64_t row = block; row < end; ++row) part = hn::Add(part, f(row * stride));
    total = hn::Add(total, part);
  }
  return total;
}

HWY_INLINE FloatVec maximum_down(const float* x, int64_t n, int64_t stride) {
  auto largest = hn::Set(Float(), -kInf);
  for (int64_t row = 0; row < n; ++row) {
    largest = hn::Max(hn::LoadU(Float(), x + row * stride), largest);
  }
  return largest;
}

// Strips of n rows that lie `stride` numbers apart, width a multiple of every vector; x becomes the
// result.
void softmax_strip(float* x, const float*, int64_t n, int64_t width, int64_t stride) {
  const Float d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (float* column = x; column < x + width; column += lanes) {
    const auto top = maximum_down(column, n, stride);
    const auto total = sum_down(n, stride, [=](int64_t at) HWY_ATTR {
      const auto e = exp_nonpositive(Float(), hn::Sub(hn::LoadU(Float(), column + at), top));
      hn::StoreU(e, Float(), column + at);
      return e;
    });
    const auto scale = hn::Div(hn::Set(d, 1.0f), total);
    for (int64_t at = 0; at < n * stride; at += stride) {
      hn::StoreU(hn::Mul(hn::LoadU(d, column + at), scale), d, column + at);
    }
  }
}

void log_softmax_strip(float* x, const float*, int64_t n, int64_t width, int64_t stride) {
  const Float d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (float* column = x; column < x + width; column += lanes) {
    const auto top = maximum_down(column, n, stride);
    const auto total = sum_down(n, stride, [=](int64_t at) HWY_ATTR {
      return exp_nonpositive(Float(), hn::Sub(hn::LoadU(Float(), column + at), top));
    });
    const auto log_sum = log_vector(d, total);
    for (int64_t at = 0; at < n * stride; at += stride) {
      const auto v = hn::Sub(hn::Sub(hn::LoadU(d, column + at), top), log_sum);
      hn::StoreU(v, d, column + at);
    }
  }
}

void softmax_backward_strip(float* dy, const float* y, int64_t n, int64_t width, int64_t stride) {
  const Float d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < width; i += lanes) {
    float* const column = dy + i;
    const float* const weights = y + i;
    const auto dot = sum_down(n, stride, [=](int64_t at) HWY_ATTR {
      return hn::Mul(hn::LoadU(Float(), column + at), hn::LoadU(Float(), weights + at));
    });
    for (int64_t at = 0; at < n * stride; at += stride) {
      const auto v = hn::Mul(hn::LoadU(d, weights + at), hn::Sub(hn::LoadU(d, column + at), dot));
      hn::StoreU(v, d, column + at);
    }
  }
}

void log_softmax_backward_strip(float* dy, const float* y, int64_t n, int64_t width,
                                int64_t stride) {
  const Float d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < width; i += lanes) {
    float* const column = dy + i;
    const auto sum =
        sum_down(n, stride, [=](int64_t at) HWY_ATTR { return hn::LoadU(Float(), column + at); });
    for (int64_t at = 0; at < n * stride; at += stride) {
      const auto power = exp_nonpositive(d, hn::LoadU(d, y + i + at));
      hn::StoreU(hn::NegMulAdd(power, sum, hn::LoadU(d, column + at)), d, column + at);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

HWY_EXPORT(softmax_strip);
HWY_EXPORT(log_softmax_strip);
HWY_EXPORT(softmax_backward_strip);
HWY_EXPORT(log_softmax_backward_strip);

namespace {

// Two strips take half of an L2 of 1 MiB, unless they are so long that a line of each takes more.
constexpr int64_t kStripFloats = 64 << 10, kLine = 16, kWidest = 256;

// Work below this many elements is not worth a second thread.
constexpr int64_t kGrain = 4096;

// An odd number of lines from one row to the next spreads a column over all sets of L1.
int64_t stride_of(int64_t width) {
  return (width / kLine | 1) * kLine;
}

int64_t strip_width(int64_t n) {
  return std::clamp(kStripFloats / std::max<int64_t>(1, n) / kLine * kLine, kLine, kWidest);
}

// Columns of rows that lie `from_step` and `to_step` numbers apart.
void copy_columns(const float* from, int64_t from_step, int64_t n, int64_t columns, float* to,
                  int64_t to_step) {
  for (int64_t row = 0; row < n; ++row) {
    std::memcpy(to + row * to_step, from + row * from_step,
                static_cast<size_t>(columns) * sizeof(float));
  }
}

using StripKernel = void (*)(float* x, const float* second, int64_t n, int64_t width,
                             int64_t stride);

// y = kernel(x, second) strip by strip; `second` may be null.
void for_each_strip(ThreadPool& pool, const Columns& shape, const float* x, const float* second,
                    StripKernel kernel, float* y, std::byte* workspace) {
  const int64_t n = shape.n, inner = shape.inner;
  if (shape.outer * n * inner == 0) return;
  const int64_t widest = strip_width(n), strips = divide_up(inner, widest);
  const int64_t width = round_up(divide_up(inner, strips), kLine);
  const int64_t stride = stride_of(width), size = n * stride_of(widest);
  const int64_t grain = std::max<int64_t>(1, kGrain / (n * std::min(inner, width)));
  pool.parallel_for(shape.outer * strips, grain, [&](int64_t begin, int64_t end, int thread) {
    float* const strip = reinterpret_cast<float*>(workspace) + thread * 2 * size;
    float* const other = strip + size;
    std::fill_n(strip, 2 * size, 0.0f);  // also beyond the last column
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % strips * width, columns = std::min(width, inner - first);
      if (columns <= 0) continue;  // even strips may be fewer
      const int64_t at = i / strips * n * inner + first;
      copy_columns(x + at, inner, n, columns, strip, stride);
      if (second) copy_columns(second + at, inner, n, columns, other, stride);
      kernel(strip, other, n, width, stride);
      copy_columns(strip, stride, n, columns, y + at, inner);
    }
  });
}

}  // namespace

size_t softmax_columns_workspace_bytes(int64_t n, int threads) {
  return static_cast<size_t>(threads * 2 * n * stride_of(strip_width(n))) * sizeof(float);
}

void softmax_columns(ThreadPool& pool, const Columns& shape, const float* x, float* y,
                     std::byte* workspace) {
  for_each_strip(pool, shape, x, nullptr, HWY_DYNAMIC_DISPATCH(softmax_strip), y, workspace);
}
void log_softmax_columns(ThreadPool& pool, const Columns& shape, const float* x, float* y,
                         std::byte* workspace) {
  for_each_strip(pool, shape, x, nullptr, HWY_DYNAMIC_DISPATCH(log_softmax_strip), y, workspace);
}
void softmax_columns_backward(ThreadPool& pool, const Columns& shape, const float* y,
                              const float* dy, float* dx, std::byte* workspace) {
  for_each_strip(pool, shape, dy, y, HWY_DYNAMIC_DISPATCH(softmax_backward_strip), dx, workspace);
}
void log_softmax_columns_backward(ThreadPool& pool, const Columns& shape, const float* y,
                                  const float* dy, float* dx, std::byte* workspace) {
  for_each_strip(pool, shape, dy, y, HWY_DYNAMIC_DISPATCH(log_softmax_backward_strip), dx,
                 workspace);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
