#include "lib/kernels/group_norm.h"

#include <algorithm>
#include <cmath>

#include "lib/kernels/streaming.h"
#include "lib/kernels/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/group_norm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

double total(const float* x, int64_t n) {
  return static_cast<double>(
      sum_of(x, static_cast<size_t>(n), [](auto v, auto sum) HWY_ATTR { return hn::Add(sum, v); }));
}

double squared_distance(const float* x, int64_t n, float from) {
  const auto center = hn::Set(Float(), from);
  return static_cast<double>(sum_of(x, static_cast<size_t>(n), [&](auto v, auto sum) HWY_ATTR {
    const auto centered = hn::Sub(v, center);
    return hn::MulAdd(centered, centered, sum);
  }));
}

// Adds Σ dy and Σ dy (x − mean).
void gradient_sums(const float* x, const float* dy, int64_t n, float mean, double* sums) {
  const auto center = hn::Set(Float(), mean);
  float piece[2];
  fold_row(static_cast<size_t>(n), piece, [&](auto load, auto, auto& sum) HWY_ATTR {
    const auto gradient = load(dy);
    sum[0] = hn::Add(gradient, sum[0]);
    sum[1] = hn::MulAdd(gradient, hn::Sub(load(x), center), sum[1]);
  });
  for (int i = 0; i < 2; ++i) sums[i] += static_cast<double>(piece[i]);
}

// y = (x − mean) · factor + shift
void scale(const float* x, int64_t n, float mean, float factor, float shift, float* y) {
  const Float d;
  const auto center = hn::Set(d, mean), by = hn::Set(d, factor), plus = hn::Set(d, shift);
  for_each_vector(0, n, [&](auto load, auto store) HWY_ATTR {
    store(hn::MulAdd(hn::Sub(load(x), center), by, plus), y);
  });
}

// dx = dy · factor + (x − mean) · slope + shift
void scale_gradient(const float* x, const float* dy, int64_t n, float mean, float factor,
                    float slope, float shift, float* dx) {
  const Float d;
  const auto center = hn::Set(d, mean), by = hn::Set(d, factor), pull = hn::Set(d, slope);
  const auto plus = hn::Set(d, shift);
  for_each_vector(0, n, [&](auto load, auto store) HWY_ATTR {
    const auto centered = hn::Sub(load(x), center);
    store(hn::MulAdd(load(dy), by, hn::MulAdd(centered, pull, plus)), dx);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
namespace {
HWY_EXPORT(total);
HWY_EXPORT(squared_distance);
HWY_EXPORT(gradient_sums);
HWY_EXPORT(scale);
HWY_EXPORT(scale_gradient);

// So many numbers are added up in float32.
constexpr int64_t kSummed = 4096;

// body(begin, count) for pieces of [0, n), at most `most` long.
template <class Body>
void in_pieces(int64_t n, int64_t most, const Body& body) {
  for (int64_t at = 0; at < n; at += most) body(at, std::min(most, n - at));
}

struct Moments {
  float mean;
  double variance;
};
Moments moments_of(const float* x, int64_t n) {
  const auto add = HWY_DYNAMIC_DISPATCH(total);
  const auto add_squares = HWY_DYNAMIC_DISPATCH(squared_distance);
  double sum = 0, squares = 0;
  in_pieces(n, kSummed, [&](int64_t at, int64_t count) { sum += add(x + at, count); });
  const auto mean = static_cast<float>(sum / static_cast<double>(n));
  in_pieces(n, kSummed,
            [&](int64_t at, int64_t count) { squares += add_squares(x + at, count, mean); });
  return {mean, squares / static_cast<double>(n)};
}

// compute(begin, count, to) writes all of a channel of y, past the caches where y is large.
template <class Compute>
void write_channel(bool streamed, int64_t pixels, float* y, const Compute& compute) {
  if (!streamed) return compute(int64_t{0}, pixels, y);
  constexpr int64_t kPiece = 1024;
  alignas(64) float piece[kPiece];
  in_pieces(pixels, kPiece, [&](int64_t at, int64_t count) {
    compute(at, count, piece);
    stream(piece, count, y + at);
  });
}

// body(group) for groups of all samples, numbered one after another, on several threads.
template <class Body>
void for_each_group(ThreadPool& pool, const GroupShape& s, bool streamed, const Body& body) {
  const int64_t n = s.channels * s.pixels;
  pool.parallel_for(s.batch * s.groups, std::max<int64_t>(1, 4096 / std::max<int64_t>(1, n)),
                    [&](int64_t begin, int64_t end, int) {
                      for (int64_t group = begin; group < end; ++group) body(group);
                      if (streamed) finish_streams();
                    });
}

bool streams_result(const GroupShape& s) {
  return streams(s.batch * s.groups * s.channels * s.pixels * int64_t{sizeof(float)});
}

}  // namespace

void group_norm(ThreadPool& pool, const GroupShape& s, const float* x, const float* w,
                const float* b, float eps, float* y) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(scale);
  const bool streamed = streams_result(s);
  for_each_group(pool, s, streamed, [&](int64_t group) {
    const int64_t first = group * s.channels, weights = group % s.groups * s.channels;
    const Moments moments = moments_of(x + first * s.pixels, s.channels * s.pixels);
    const auto r = static_cast<float>(1.0 / std::sqrt(moments.variance + eps));
    for (int64_t c = 0; c < s.channels; ++c) {
      const float* const from = x + (first + c) * s.pixels;
      const float factor = w ? w[weights + c] * r : r, shift = b ? b[weights + c] : 0;
      write_channel(streamed, s.pixels, y + (first + c) * s.pixels,
                    [&](int64_t at, int64_t count, float* to) {
                      kernel(from + at, count, moments.mean, factor, shift, to);
                    });
    }
  });
}

size_t group_norm_workspace_bytes(const GroupShape& s) {
  return static_cast<size_t>(2 * s.batch * s.groups * s.channels) * sizeof(double);
}

void group_norm_backward(ThreadPool& pool, const GroupShape& s, const float* x, const float* w,
                         const float* dy, float eps, float* dx, float* dw, float* db,
                         std::byte* workspace) {
  const auto add = HWY_DYNAMIC_DISPATCH(gradient_sums);
  const auto kernel = HWY_DYNAMIC_DISPATCH(scale_gradient);
  auto* const sums = reinterpret_cast<double*>(workspace);  // of each sample's channel: dy, dy · x̂
  const bool streamed = streams_result(s);
  const auto n = static_cast<double>(s.channels * s.pixels);
  for_each_group(pool, s, streamed, [&](int64_t group) {
    const int64_t first = group * s.channels, weights = group % s.groups * s.channels;
    const Moments moments = moments_of(x + first * s.pixels, s.channels * s.pixels);
    const double r = 1.0 / std::sqrt(moments.variance + eps);
    double g = 0, gx = 0;  // Σ dy w, Σ dy w x̂
    for (int64_t c = 0; c < s.channels; ++c) {
      double* const sum = sums + 2 * (first + c);
      sum[0] = sum[1] = 0;
      const int64_t from = (first + c) * s.pixels;
      in_pieces(s.pixels, kSummed, [&](int64_t at, int64_t count) {
        add(x + from + at, dy + from + at, count, moments.mean, sum);
      });
      sum[1] *= r;
      g += sum[0] * (w ? static_cast<double>(w[weights + c]) : 1.0);
      gx += sum[1] * (w ? static_cast<double>(w[weights + c]) : 1.0);
    }
    const auto slope = static_cast<float>(-r * r * gx / n), shift = static_cast<float>(-r * g / n);
    for (int64_t c = 0; c < s.channels; ++c) {
      const int64_t from = (first + c) * s.pixels;
      const float factor = static_cast<float>(r) * (w ? w[weights + c] : 1.0f);
      write_channel(streamed, s.pixels, dx + from, [&](int64_t at, int64_t count, float* to) {
        kernel(x + from + at, dy + from + at, count, moments.mean, factor, slope, shift, to);
      });
    }
  });
  const int64_t channels = s.groups * s.channels;
  for (int64_t c = 0; c < channels; ++c) {
    double total_w = 0, total_b = 0;
    for (int64_t sample = 0; sample < s.batch; ++sample) {
      total_b += sums[2 * (sample * channels + c)];
      total_w += sums[2 * (sample * channels + c) + 1];
    }
    dw[c] = static_cast<float>(total_w);
    db[c] = static_cast<float>(total_b);
  }
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
