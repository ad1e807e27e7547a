#include "lib/kernels/group_norm.h"

#include <algorithm>
#include <cmath>

#include "lib/kernels/simd/targets-inl.h"
#include "lib/kernels/streaming.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/group_norm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/planes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

// So many numbers are added up in float32.
constexpr int64_t kSummed = 4096;

struct Moments {
  double mean, variance;
};

// One pass: numbers are added up in blocks around a center near their mean, that of the block
// before (of the first one of its own beginning), and blocks joined (Chan et al. 1983): with δ =
// mean of the block − mean so far, Σ(x − mean)² grows by the block's and δ² n_before n_block / n.
// What cancels within a block is at most as large as the group's own variance says.
template <class T>
Moments moments_of(const T* x, int64_t n) {
  constexpr int64_t kBeginning = 256;
  const int64_t few = std::min(n, kBeginning);
  auto center = static_cast<float>(
      static_cast<double>(sum_of(x, static_cast<size_t>(few),
                                 [](auto v, auto sum) HWY_ATTR { return hn::Add(sum, v); })) /
      static_cast<double>(few));
  double mean = 0, squares = 0;
  for (int64_t at = 0; at < n; at += kSummed) {
    const int64_t block = std::min(kSummed, n - at);
    const T* const from = x + at;
    const auto around = hn::Set(Float(), center);
    float sums[2];  // Σ (x − center), Σ (x − center)²
    fold_row<4>(static_cast<size_t>(block), sums, [&](auto load, auto keep, auto& sum) HWY_ATTR {
      const auto v = keep(hn::Sub(load(from), around));
      sum[0] = hn::Add(v, sum[0]);
      sum[1] = hn::MulAdd(v, v, sum[1]);
    });
    const auto before = static_cast<double>(at), count = static_cast<double>(block);
    const double offset = static_cast<double>(sums[0]) / count;
    const double block_mean = static_cast<double>(center) + offset, delta = block_mean - mean;
    squares += static_cast<double>(sums[1]) - offset * offset * count;
    squares += delta * delta * before * count / (before + count);
    mean += delta * count / (before + count);
    center = static_cast<float>(block_mean);
  }
  return {mean, squares > 0 ? squares / static_cast<double>(n) : squares};
}

template <class T>
void normalize_group(const GroupShape& s, const T* x, const T* w, const T* b, float eps,
                     bool streamed, T* y) {
  const Float d;
  const Moments moments = moments_of(x, s.channels * s.pixels);
  const auto center = hn::Set(d, static_cast<float>(moments.mean));
  const auto r = static_cast<float>(1.0 / std::sqrt(moments.variance + static_cast<double>(eps)));
  write_planes(streamed, s.channels, s.pixels, y,
               [&](int64_t c, int64_t begin, int64_t count, T* to) HWY_ATTR {
                 const T* const from = x + c * s.pixels + begin;
                 const auto factor = hn::Set(d, w != nullptr ? number(w[c]) * r : r);
                 const auto shift = hn::Set(d, b != nullptr ? number(b[c]) : 0.0f);
                 for_each_vector(0, count, [&](auto load, auto store) HWY_ATTR {
                   store(hn::MulAdd(hn::Sub(load(from), center), factor, shift), to);
                 });
               });
}

// sums[0], sums[1]: Σ dy and Σ dy (x − mean).
template <class X, class Y>
HWY_INLINE void plane_sums(const X* x, const Y* dy, int64_t n, FloatVec mean, double* sums) {
  sums[0] = sums[1] = 0;
  for (int64_t at = 0; at < n; at += kSummed) {
    float piece[2];
    fold_row<4>(static_cast<size_t>(std::min(kSummed, n - at)), piece,
                [&](auto load, auto, auto& sum) HWY_ATTR {
                  const auto gradient = load(dy + at);
                  sum[0] = hn::Add(gradient, sum[0]);
                  sum[1] = hn::MulAdd(gradient, hn::Sub(load(x + at), mean), sum[1]);
                });
    for (int i = 0; i < 2; ++i) sums[i] += static_cast<double>(piece[i]);
  }
}

template <class X, class Y>
void group_gradient(const GroupShape& s, const X* x, const X* w, const Y* dy, float eps,
                    bool streamed, double* sums, float* dx) {
  const Float d;
  const Moments moments = moments_of(x, s.channels * s.pixels);
  const auto center = hn::Set(d, static_cast<float>(moments.mean));
  const double r = 1.0 / std::sqrt(moments.variance + static_cast<double>(eps));
  double g = 0, gx = 0;  // Σ dy w, Σ dy w x̂
  for (int64_t c = 0; c < s.channels; ++c) {
    double* const sum = sums + 2 * c;
    plane_sums(x + c * s.pixels, dy + c * s.pixels, s.pixels, center, sum);
    sum[1] *= r;
    const double weight = w != nullptr ? static_cast<double>(number(w[c])) : 1.0;
    g += sum[0] * weight;
    gx += sum[1] * weight;
  }
  // dx = dy · w r + (x − mean) · slope + shift
  const auto n = static_cast<double>(s.channels * s.pixels);
  const auto slope = hn::Set(d, static_cast<float>(-r * r * gx / n));
  const auto shift = hn::Set(d, static_cast<float>(-r * g / n));
  const auto scale = static_cast<float>(r);
  write_planes(streamed, s.channels, s.pixels, dx,
               [&](int64_t c, int64_t begin, int64_t count, float* to) HWY_ATTR {
                 const X* const from = x + c * s.pixels + begin;
                 const Y* const gradient = dy + c * s.pixels + begin;
                 const auto factor = hn::Set(d, w != nullptr ? scale * number(w[c]) : scale);
                 for_each_vector(0, count, [&](auto load, auto store) HWY_ATTR {
                   const auto pull = hn::MulAdd(hn::Sub(load(from), center), slope, shift);
                   store(hn::MulAdd(load(gradient), factor, pull), to);
                 });
               });
}

// ---- Groups [begin, end) of all samples, numbered one after another.

template <class T>
HWY_INLINE const T* from_channel(const void* weights, int64_t c) {
  return weights == nullptr ? nullptr : static_cast<const T*>(weights) + c;
}

void normalize_groups(const GroupShape& s, const void* x, const void* w, const void* b, float eps,
                      bool streamed, int64_t begin, int64_t end, void* y) {
  with_number_type(s.dtype, [&](auto of_x) HWY_ATTR {
    using T = decltype(of_x);
    for (int64_t group = begin; group < end; ++group) {
      const int64_t at = group * s.channels * s.pixels, channel = group % s.groups * s.channels;
      normalize_group(s, static_cast<const T*>(x) + at, from_channel<T>(w, channel),
                      from_channel<T>(b, channel), eps, streamed, static_cast<T*>(y) + at);
    }
  });
}

// sums: of each sample's channel Σ dy and Σ dy · x̂.
void group_gradients(const GroupShape& s, const void* x, const void* w, const void* dy,
                     DType dy_type, float eps, bool streamed, int64_t begin, int64_t end,
                     double* sums, float* dx) {
  with_gradient_types({s.dtype, dy_type}, [&](auto of_x, auto of_dy) HWY_ATTR {
    using X = decltype(of_x);
    using Y = decltype(of_dy);
    for (int64_t group = begin; group < end; ++group) {
      const int64_t at = group * s.channels * s.pixels, channel = group % s.groups * s.channels;
      group_gradient(s, static_cast<const X*>(x) + at, from_channel<X>(w, channel),
                     static_cast<const Y*>(dy) + at, eps, streamed, sums + 2 * group * s.channels,
                     dx + at);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
namespace {
HWY_EXPORT(normalize_groups);
HWY_EXPORT(group_gradients);

// body(begin, end) for groups of all samples, numbered one after another, on several threads.
template <class Body>
void for_groups(ThreadPool& pool, const GroupShape& s, bool streamed, const Body& body) {
  constexpr int64_t kGrain = 4096;
  const int64_t count = s.batch * s.groups, n = std::max<int64_t>(1, s.channels * s.pixels);
  const int64_t grain = std::max<int64_t>(1, kGrain / n);
  pool.parallel_pieces(count, grain, pool.eighth(count, grain),
                       [&](int64_t begin, int64_t end, int) {
                         body(begin, end);
                         if (streamed) finish_streams();
                       });
}

// Of type `dtype`: float32 does.
bool streams_result(const GroupShape& s, DType dtype) {
  return dtype == DType::kF32 &&
         streams(s.batch * s.groups * s.channels * s.pixels * int64_t{sizeof(float)});
}

}  // namespace

void group_norm(ThreadPool& pool, const GroupShape& s, const void* x, const void* w, const void* b,
                float eps, void* y) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(normalize_groups);
  const bool streamed = streams_result(s, s.dtype);
  for_groups(pool, s, streamed,
             [&](int64_t begin, int64_t end) { kernel(s, x, w, b, eps, streamed, begin, end, y); });
}

size_t group_norm_workspace_bytes(const GroupShape& s) {
  return static_cast<size_t>(2 * s.batch * s.groups * s.channels) * sizeof(double);
}

void group_norm_backward(ThreadPool& pool, const GroupShape& s, const void* x, const void* w,
                         const void* dy, DType dy_type, float eps, float* dx, float* dw, float* db,
                         std::byte* workspace) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(group_gradients);
  auto* const sums = reinterpret_cast<double*>(workspace);
  const bool streamed = streams_result(s, DType::kF32);
  for_groups(pool, s, streamed, [&](int64_t begin, int64_t end) {
    kernel(s, x, w, dy, dy_type, eps, streamed, begin, end, sums, dx);
  });
  constexpr int64_t kGrain = 2048;
  const int64_t channels = s.groups * s.channels;
  const int64_t grain = std::max<int64_t>(16, kGrain / std::max<int64_t>(1, s.batch));
  pool.parallel_for(channels, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t c = begin; c < end; ++c) {
      double total_w = 0, total_b = 0;
      for (int64_t sample = 0; sample < s.batch; ++sample) {
        total_b += sums[2 * (sample * channels + c)];
        total_w += sums[2 * (sample * channels + c) + 1];
      }
      dw[c] = static_cast<float>(total_w);
      db[c] = static_cast<float>(total_b);
    }
  });
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
