#include "lib/kernels/norm.h"

#include <algorithm>
#include <cmath>

#include "lib/base/check.h"
#include "lib/base/round_up.h"
#include "lib/kernels/simd/targets-inl.h"
#include "lib/kernels/streaming.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/norm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

// y[i] = f(x[i], i) by whole vectors and a partial one; load(p) inside f reads p[i…] alike. The
// rows behind those at p are fetched.
template <class To, class F, class... T>
HWY_INLINE void map_row(To* y, size_t dim, const F& f, const T*... p) {
  const auto each = [&](auto load, auto store) HWY_ATTR { store(f(load), y); };
  for_each_vector_then(static_cast<int64_t>(dim), each, p...);
}

template <class T, class To>
void rms_norm_numbers(const T* x, size_t dim, const T* w, float eps, To* y) {
  const Float d;
  const float squares =
      sum_of(x, dim, [](auto v, auto sum) HWY_ATTR { return hn::MulAdd(v, v, sum); });
  const auto scale = hn::Set(d, 1.0f / std::sqrt(squares / static_cast<float>(dim) + eps));
  if (w) {
    map_row(
        y, dim, [&](auto load) HWY_ATTR { return hn::Mul(hn::Mul(load(x), scale), load(w)); }, x);
  } else {
    map_row(
        y, dim, [&](auto load) HWY_ATTR { return hn::Mul(load(x), scale); }, x);
  }
}

template <class T, class To>
void layer_norm_numbers(const T* x, size_t dim, const T* w, const T* b, float eps, To* y) {
  const Float d;
  const auto count = static_cast<float>(dim);
  const float total = sum_of(x, dim, [](auto v, auto sum) HWY_ATTR { return hn::Add(sum, v); });
  const auto mean = hn::Set(d, total / count);
  const float squares = sum_of(x, dim, [&](auto v, auto sum) HWY_ATTR {
    const auto deviation = hn::Sub(v, mean);
    return hn::MulAdd(deviation, deviation, sum);
  });
  const auto scale = hn::Set(d, 1.0f / std::sqrt(squares / count + eps));
  const auto result = [&](auto load) HWY_ATTR {
    auto v = hn::Mul(hn::Sub(load(x), mean), scale);
    if (w) v = hn::Mul(v, load(w));
    return b ? hn::Add(v, load(b)) : v;
  };
  map_row(y, dim, result, x);
}

// Subtracting the maximum makes every exponent ≤ 0 and the sum ≥ 1. NaN reaches the sum through
// exp; a row of only −inf gives −inf − (−inf) = NaN. `powers` has room for a row and may be y.
template <class T>
void softmax_numbers(const T* x, size_t dim, float* powers, T* y) {
  const Float d;
  const size_t lanes = hn::Lanes(d);
  const auto maximum = hn::Set(d, row_maximum(x, dim));
  FloatVec sum0 = hn::Zero(d), sum1 = sum0;
  size_t i = 0;
  for (; i + 2 * lanes <= dim; i += 2 * lanes) {
    fetch_next_rows(static_cast<int64_t>(dim), static_cast<int64_t>(i), x);
    fetch_next_rows(static_cast<int64_t>(dim), static_cast<int64_t>(i + lanes), x);
    const auto e0 = exp_nonpositive(d, hn::Sub(load_numbers(d, x + i), maximum));
    const auto e1 = exp_nonpositive(d, hn::Sub(load_numbers(d, x + i + lanes), maximum));
    hn::StoreU(e0, d, powers + i);
    hn::StoreU(e1, d, powers + i + lanes);
    sum0 = hn::Add(sum0, e0);
    sum1 = hn::Add(sum1, e1);
  }
  while (i < dim) {
    const size_t count = HWY_MIN(lanes, dim - i);
    const auto part =
        count == lanes ? load_numbers(d, x + i) : load_first(d, x + i, static_cast<int64_t>(count));
    const auto e =
        hn::IfThenElseZero(hn::FirstN(d, count), exp_nonpositive(d, hn::Sub(part, maximum)));
    if (count == lanes) {
      hn::StoreU(e, d, powers + i);
    } else {
      store_first(e, d, powers + i, static_cast<int64_t>(count));
    }
    sum0 = hn::Add(sum0, e);
    i += count;
  }
  const float total = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  const auto scale = hn::Set(d, 1.0f / total);
  map_row(y, dim, [&](auto load) HWY_ATTR { return hn::Mul(load(powers), scale); });
}

template <class T>
void log_softmax_numbers(const T* x, size_t dim, T* y) {
  const Float d;
  const float maximum = row_maximum(x, dim);
  const auto top = hn::Set(d, maximum);
  const auto log_sum = hn::Set(d, std::log(sum_of_exp(x, dim, maximum)));
  map_row(y, dim, [&](auto load) HWY_ATTR { return hn::Sub(hn::Sub(load(x), top), log_sum); });
}

// ---- The same of a row of numbers of any type.

// body(from, to) for numbers of `dtype` and results of that type or, of floats, in bfloat16.
template <class Body>
HWY_INLINE void with_norm_types(DType dtype, bool to_bf16, const Body& body) {
  if (to_bf16) return body(float(), uint16_t());
  with_number_type(dtype, [&](auto number) HWY_ATTR { body(number, number); });
}

void rms_norm_row(DType dtype, bool to_bf16, const void* x, size_t dim, const void* w, float eps,
                  void* y) {
  with_norm_types(dtype, to_bf16, [&](auto from, auto to) HWY_ATTR {
    using T = decltype(from);
    rms_norm_numbers(static_cast<const T*>(x), dim, static_cast<const T*>(w), eps,
                     static_cast<decltype(to)*>(y));
  });
}

void layer_norm_row(DType dtype, bool to_bf16, const void* x, size_t dim, const void* w,
                    const void* b, float eps, void* y) {
  with_norm_types(dtype, to_bf16, [&](auto from, auto to) HWY_ATTR {
    using T = decltype(from);
    layer_norm_numbers(static_cast<const T*>(x), dim, static_cast<const T*>(w),
                       static_cast<const T*>(b), eps, static_cast<decltype(to)*>(y));
  });
}

void softmax_row(DType dtype, const void* x, size_t dim, float* powers, void* y) {
  with_number_type(dtype, [&](auto number) HWY_ATTR {
    using T = decltype(number);
    softmax_numbers(static_cast<const T*>(x), dim, powers, static_cast<T*>(y));
  });
}

void log_softmax_row(DType dtype, const void* x, size_t dim, void* y) {
  with_number_type(dtype, [&](auto number) HWY_ATTR {
    using T = decltype(number);
    log_softmax_numbers(static_cast<const T*>(x), dim, static_cast<T*>(y));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

HWY_EXPORT(rms_norm_row);
HWY_EXPORT(layer_norm_row);
HWY_EXPORT(softmax_row);
HWY_EXPORT(log_softmax_row);

namespace {

int64_t row_grain(const Rows& x) {
  return std::max<int64_t>(1, 4096 / std::max<int64_t>(1, x.dim));
}

// Runs kernel(x's row, y's row, thread) for every row, on several threads where that pays (a
// fork-join costs about as much as 4096 elements).
template <class Kernel>
void for_each_row(ThreadPool& pool, const Rows& x, DType y_type, void* y, int64_t y_stride,
                  const Kernel& kernel) {
  pool.parallel_for(x.rows, row_grain(x), [&](int64_t begin, int64_t end, int thread) {
    RowWriter writer(x.rows, x.dim, y_type, x.data == y);
    for (int64_t row = begin; row < end; ++row) {
      writer.write(number_address(y_type, y, row * y_stride),
                   [&](void* to) { kernel(x.row(row), to, thread); });
    }
  });
}

DType norm_type(const Rows& x, bool to_bf16) {
  LUMEN_CHECK(!to_bf16 || x.dtype == DType::kF32);
  return to_bf16 ? DType::kBF16 : x.dtype;
}

// Floats of a row's powers.
int64_t powers_stride(int64_t dim) {
  return round_up(dim, int64_t{16});
}

}  // namespace

void rms_norm(ThreadPool& pool, const Rows& x, const void* w, float eps, void* y, int64_t y_stride,
              bool to_bf16) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(rms_norm_row);
  for_each_row(pool, x, norm_type(x, to_bf16), y, y_stride, [&](const void* from, void* to, int) {
    kernel(x.dtype, to_bf16, from, static_cast<size_t>(x.dim), w, eps, to);
  });
}

void layer_norm(ThreadPool& pool, const Rows& x, const void* w, const void* b, float eps, void* y,
                int64_t y_stride, bool to_bf16) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(layer_norm_row);
  for_each_row(pool, x, norm_type(x, to_bf16), y, y_stride, [&](const void* from, void* to, int) {
    kernel(x.dtype, to_bf16, from, static_cast<size_t>(x.dim), w, b, eps, to);
  });
}

size_t softmax_workspace_bytes(DType dtype, int64_t dim, int threads) {
  if (dtype == DType::kF32) return 0;
  return static_cast<size_t>(threads * powers_stride(dim)) * sizeof(float);
}

void softmax(ThreadPool& pool, const Rows& x, void* y, int64_t y_stride, std::byte* workspace) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(softmax_row);
  for_each_row(pool, x, x.dtype, y, y_stride, [&](const void* from, void* to, int thread) {
    float* const powers = x.dtype == DType::kF32
                              ? static_cast<float*>(to)
                              : reinterpret_cast<float*>(workspace) + thread * powers_stride(x.dim);
    kernel(x.dtype, from, static_cast<size_t>(x.dim), powers, to);
  });
}

void log_softmax(ThreadPool& pool, const Rows& x, void* y, int64_t y_stride) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(log_softmax_row);
  for_each_row(pool, x, x.dtype, y, y_stride, [&](const void* from, void* to, int) {
    kernel(x.dtype, from, static_cast<size_t>(x.dim), to);
  });
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
