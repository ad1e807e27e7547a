#include "lib/kernels/batch_norm.h"

#include <algorithm>
#include <cmath>

#include "lib/kernels/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/batch_norm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

using ChannelFloat = hn::ScalableTag<float>;
using ChannelVector = hn::Vec<ChannelFloat>;

// Adds to sum[0] and sum[1] what f adds for every element: f(i, load, sum0, sum1), where load(p)
// reads p[i …].
template <class F>
HWY_INLINE void sum_row(int64_t n, double* sum, const F& f) {
  const ChannelFloat d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  ChannelVector a0 = hn::Zero(d), a1 = a0, b0 = a0, b1 = a0;
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    f([&](const float* p) HWY_ATTR { return hn::LoadU(d, p + i); }, a0, b0);
    f([&](const float* p) HWY_ATTR { return hn::LoadU(d, p + i + lanes); }, a1, b1);
  }
  for (; i + lanes <= n; i += lanes) {
    f([&](const float* p) HWY_ATTR { return hn::LoadU(d, p + i); }, a0, b0);
  }
  if (i < n) {
    const auto rest = static_cast<size_t>(n - i);
    ChannelVector a = hn::Zero(d), b = a;
    f([&](const float* p) HWY_ATTR { return load_partial(d, p + i, rest); }, a, b);
    const auto valid = hn::FirstN(d, rest);
    a1 = hn::Add(a1, hn::IfThenElseZero(valid, a));
    b1 = hn::Add(b1, hn::IfThenElseZero(valid, b));
  }
  sum[0] += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(a0, a1))));
  sum[1] += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(b0, b1))));
}

// y[i] = f(load).
template <class F>
HWY_INLINE void map_row_of(float* y, int64_t n, const F& f) {
  const ChannelFloat d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(f([&](const float* p) HWY_ATTR { return hn::LoadU(d, p + i); }), d, y + i);
  }
  if (i == n) return;
  const auto rest = static_cast<size_t>(n - i);
  store_partial(f([&](const float* p) HWY_ATTR { return load_partial(d, p + i, rest); }), d, y + i,
                rest);
}

void channel_forward(const ChannelShape& s, int64_t c, const float* x, const float* w,
                     const float* b, float eps, float* y, float* mean, float* var) {
  const ChannelFloat d;
  const auto n = static_cast<double>(s.batch * s.pixels);
  const int64_t stride = s.channels * s.pixels;
  x += c * s.pixels;
  y += c * s.pixels;
  double sums[2] = {};
  for (int64_t i = 0; i < s.batch; ++i) {
    const float* row = x + i * stride;
    sum_row(s.pixels, sums, [&](auto load, ChannelVector& sum, ChannelVector&) HWY_ATTR {
      sum = hn::Add(sum, load(row));
    });
  }
  mean[c] = static_cast<float>(sums[0] / n);
  const auto center = hn::Set(d, mean[c]);
  double squares[2] = {};
  for (int64_t i = 0; i < s.batch; ++i) {
    const float* row = x + i * stride;
    sum_row(s.pixels, squares, [&](auto load, ChannelVector& sum, ChannelVector&) HWY_ATTR {
      const auto v = hn::Sub(load(row), center);
      sum = hn::MulAdd(v, v, sum);
    });
  }
  var[c] = static_cast<float>(squares[0] / n);
  const auto scale = hn::Set(d, (w ? w[c] : 1.0f) / std::sqrt(var[c] + eps));
  const auto shift = hn::Set(d, b ? b[c] : 0.0f);
  for (int64_t i = 0; i < s.batch; ++i) {
    const float* row = x + i * stride;
    map_row_of(y + i * stride, s.pixels, [&](auto load) HWY_ATTR {
      return hn::MulAdd(hn::Sub(load(row), center), scale, shift);
    });
  }
}

void channel_backward(const ChannelShape& s, int64_t c, const float* x, const float* w,
                      const float* mean, const float* var, float eps, const BatchNormGradients& g) {
  const ChannelFloat d;
  const auto n = static_cast<double>(s.batch * s.pixels);
  const int64_t stride = s.channels * s.pixels, corner = c * s.pixels;
  const auto center = hn::Set(d, mean[c]);
  double sums[2] = {};  // of dy and of dy · (x − mean)
  for (int64_t i = 0; i < s.batch; ++i) {
    const float *row = x + corner + i * stride, *dy = g.dy + corner + i * stride;
    sum_row(s.pixels, sums, [&](auto load, ChannelVector& sum, ChannelVector& product) HWY_ATTR {
      const auto v = load(dy);
      sum = hn::Add(sum, v);
      product = hn::MulAdd(v, hn::Sub(load(row), center), product);
    });
  }
  const double inverse = 1.0 / std::sqrt(static_cast<double>(var[c] + eps));
  const double scale = (w ? static_cast<double>(w[c]) : 1.0) * inverse;
  g.db[c] = static_cast<float>(sums[0]);
  g.dw[c] = static_cast<float>(sums[1] * inverse);
  // dx = scale · (dy − Σdy / n − (x − mean) · Σ dy (x − mean) / (n · (var + eps))), and what mean
  // and var give.
  const auto slope = hn::Set(
      d, static_cast<float>(
             (2 * static_cast<double>(g.dvar[c]) - scale * sums[1] * inverse * inverse) / n));
  const auto shift =
      hn::Set(d, static_cast<float>((static_cast<double>(g.dmean[c]) - scale * sums[0]) / n));
  const auto factor = hn::Set(d, static_cast<float>(scale));
  for (int64_t i = 0; i < s.batch; ++i) {
    const float *row = x + corner + i * stride, *dy = g.dy + corner + i * stride;
    map_row_of(g.dx + corner + i * stride, s.pixels, [&](auto load) HWY_ATTR {
      return hn::MulAdd(load(dy), factor, hn::MulAdd(hn::Sub(load(row), center), slope, shift));
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
namespace {
HWY_EXPORT(channel_forward);
HWY_EXPORT(channel_backward);

// Channels per task, so that a task has some thousand numbers and neighbours share cache lines.
int64_t channel_grain(const ChannelShape& s) {
  return std::max<int64_t>(16 / std::max<int64_t>(1, std::min<int64_t>(16, s.pixels)),
                           4096 / std::max<int64_t>(1, s.batch * s.pixels));
}
}  // namespace

void batch_norm(ThreadPool& pool, const ChannelShape& shape, const float* x, const float* w,
                const float* b, float eps, float* y, float* mean, float* var) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(channel_forward);
  pool.parallel_for(shape.channels, channel_grain(shape), [&](int64_t begin, int64_t end, int) {
    for (int64_t c = begin; c < end; ++c) kernel(shape, c, x, w, b, eps, y, mean, var);
  });
}

void batch_norm_backward(ThreadPool& pool, const ChannelShape& shape, const float* x,
                         const float* w, const float* mean, const float* var, float eps,
                         const BatchNormGradients& gradients) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(channel_backward);
  pool.parallel_for(shape.channels, channel_grain(shape), [&](int64_t begin, int64_t end, int) {
    for (int64_t c = begin; c < end; ++c) kernel(shape, c, x, w, mean, var, eps, gradients);
  });
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
