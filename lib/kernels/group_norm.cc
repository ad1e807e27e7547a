#include "lib/kernels/group_norm.h"

#include <algorithm>
#include <cmath>

#include "lib/kernels/numbers.h"
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

template <class T>
double total_of(const T* x, int64_t n) {
  return static_cast<double>(
      sum_of(x, static_cast<size_t>(n), [](auto v, auto sum) HWY_ATTR { return hn::Add(sum, v); }));
}

template <class T>
double squared_distance_of(const T* x, int64_t n, float from) {
  const auto center = hn::Set(Float(), from);
  return static_cast<double>(sum_of(x, static_cast<size_t>(n), [&](auto v, auto sum) HWY_ATTR {
    const auto centered = hn::Sub(v, center);
    return hn::MulAdd(centered, centered, sum);
  }));
}

template <class T, class D>
void add_gradient_sums(const T* x, const D* dy, int64_t n, float mean, double* sums) {
  const auto center = hn::Set(Float(), mean);
  float piece[2];
  fold_row(static_cast<size_t>(n), piece, [&](auto load, auto, auto& sum) HWY_ATTR {
    const auto gradient = load(dy);
    sum[0] = hn::Add(gradient, sum[0]);
    sum[1] = hn::MulAdd(gradient, hn::Sub(load(x), center), sum[1]);
  });
  for (int i = 0; i < 2; ++i) sums[i] += static_cast<double>(piece[i]);
}

template <class T>
void scale_numbers(const T* x, int64_t n, float mean, float factor, float shift, T* y) {
  const Float d;
  const auto center = hn::Set(d, mean), by = hn::Set(d, factor), plus = hn::Set(d, shift);
  for_each_vector(0, n, [&](auto load, auto store) HWY_ATTR {
    store(hn::MulAdd(hn::Sub(load(x), center), by, plus), y);
  });
}

template <class T, class D>
void scale_gradient_numbers(const T* x, const D* dy, int64_t n, float mean, float factor,
                            float slope, float shift, float* dx) {
  const Float d;
  const auto center = hn::Set(d, mean), by = hn::Set(d, factor), pull = hn::Set(d, slope);
  const auto plus = hn::Set(d, shift);
  for_each_vector(0, n, [&](auto load, auto store) HWY_ATTR {
    const auto centered = hn::Sub(load(x), center);
    store(hn::MulAdd(load(dy), by, hn::MulAdd(centered, pull, plus)), dx);
  });
}

// ---- The same of numbers of any type.

double total(DType dtype, const void* x, int64_t n) {
  double sum = 0;
  with_number_type(dtype, [&](auto number) HWY_ATTR {
    sum = total_of(static_cast<const decltype(number)*>(x), n);
  });
  return sum;
}

double squared_distance(DType dtype, const void* x, int64_t n, float from) {
  double sum = 0;
  with_number_type(dtype, [&](auto number) HWY_ATTR {
    sum = squared_distance_of(static_cast<const decltype(number)*>(x), n, from);
  });
  return sum;
}

// Adds Σ dy and Σ dy (x − mean).
void gradient_sums(GradientTypes types, const void* x, const void* dy, int64_t n, float mean,
                   double* sums) {
  with_gradient_types(types, [&](auto of_x, auto of_dy) HWY_ATTR {
    add_gradient_sums(static_cast<const decltype(of_x)*>(x),
                      static_cast<const decltype(of_dy)*>(dy), n, mean, sums);
  });
}

// y = (x − mean) · factor + shift
void scale(DType dtype, const void* x, int64_t n, float mean, float factor, float shift, void* y) {
  with_number_type(dtype, [&](auto number) HWY_ATTR {
    using T = decltype(number);
    scale_numbers(static_cast<const T*>(x), n, mean, factor, shift, static_cast<T*>(y));
  });
}

// dx = dy · factor + (x − mean) · slope + shift
void scale_gradient(GradientTypes types, const void* x, const void* dy, int64_t n, float mean,
                    float factor, float slope, float shift, float* dx) {
  with_gradient_types(types, [&](auto of_x, auto of_dy) HWY_ATTR {
    scale_gradient_numbers(static_cast<const decltype(of_x)*>(x),
                           static_cast<const decltype(of_dy)*>(dy), n, mean, factor, slope, shift,
                           dx);
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
Moments moments_of(DType dtype, const void* x, int64_t n) {
  const auto add = HWY_DYNAMIC_DISPATCH(total);
  const auto add_squares = HWY_DYNAMIC_DISPATCH(squared_distance);
  double sum = 0, squares = 0;
  in_pieces(n, kSummed, [&](int64_t at, int64_t count) {
    sum += add(dtype, number_address(dtype, x, at), count);
  });
  const auto mean = static_cast<float>(sum / static_cast<double>(n));
  in_pieces(n, kSummed, [&](int64_t at, int64_t count) {
    squares += add_squares(dtype, number_address(dtype, x, at), count, mean);
  });
  return {mean, squares / static_cast<double>(n)};
}

// compute(begin, count, to) writes all of a channel of y, past the caches where y is large.
template <class Compute>
void write_channel(bool streamed, int64_t pixels, void* y, const Compute& compute) {
  if (!streamed) return compute(int64_t{0}, pixels, y);
  constexpr int64_t kPiece = 1024;
  alignas(64) float piece[kPiece];
  in_pieces(pixels, kPiece, [&](int64_t at, int64_t count) {
    compute(at, count, piece);
    stream(piece, count, static_cast<float*>(y) + at);
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

// Of type `dtype`: float32 does.
bool streams_result(const GroupShape& s, DType dtype) {
  return dtype == DType::kF32 &&
         streams(s.batch * s.groups * s.channels * s.pixels * int64_t{sizeof(float)});
}

// Weights, of which there may be none.
class Weights {
 public:
  Weights(DType dtype, const void* w, float otherwise)
      : dtype_(dtype), w_(w), otherwise_(otherwise) {}
  float operator[](int64_t c) const { return w_ ? number_at(dtype_, w_, c) : otherwise_; }

 private:
  DType dtype_;
  const void* w_;
  float otherwise_;
};

}  // namespace

void group_norm(ThreadPool& pool, const GroupShape& s, const void* x, const void* w, const void* b,
                float eps, void* y) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(scale);
  const bool streamed = streams_result(s, s.dtype);
  const Weights factors(s.dtype, w, 1), shifts(s.dtype, b, 0);
  for_each_group(pool, s, streamed, [&](int64_t group) {
    const int64_t first = group * s.channels, weights = group % s.groups * s.channels;
    const Moments moments =
        moments_of(s.dtype, number_address(s.dtype, x, first * s.pixels), s.channels * s.pixels);
    const auto r = static_cast<float>(1.0 / std::sqrt(moments.variance + eps));
    for (int64_t c = 0; c < s.channels; ++c) {
      const int64_t from = (first + c) * s.pixels;
      const float factor = factors[weights + c] * r, shift = shifts[weights + c];
      write_channel(streamed, s.pixels, number_address(s.dtype, y, from),
                    [&](int64_t at, int64_t count, void* to) {
                      kernel(s.dtype, number_address(s.dtype, x, from + at), count, moments.mean,
                             factor, shift, to);
                    });
    }
  });
}

size_t group_norm_workspace_bytes(const GroupShape& s) {
  return static_cast<size_t>(2 * s.batch * s.groups * s.channels) * sizeof(double);
}

void group_norm_backward(ThreadPool& pool, const GroupShape& s, const void* x, const void* w,
                         const void* dy, DType dy_type, float eps, float* dx, float* dw, float* db,
                         std::byte* workspace) {
  const auto add = HWY_DYNAMIC_DISPATCH(gradient_sums);
  const auto kernel = HWY_DYNAMIC_DISPATCH(scale_gradient);
  auto* const sums = reinterpret_cast<double*>(workspace);  // of each sample's channel: dy, dy · x̂
  const bool streamed = streams_result(s, DType::kF32);
  const Weights factors(s.dtype, w, 1);
  const GradientTypes types = {s.dtype, dy_type};
  const auto n = static_cast<double>(s.channels * s.pixels);
  for_each_group(pool, s, streamed, [&](int64_t group) {
    const int64_t first = group * s.channels, weights = group % s.groups * s.channels;
    const Moments moments =
        moments_of(s.dtype, number_address(s.dtype, x, first * s.pixels), s.channels * s.pixels);
    const double r = 1.0 / std::sqrt(moments.variance + eps);
    double g = 0, gx = 0;  // Σ dy w, Σ dy w x̂
    for (int64_t c = 0; c < s.channels; ++c) {
      double* const sum = sums + 2 * (first + c);
      sum[0] = sum[1] = 0;
      const int64_t from = (first + c) * s.pixels;
      in_pieces(s.pixels, kSummed, [&](int64_t at, int64_t count) {
        add(types, number_address(s.dtype, x, from + at), number_address(dy_type, dy, from + at),
            count, moments.mean, sum);
      });
      sum[1] *= r;
      const auto weight = static_cast<double>(factors[weights + c]);
      g += sum[0] * weight;
      gx += sum[1] * weight;
    }
    const auto slope = static_cast<float>(-r * r * gx / n), shift = static_cast<float>(-r * g / n);
    for (int64_t c = 0; c < s.channels; ++c) {
      const int64_t from = (first + c) * s.pixels;
      const float factor = static_cast<float>(r) * factors[weights + c];
      write_channel(streamed, s.pixels, dx + from, [&](int64_t at, int64_t count, void* to) {
        kernel(types, number_address(s.dtype, x, from + at), number_address(dy_type, dy, from + at),
               count, moments.mean, factor, slope, shift, static_cast<float*>(to));
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
