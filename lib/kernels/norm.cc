#include "lib/kernels/norm.h"

#include <algorithm>
#include <cmath>

#include "lib/base/check.h"
#include "lib/kernels/bf16_panels.h"
#include "lib/kernels/streaming.h"
#include "lib/kernels/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/norm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

// y[i] = f(x[i], i) by whole vectors and a partial one; load(p) inside f reads p[i…] alike.
template <class F>
HWY_INLINE void map_row(float* y, size_t dim, const F& f) {
  const Float d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= dim; i += lanes) {
    hn::StoreU(f([&](const float* p) HWY_ATTR { return hn::LoadU(d, p + i); }), d, y + i);
  }
  if (i == dim) return;
  const size_t rest = dim - i;
  store_partial(f([&](const float* p) HWY_ATTR { return load_partial(d, p + i, rest); }), d, y + i,
                rest);
}

void rms_norm_row(const float* x, size_t dim, const float* w, float eps, float* y) {
  const Float d;
  const float squares =
      sum_of(x, dim, [](auto v, auto sum) HWY_ATTR { return hn::MulAdd(v, v, sum); });
  const auto scale = hn::Set(d, 1.0f / std::sqrt(squares / static_cast<float>(dim) + eps));
  if (w) {
    map_row(y, dim, [&](auto load) HWY_ATTR { return hn::Mul(hn::Mul(load(x), scale), load(w)); });
  } else {
    map_row(y, dim, [&](auto load) HWY_ATTR { return hn::Mul(load(x), scale); });
  }
}

void layer_norm_row(const float* x, size_t dim, const float* w, const float* b, float eps,
                    float* y) {
  const Float d;
  const auto count = static_cast<float>(dim);
  const float total = sum_of(x, dim, [](auto v, auto sum) HWY_ATTR { return hn::Add(sum, v); });
  const auto mean = hn::Set(d, total / count);
  const float squares = sum_of(x, dim, [&](auto v, auto sum) HWY_ATTR {
    const auto deviation = hn::Sub(v, mean);
    return hn::MulAdd(deviation, deviation, sum);
  });
  const auto scale = hn::Set(d, 1.0f / std::sqrt(squares / count + eps));
  map_row(y, dim, [&](auto load) HWY_ATTR {
    auto v = hn::Mul(hn::Sub(load(x), mean), scale);
    if (w) v = hn::Mul(v, load(w));
    return b ? hn::Add(v, load(b)) : v;
  });
}

// Subtracting the maximum makes every exponent ≤ 0 and the sum ≥ 1. NaN reaches the sum through
// exp; a row of only −inf gives −inf − (−inf) = NaN.
void softmax_row(const float* x, size_t dim, float* y) {
  const Float d;
  const size_t lanes = hn::Lanes(d);
  const auto maximum = hn::Set(d, row_maximum(x, dim));
  FloatVec sum0 = hn::Zero(d), sum1 = sum0;
  size_t i = 0;
  for (; i + 2 * lanes <= dim; i += 2 * lanes) {
    const auto e0 = exp_nonpositive(d, hn::Sub(hn::LoadU(d, x + i), maximum));
    const auto e1 = exp_nonpositive(d, hn::Sub(hn::LoadU(d, x + i + lanes), maximum));
    hn::StoreU(e0, d, y + i);
    hn::StoreU(e1, d, y + i + lanes);
    sum0 = hn::Add(sum0, e0);
    sum1 = hn::Add(sum1, e1);
  }
  while (i < dim) {
    const size_t count = HWY_MIN(lanes, dim - i);
    const auto part = count == lanes ? hn::LoadU(d, x + i) : load_partial(d, x + i, count);
    const auto e =
        hn::IfThenElseZero(hn::FirstN(d, count), exp_nonpositive(d, hn::Sub(part, maximum)));
    if (count == lanes) {
      hn::StoreU(e, d, y + i);
    } else {
      store_partial(e, d, y + i, count);
    }
    sum0 = hn::Add(sum0, e);
    i += count;
  }
  const float total = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  const auto scale = hn::Set(d, 1.0f / total);
  map_row(y, dim, [&](auto load) HWY_ATTR { return hn::Mul(load(y), scale); });
}

void log_softmax_row(const float* x, size_t dim, float* y) {
  const Float d;
  const float maximum = row_maximum(x, dim);
  const auto top = hn::Set(d, maximum);
  const auto log_sum = hn::Set(d, std::log(sum_of_exp(x, dim, maximum)));
  map_row(y, dim, [&](auto load) HWY_ATTR { return hn::Sub(hn::Sub(load(x), top), log_sum); });
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

// Runs kernel(x's row, y's row) for every row, on several threads where that pays (a fork-join
// costs about as much as 4096 elements).
template <class Kernel>
void for_each_row(ThreadPool& pool, const Rows& x, float* y, int64_t y_stride,
                  const Kernel& kernel) {
  pool.parallel_for(x.rows, row_grain(x), [&](int64_t begin, int64_t end, int) {
    RowWriter writer(x.rows, x.dim, x.data == y);
    for (int64_t row = begin; row < end; ++row) {
      writer.write(y + row * y_stride, [&](float* to) { kernel(x.data + row * x.stride, to); });
    }
  });
}

// The same, of rows that may be rounded.
template <class Kernel>
void for_each_stored_row(ThreadPool& pool, const Rows& x, float* y, int64_t y_stride, DType y_type,
                         const Kernel& kernel) {
  if (y_type == DType::kF32) return for_each_row(pool, x, y, y_stride, kernel);
  LUMEN_CHECK(x.dim <= kMaxRoundedDim);
  pool.parallel_for(x.rows, row_grain(x), [&](int64_t begin, int64_t end, int) {
    alignas(64) float buffer[kMaxRoundedDim];
    for (int64_t row = begin; row < end; ++row) {
      kernel(x.data + row * x.stride, buffer);
      round_row(buffer, x.dim, bf16_numbers(y) + row * y_stride);
    }
  });
}

}  // namespace

void rms_norm(ThreadPool& pool, const Rows& x, const float* w, float eps, float* y,
              int64_t y_stride, DType y_type) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(rms_norm_row);
  for_each_stored_row(pool, x, y, y_stride, y_type, [&](const float* from, float* to) {
    kernel(from, static_cast<size_t>(x.dim), w, eps, to);
  });
}

void layer_norm(ThreadPool& pool, const Rows& x, const float* w, const float* b, float eps,
                float* y, int64_t y_stride, DType y_type) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(layer_norm_row);
  for_each_stored_row(pool, x, y, y_stride, y_type, [&](const float* from, float* to) {
    kernel(from, static_cast<size_t>(x.dim), w, b, eps, to);
  });
}

void softmax(ThreadPool& pool, const Rows& x, float* y, int64_t y_stride) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(softmax_row);
  for_each_row(pool, x, y, y_stride,
               [&](const float* from, float* to) { kernel(from, static_cast<size_t>(x.dim), to); });
}

void log_softmax(ThreadPool& pool, const Rows& x, float* y, int64_t y_stride) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(log_softmax_row);
  for_each_row(pool, x, y, y_stride,
               [&](const float* from, float* to) { kernel(from, static_cast<size_t>(x.dim), to); });
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
