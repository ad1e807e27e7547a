#include "lib/kernels/softmax_columns.h"

#include <algorithm>

#include "lib/base/round_up.h"
#include "lib/kernels/numbers.h"
#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/softmax_columns.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/rows-inl.h"

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

// Columns of rows that lie `from_step` and `to_step` numbers apart.
template <class From, class To>
void copy_numbers(const From* from, int64_t from_step, int64_t n, int64_t columns, To* to,
                  int64_t to_step) {
  for (int64_t row = 0; row < n; ++row) {
    for_each_vector(0, columns, [&](auto load, auto store) HWY_ATTR {
      store(load(from + row * from_step), to + row * to_step);
    });
  }
}

void widen_columns(DType dtype, const void* from, int64_t from_step, int64_t n, int64_t columns,
                   float* to, int64_t to_step) {
  with_number_type(dtype, [&](auto number) HWY_ATTR {
    copy_numbers(static_cast<const decltype(number)*>(from), from_step, n, columns, to, to_step);
  });
}

void round_columns(DType dtype, const float* from, int64_t from_step, int64_t n, int64_t columns,
                   void* to, int64_t to_step) {
  with_number_type(dtype, [&](auto number) HWY_ATTR {
    copy_numbers(from, from_step, n, columns, static_cast<decltype(number)*>(to), to_step);
  });
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

HWY_EXPORT(widen_columns);
HWY_EXPORT(round_columns);
HWY_EXPORT(softmax_strip);
HWY_EXPORT(log_softmax_strip);
HWY_EXPORT(softmax_backward_strip);
HWY_EXPORT(log_softmax_backward_strip);

namespace {

// Two strips take half of an L2 of 1 MiB, unless they are so long that four lines of each take
// more: of rows far apart each is in a page of its own, which is worth so much. The longest have
// one line, as workspace would be large.
constexpr int64_t kStripFloats = 64 << 10, kLine = 16, kFewLines = 4, kWidest = 256;
constexpr int64_t kLongest = 64 << 10;

// Work below this many elements is not worth a second thread.
constexpr int64_t kGrain = 4096;

// An odd number of lines from one row to the next spreads a column over all sets of L1.
int64_t stride_of(int64_t width) {
  return (width / kLine | 1) * kLine;
}

int64_t strip_width(int64_t n) {
  if (n > kLongest) return kLine;
  return std::clamp(kStripFloats / std::max<int64_t>(1, n) / kLine * kLine, kFewLines * kLine,
                    kWidest);
}

using StripKernel = void (*)(float* x, const float* second, int64_t n, int64_t width,
                             int64_t stride);

struct TypedNumbers {
  DType dtype = DType::kF32;
  const void* data = nullptr;
};

// y = kernel(x, second) strip by strip; `second` may be none.
void for_each_strip(ThreadPool& pool, const Columns& shape, const TypedNumbers& x,
                    const TypedNumbers& second, StripKernel kernel, void* y, DType y_type,
                    std::byte* workspace) {
  const auto widen = HWY_DYNAMIC_DISPATCH(widen_columns);
  const auto round = HWY_DYNAMIC_DISPATCH(round_columns);
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
      const auto load = [&](const TypedNumbers& from, float* to) {
        widen(from.dtype, number_address(from.dtype, from.data, at), inner, n, columns, to, stride);
      };
      load(x, strip);
      if (second.data) load(second, other);
      kernel(strip, other, n, width, stride);
      round(y_type, strip, stride, n, columns, number_address(y_type, y, at), inner);
    }
  });
}

}  // namespace

size_t softmax_columns_workspace_bytes(int64_t n, int threads) {
  return static_cast<size_t>(threads * 2 * n * stride_of(strip_width(n))) * sizeof(float);
}

void softmax_columns(ThreadPool& pool, const Columns& shape, const void* x, void* y,
                     std::byte* workspace) {
  for_each_strip(pool, shape, {shape.dtype, x}, {}, HWY_DYNAMIC_DISPATCH(softmax_strip), y,
                 shape.dtype, workspace);
}
void log_softmax_columns(ThreadPool& pool, const Columns& shape, const void* x, void* y,
                         std::byte* workspace) {
  for_each_strip(pool, shape, {shape.dtype, x}, {}, HWY_DYNAMIC_DISPATCH(log_softmax_strip), y,
                 shape.dtype, workspace);
}
void softmax_columns_backward(ThreadPool& pool, const Columns& shape, const void* y, const void* dy,
                              DType dy_type, float* dx, std::byte* workspace) {
  for_each_strip(pool, shape, {dy_type, dy}, {shape.dtype, y},
                 HWY_DYNAMIC_DISPATCH(softmax_backward_strip), dx, DType::kF32, workspace);
}
void log_softmax_columns_backward(ThreadPool& pool, const Columns& shape, const void* y,
                                  const void* dy, DType dy_type, float* dx, std::byte* workspace) {
  for_each_strip(pool, shape, {dy_type, dy}, {shape.dtype, y},
                 HWY_DYNAMIC_DISPATCH(log_softmax_backward_strip), dx, DType::kF32, workspace);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
