#include "lib/kernels/batch_norm.h"

#include <algorithm>
#include <cmath>

#include "lib/base/round_up.h"
#include "lib/kernels/simd/targets-inl.h"
#include "lib/kernels/streaming.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/batch_norm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/planes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

// Adds to sum[0] and sum[1] what f adds for every vector: f(load, sum0, sum1), where load(p)
// reads that of the array at p.
template <class F>
HWY_INLINE void sum_row(int64_t n, double* sum, const F& f) {
  const Float d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  FloatVec a0 = hn::Zero(d), a1 = a0, b0 = a0, b1 = a0;
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    f([&](const auto* p) HWY_ATTR { return load_numbers(d, p + i); }, a0, b0);
    f([&](const auto* p) HWY_ATTR { return load_numbers(d, p + i + lanes); }, a1, b1);
  }
  for (; i + lanes <= n; i += lanes) {
    f([&](const auto* p) HWY_ATTR { return load_numbers(d, p + i); }, a0, b0);
  }
  if (i < n) {
    const int64_t rest = n - i;
    FloatVec a = hn::Zero(d), b = a;
    f([&](const auto* p) HWY_ATTR { return load_first(d, p + i, rest); }, a, b);
    const auto valid = hn::FirstN(d, static_cast<size_t>(rest));
    a1 = hn::Add(a1, hn::IfThenElseZero(valid, a));
    b1 = hn::Add(b1, hn::IfThenElseZero(valid, b));
  }
  sum[0] += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(a0, a1))));
  sum[1] += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(b0, b1))));
}

// ---- One channel whose pixels lie together.

// y = (x − mean) · factor + shift, before relu.
HWY_INLINE float forward_factor(const BatchNormScale& scale, int64_t c, float var) {
  return (scale.w ? scale.w[c] : 1.0f) / std::sqrt(var + scale.eps);
}
HWY_INLINE float forward_shift(const BatchNormScale& scale, int64_t c) {
  return scale.b ? scale.b[c] : 0.0f;
}

template <bool kRelu>
HWY_INLINE FloatVec scaled(FloatVec centered, FloatVec factor, FloatVec shift) {
  const auto y = hn::MulAdd(centered, factor, shift);
  if constexpr (!kRelu) return y;
  return hn::IfThenZeroElse(hn::Lt(y, hn::Zero(Float())), y);
}

// The gradient of what `scaled` is before relu.
template <bool kRelu>
HWY_INLINE FloatVec scaled_gradient(FloatVec dy, FloatVec centered, FloatVec factor,
                                    FloatVec shift) {
  if constexpr (!kRelu) return dy;
  const auto y = hn::MulAdd(centered, factor, shift);
  return hn::IfThenElseZero(hn::Lt(hn::Zero(Float()), y), dy);
}

template <class T>
void channel_statistics(const ChannelShape& s, int64_t c, const T* x, float* mean, float* var) {
  const auto n = static_cast<double>(s.batch * s.pixels);
  const int64_t stride = s.channels * s.pixels;
  x += c * s.pixels;
  double sums[2] = {};
  for (int64_t i = 0; i < s.batch; ++i) {
    const T* row = x + i * stride;
    sum_row(s.pixels, sums,
            [&](auto load, FloatVec& sum, FloatVec&) HWY_ATTR { sum = hn::Add(sum, load(row)); });
  }
  mean[c] = static_cast<float>(sums[0] / n);
  const auto center = hn::Set(Float(), mean[c]);
  double squares[2] = {};
  for (int64_t i = 0; i < s.batch; ++i) {
    const T* row = x + i * stride;
    sum_row(s.pixels, squares, [&](auto load, FloatVec& sum, FloatVec&) HWY_ATTR {
      const auto v = hn::Sub(load(row), center);
      sum = hn::MulAdd(v, v, sum);
    });
  }
  var[c] = static_cast<float>(squares[0] / n);
}

// What y of `count` channels from c on, at most kMostChannels, is made with, as above.
struct Forward {
  Forward(const BatchNormScale& scale, int64_t c, int64_t count, const float* means,
          const float* var)
      : mean(means + c) {
    for (int64_t i = 0; i < count; ++i) {
      factor[i] = forward_factor(scale, c + i, var[c + i]);
      shift[i] = forward_shift(scale, c + i);
    }
  }

  const float* mean;
  float factor[kMostChannels], shift[kMostChannels];
};

// y of `count` channels of one sample, which lie one after another.
template <bool kRelu, class T>
HWY_INLINE void run_forward(const Forward& forward, int64_t count, int64_t pixels, bool streamed,
                            const T* x, T* y) {
  if (pixels == 1) {
    for_each_vector(0, count, [&](auto load, auto store) HWY_ATTR {
      const auto centered = hn::Sub(load(x), load(forward.mean));
      store(scaled<kRelu>(centered, load(forward.factor), load(forward.shift)), y);
    });
    return;
  }
  const Float d;
  write_planes(streamed, count, pixels, y,
               [&](int64_t c, int64_t begin, int64_t n, T* to) HWY_ATTR {
                 const T* const from = x + c * pixels + begin;
                 const auto center = hn::Set(d, forward.mean[c]);
                 const auto factor = hn::Set(d, forward.factor[c]);
                 const auto shift = hn::Set(d, forward.shift[c]);
                 for_each_vector(0, n, [&](auto load, auto store) HWY_ATTR {
                   store(scaled<kRelu>(hn::Sub(load(from), center), factor, shift), to);
                 });
               });
}

// dx = factor · dy + slope · (x − mean) + shift
struct InputGradient {
  float factor, slope, shift;
};

// Also stores dw and db. sums: of dy and of dy · (x − mean); n numbers per channel.
//   dx = scale · (dy − Σdy / n − (x − mean) · Σ dy (x − mean) / (n · (var + eps))), and what mean
//   and var give; scale = w / √(var + eps)
HWY_INLINE InputGradient input_gradient(double n, int64_t c, const double (&sums)[2],
                                        const BatchNormScale& forward, const float* var,
                                        const BatchNormGradients& g) {
  const double inverse = 1.0 / std::sqrt(static_cast<double>(var[c] + forward.eps));
  const double scale = (forward.w ? static_cast<double>(forward.w[c]) : 1.0) * inverse;
  g.db[c] = static_cast<float>(sums[0]);
  g.dw[c] = static_cast<float>(sums[1] * inverse);
  return {.factor = static_cast<float>(scale),
          .slope = static_cast<float>(
              (2 * static_cast<double>(g.dvar[c]) - scale * sums[1] * inverse * inverse) / n),
          .shift = static_cast<float>((static_cast<double>(g.dmean[c]) - scale * sums[0]) / n)};
}

template <bool kRelu, class X, class Y>
void channel_backward(const ChannelShape& s, int64_t c, const X* x, const Y* gradient,
                      const BatchNormScale& scale, const float* mean, const float* var,
                      const BatchNormGradients& g) {
  const Float d;
  const auto n = static_cast<double>(s.batch * s.pixels);
  const int64_t stride = s.channels * s.pixels, corner = c * s.pixels;
  const auto center = hn::Set(d, mean[c]);
  const auto y_factor = hn::Set(d, forward_factor(scale, c, var[c]));
  const auto y_shift = hn::Set(d, forward_shift(scale, c));
  double sums[2] = {};  // of dy and of dy · (x − mean)
  for (int64_t i = 0; i < s.batch; ++i) {
    const X* row = x + corner + i * stride;
    const Y* dy = gradient + corner + i * stride;
    sum_row(s.pixels, sums, [&](auto load, FloatVec& sum, FloatVec& product) HWY_ATTR {
      const auto centered = hn::Sub(load(row), center);
      const auto v = scaled_gradient<kRelu>(load(dy), centered, y_factor, y_shift);
      sum = hn::Add(sum, v);
      product = hn::MulAdd(v, centered, product);
    });
  }
  const InputGradient dx = input_gradient(n, c, sums, scale, var, g);
  const auto factor = hn::Set(d, dx.factor), slope = hn::Set(d, dx.slope);
  const auto shift = hn::Set(d, dx.shift);
  for (int64_t i = 0; i < s.batch; ++i) {
    const X* row = x + corner + i * stride;
    const Y* dy = gradient + corner + i * stride;
    for_each_vector(0, s.pixels, [&](auto load, auto store) HWY_ATTR {
      const auto centered = hn::Sub(load(row), center);
      const auto v = scaled_gradient<kRelu>(load(dy), centered, y_factor, y_shift);
      store(hn::MulAdd(v, factor, hn::MulAdd(centered, slope, shift)), g.dx + corner + i * stride);
    });
  }
}

// ---- Channels of one pixel, some beside each other: vectors over channels, with the bits of the
// functions above.

// sums[k][at …] += what f(row, v, s) stores in s[k] for vector v of kVectors: in double, in the
// order of the rows.
template <int kSums, int kVectors, class F>
HWY_INLINE void add_vectors(int64_t rows, int64_t at, double* const (&sums)[kSums], const F& f) {
  const hn::Repartition<double, Float> d;
  const hn::Half<Float> half;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> low[kSums][kVectors], high[kSums][kVectors];
  for (int k = 0; k < kSums; ++k) {
    for (int v = 0; v < kVectors; ++v) {
      low[k][v] = hn::Load(d, sums[k] + at + 2 * v * lanes);
      high[k][v] = hn::Load(d, sums[k] + at + (2 * v + 1) * lanes);
    }
  }
  for (int64_t row = 0; row < rows; ++row) {
    HWY_UNROLL(2)
    for (int v = 0; v < kVectors; ++v) {
      FloatVec s[kSums];
      f(row, v, s);
      HWY_UNROLL(2)
      for (int k = 0; k < kSums; ++k) {
        low[k][v] = hn::Add(low[k][v], hn::PromoteTo(d, hn::LowerHalf(half, s[k])));
        high[k][v] = hn::Add(high[k][v], hn::PromoteTo(d, hn::UpperHalf(half, s[k])));
      }
    }
  }
  for (int k = 0; k < kSums; ++k) {
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(low[k][v], d, sums[k] + at + 2 * v * lanes);
      hn::Store(high[k][v], d, sums[k] + at + (2 * v + 1) * lanes);
    }
  }
}

// The same for channels [0, count) of rows [0, rows), where f(row, load, s) gets load(p), which
// reads the vector of the array at p. Some vectors of channels at a time, whose sums stay in
// registers through a block of rows that the second cache holds.
template <int kSums, class F>
HWY_INLINE void add_channels(int64_t rows, int64_t count, double* const (&sums)[kSums],
                             const F& f) {
  const Float d;
  constexpr int kVectors = 2 / kSums;
  constexpr int64_t kRows = 64;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t first = 0; first < rows; first += kRows) {
    const int64_t n = std::min(kRows, rows - first);
    int64_t i = 0;
    const auto whole = [&](int64_t row, int v, FloatVec(&s)[kSums]) HWY_ATTR {
      f(
          first + row, [&](const auto* p) HWY_ATTR { return load_numbers(d, p + i + v * lanes); },
          s);
    };
    for (; kVectors > 1 && i + kVectors * lanes <= count; i += kVectors * lanes) {
      add_vectors<kSums, kVectors>(n, i, sums, whole);
    }
    for (; i + lanes <= count; i += lanes) add_vectors<kSums, 1>(n, i, sums, whole);
    if (i == count) continue;
    add_vectors<kSums, 1>(n, i, sums, [&](int64_t row, int, FloatVec(&s)[kSums]) HWY_ATTR {
      f(
          first + row, [&](const auto* p) HWY_ATTR { return load_first(d, p + i, count - i); }, s);
    });
  }
}

// Channels [c, c + count), at most kMostChannels.
template <class T>
void single_pixels_statistics(const ChannelShape& s, int64_t c, int64_t count, const T* x,
                              float* mean, float* var) {
  const auto n = static_cast<double>(s.batch);
  x += c;
  mean += c;
  HWY_ALIGN double sums[kMostChannels] = {}, squares[kMostChannels] = {};
  add_channels<1>(s.batch, count, {sums}, [&](int64_t row, auto load, FloatVec(&v)[1]) HWY_ATTR {
    v[0] = load(x + row * s.channels);
  });
  for (int64_t i = 0; i < count; ++i) mean[i] = static_cast<float>(sums[i] / n);
  add_channels<1>(s.batch, count, {squares}, [&](int64_t row, auto load, FloatVec(&v)[1]) HWY_ATTR {
    const auto centered = hn::Sub(load(x + row * s.channels), load(mean));
    v[0] = hn::Mul(centered, centered);
  });
  for (int64_t i = 0; i < count; ++i) var[c + i] = static_cast<float>(squares[i] / n);
}

template <bool kRelu, class X, class Y>
void single_pixels_backward(const ChannelShape& s, int64_t c, int64_t count, const X* x,
                            const Y* dy, const BatchNormScale& scale, const float* mean,
                            const float* var, const BatchNormGradients& g) {
  dy += c;
  x += c;
  const Forward forward(scale, c, count, mean, var);
  mean += c;
  HWY_ALIGN double sums[kMostChannels] = {}, products[kMostChannels] = {};
  add_channels<2>(s.batch, count, {sums, products},
                  [&](int64_t row, auto load, FloatVec(&v)[2]) HWY_ATTR {
                    const auto centered = hn::Sub(load(x + row * s.channels), load(mean));
                    v[0] = scaled_gradient<kRelu>(load(dy + row * s.channels), centered,
                                                  load(forward.factor), load(forward.shift));
                    v[1] = hn::Mul(v[0], centered);
                  });
  float factor[kMostChannels], slope[kMostChannels], shift[kMostChannels];
  for (int64_t i = 0; i < count; ++i) {
    const InputGradient dx =
        input_gradient(static_cast<double>(s.batch), c + i, {sums[i], products[i]}, scale, var, g);
    factor[i] = dx.factor;
    slope[i] = dx.slope;
    shift[i] = dx.shift;
  }
  for (int64_t row = 0; row < s.batch; ++row) {
    for_each_vector(0, count, [&](auto load, auto store) HWY_ATTR {
      const auto centered = hn::Sub(load(x + row * s.channels), load(mean));
      const auto v = scaled_gradient<kRelu>(load(dy + row * s.channels), centered,
                                            load(forward.factor), load(forward.shift));
      store(hn::MulAdd(v, load(factor), hn::MulAdd(centered, load(slope), load(shift))),
            g.dx + c + row * s.channels);
    });
  }
}

// ---- Channels [begin, end), at most kMostChannels of one pixel.

void channels_statistics(const ChannelShape& s, int64_t begin, int64_t end, const void* x,
                         float* mean, float* var) {
  with_number_type(s.dtype, [&](auto number) HWY_ATTR {
    const auto* numbers = static_cast<const decltype(number)*>(x);
    if (s.pixels == 1) return single_pixels_statistics(s, begin, end - begin, numbers, mean, var);
    for (int64_t c = begin; c < end; ++c) channel_statistics(s, c, numbers, mean, var);
  });
}

// y of samples [first, last).
template <bool kRelu>
HWY_INLINE void forward(const ChannelShape& s, int64_t begin, int64_t end, int64_t first,
                        int64_t last, bool streamed, const void* x, const BatchNormScale& scale,
                        const float* mean, const float* var, void* y) {
  const Forward forward(scale, begin, end - begin, mean, var);
  with_number_type(s.dtype, [&](auto number) HWY_ATTR {
    using T = decltype(number);
    for (int64_t sample = first; sample < last; ++sample) {
      const int64_t at = (sample * s.channels + begin) * s.pixels;
      run_forward<kRelu>(forward, end - begin, s.pixels, streamed, static_cast<const T*>(x) + at,
                         static_cast<T*>(y) + at);
    }
  });
}
void channels_forward(const ChannelShape& s, int64_t begin, int64_t end, int64_t first,
                      int64_t last, bool streamed, const void* x, const BatchNormScale& scale,
                      const float* mean, const float* var, void* y) {
  const auto part = scale.relu ? forward<true> : forward<false>;
  part(s, begin, end, first, last, streamed, x, scale, mean, var, y);
}

template <bool kRelu>
HWY_INLINE void backward(const ChannelShape& s, int64_t begin, int64_t end, const void* x,
                         const BatchNormScale& scale, const float* mean, const float* var,
                         const BatchNormGradients& g) {
  with_gradient_types({s.dtype, g.dy_type}, [&](auto of_x, auto of_dy) HWY_ATTR {
    const auto* numbers = static_cast<const decltype(of_x)*>(x);
    const auto* dy = static_cast<const decltype(of_dy)*>(g.dy);
    if (s.pixels == 1) {
      return single_pixels_backward<kRelu>(s, begin, end - begin, numbers, dy, scale, mean, var, g);
    }
    for (int64_t c = begin; c < end; ++c) {
      channel_backward<kRelu>(s, c, numbers, dy, scale, mean, var, g);
    }
  });
}
void channels_backward(const ChannelShape& s, int64_t begin, int64_t end, const void* x,
                       const BatchNormScale& scale, const float* mean, const float* var,
                       const BatchNormGradients& g) {
  const auto part = scale.relu ? backward<true> : backward<false>;
  part(s, begin, end, x, scale, mean, var, g);
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
namespace {
HWY_EXPORT(channels_statistics);
HWY_EXPORT(channels_forward);
HWY_EXPORT(channels_backward);

// body(begin, end) for channels on several threads: so many that a task has some thousand numbers
// and neighbours share cache lines, and what is computed together stays in a cache.
template <class Body>
void for_runs_of_channels(ThreadPool& pool, const ChannelShape& s, const Body& body) {
  const int64_t grain =
      std::max<int64_t>(16 / std::max<int64_t>(1, std::min<int64_t>(16, s.pixels)),
                        4096 / std::max<int64_t>(1, s.batch * s.pixels));
  const int64_t together = s.pixels == 1 ? kMostChannels : 1;
  pool.parallel_for(s.channels, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t c = begin; c < end; c += together) body(c, std::min(c + together, end));
  });
}
}  // namespace

void batch_norm(ThreadPool& pool, const ChannelShape& shape, const void* x,
                const BatchNormScale& scale, void* y, float* mean, float* var) {
  const auto add_up = HWY_DYNAMIC_DISPATCH(channels_statistics);
  const auto kernel = HWY_DYNAMIC_DISPATCH(channels_forward);
  for_runs_of_channels(pool, shape, [&](int64_t begin, int64_t end) {
    add_up(shape, begin, end, x, mean, var);
    kernel(shape, begin, end, 0, shape.batch, false, x, scale, mean, var, y);
  });
}

void batch_norm_statistics(ThreadPool& pool, const ChannelShape& shape, const void* x, float* mean,
                           float* var) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(channels_statistics);
  for_runs_of_channels(
      pool, shape, [&](int64_t begin, int64_t end) { kernel(shape, begin, end, x, mean, var); });
}

void batch_norm_with(ThreadPool& pool, const ChannelShape& shape, const void* x,
                     const BatchNormScale& scale, const float* mean, const float* var, void* y) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(channels_forward);
  // Runs of channels of a sample, in the order of memory if there are not too many of them.
  constexpr int64_t kLeast = 16, kGrain = 4096;
  const int64_t planes = shape.batch * shape.channels;
  if (planes == 0) return;
  const int64_t most = std::min(shape.channels, kMostChannels);
  const int64_t run =
      std::clamp(divide_up(planes, 8 * pool.threads()), std::min(kLeast, most), most);
  const int64_t runs = divide_up(shape.channels, run);
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, run * shape.pixels));
  const int64_t count = shape.batch * runs;
  const bool streamed = shape.dtype == DType::kF32 && shape.pixels > 1 &&
                        streams(planes * shape.pixels * int64_t{sizeof(float)});
  pool.parallel_pieces(count, grain, pool.eighth(count, grain),
                       [&](int64_t begin, int64_t end, int) {
                         for (int64_t at = begin, next; at < end; at = next) {
                           const int64_t c = at / shape.batch * run, sample = at % shape.batch;
                           next = std::min(end, at + shape.batch - sample);
                           kernel(shape, c, std::min(c + run, shape.channels), sample,
                                  sample + next - at, streamed, x, scale, mean, var, y);
                         }
                         if (streamed) finish_streams();
                       });
}

void batch_norm_backward(ThreadPool& pool, const ChannelShape& shape, const void* x,
                         const BatchNormScale& scale, const float* mean, const float* var,
                         const BatchNormGradients& gradients) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(channels_backward);
  for_runs_of_channels(pool, shape, [&](int64_t begin, int64_t end) {
    kernel(shape, begin, end, x, scale, mean, var, gradients);
  });
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
