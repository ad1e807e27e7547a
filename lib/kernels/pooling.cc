#include "lib/kernels/pooling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/kernels/reduce.h"
#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/pooling.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The four pixels of each of some windows of 2 × 2 side by side.
template <class V>
struct Windows {
  V pixel[4];
};

template <class D>
HWY_INLINE Windows<hn::Vec<D>> load_windows(D d, const float* x, int64_t width) {
  hn::Vec<D> upper[2], lower[2];
  hn::LoadInterleaved2(d, x, upper[0], upper[1]);
  hn::LoadInterleaved2(d, x + width, lower[0], lower[1]);
  return {{upper[0], upper[1], lower[0], lower[1]}};
}

// Calls f(p, keep) for pixels 1 to 3: `keep` where pixel p does not become the largest so far,
// which it does if it is larger or the first NaN.
template <class V, class F>
HWY_INLINE void for_each_rival(const Windows<V>& x, const F& f) {
  V best = x.pixel[0];
  for (int p = 1; p < 4; ++p) {
    const auto keep = hn::Or(hn::Le(x.pixel[p], best), hn::IsNaN(best));
    best = hn::IfThenElse(keep, best, x.pixel[p]);
    f(p, keep);
  }
}

template <class D>
HWY_INLINE void max_windows(D d, int64_t width, const float* x, const float* values, float* y) {
  const auto v = load_windows(d, values, width);
  auto chosen = v.pixel[0];
  for_each_rival(load_windows(d, x, width), [&](int p, auto keep) HWY_ATTR {
    chosen = hn::IfThenElse(keep, chosen, v.pixel[p]);
  });
  hn::StoreU(chosen, d, y);
}

template <class D>
HWY_INLINE void max_windows_grad(D d, int64_t width, const float* x, const float* dy, float* dx) {
  const auto grad = hn::LoadU(d, dy);
  Windows<hn::Vec<D>> to{{grad}};
  for_each_rival(load_windows(d, x, width), [&](int p, auto keep) HWY_ATTR {
    for (int q = 0; q < p; ++q) to.pixel[q] = hn::IfThenElseZero(keep, to.pixel[q]);
    to.pixel[p] = hn::IfThenZeroElse(keep, grad);
  });
  hn::StoreInterleaved2(to.pixel[0], to.pixel[1], d, dx);
  hn::StoreInterleaved2(to.pixel[2], to.pixel[3], d, dx + width);
}

// Calls f(d, i, j) for windows [j, j + Lanes(d)) of every row i of windows.
template <class F>
HWY_INLINE void for_each_windows(const PoolShape& s, const F& f) {
  const hn::ScalableTag<float> whole;
  const hn::CappedTag<float, 4> part;
  const hn::CappedTag<float, 1> single;
  for (int64_t i = 0; i < s.out_height; ++i) {
    int64_t j = 0;
    for (; j + static_cast<int64_t>(hn::Lanes(whole)) <= s.out_width; j += hn::Lanes(whole)) {
      f(whole, i, j);
    }
    for (; j + 4 <= s.out_width; j += 4) f(part, i, j);
    for (; j < s.out_width; ++j) f(single, i, j);
  }
}

void max_halves_kernel(const PoolShape& s, const float* x, const float* values, float* y) {
  for_each_windows(s, [&](auto d, int64_t i, int64_t j) HWY_ATTR {
    const int64_t corner = 2 * (i * s.in_width + j);
    max_windows(d, s.in_width, x + corner, values + corner, y + i * s.out_width + j);
  });
}

// The same of windows of 1 × 2.
void max_pairs_kernel(const PoolShape& s, const float* x, const float* values, float* y) {
  for_each_windows(s, [&](auto d, int64_t i, int64_t j) HWY_ATTR {
    const int64_t first = i * s.in_width + 2 * j;
    hn::Vec<decltype(d)> a, b, value_a, value_b;
    hn::LoadInterleaved2(d, x + first, a, b);
    hn::LoadInterleaved2(d, values + first, value_a, value_b);
    const auto keep = hn::Or(hn::Le(b, a), hn::IsNaN(a));
    hn::StoreU(hn::IfThenElse(keep, value_a, value_b), d, y + i * s.out_width + j);
  });
}

// Pixels in no window are left alone.
void max_halves_grad_kernel(const PoolShape& s, const float* x, const float* dy, float* dx) {
  for_each_windows(s, [&](auto d, int64_t i, int64_t j) HWY_ATTR {
    const int64_t corner = 2 * (i * s.in_width + j);
    max_windows_grad(d, s.in_width, x + corner, dy + i * s.out_width + j, dx + corner);
  });
}

// What follows is for windows of any kind side by side, whole but for rows above or below the
// image: window j begins at pixel first + j · stride_x and has `rows` rows.

// Pixels p[i · stride] of lane i.
template <class D>
HWY_INLINE hn::Vec<D> load_strided(D d, const float* p, int64_t stride) {
  if (stride == 1) return hn::LoadU(d, p);
  const hn::RebindToSigned<D> di;
  const auto lane = hn::Mul(hn::Iota(di, 0), hn::Set(di, static_cast<int32_t>(stride)));
  return hn::GatherIndex(d, p, lane);
}

// best[j] = the first largest pixel of window j.
template <class D>
HWY_INLINE void find_maxima(D d, const PoolShape& s, int64_t first, int64_t rows, int64_t j,
                            const float* x, int32_t* best) {
  const hn::RebindToSigned<D> di;
  const auto stride = static_cast<int32_t>(s.stride_x);
  const int64_t corner = first + j * s.stride_x;
  auto largest = load_strided(d, x + corner, s.stride_x);
  auto at = hn::Set(di, static_cast<int32_t>(corner));
  for (int64_t u = 0; u < rows; ++u) {
    for (int64_t v = 0; v < s.kernel_width; ++v) {
      const int64_t p = corner + u * s.dilation_y * s.in_width + v * s.dilation_x;
      const auto pixel = load_strided(d, x + p, s.stride_x);
      const auto keep = hn::Or(hn::Le(pixel, largest), hn::IsNaN(largest));
      largest = hn::IfThenElse(keep, largest, pixel);
      at = hn::IfThenElse(hn::RebindMask(di, keep), at, hn::Set(di, static_cast<int32_t>(p)));
    }
  }
  hn::StoreU(hn::Add(at, hn::Mul(hn::Iota(di, 0), hn::Set(di, stride))), di, best + j);
}

// y[j] = the sum of the pixels of window j, added in their order, times `scale`.
template <class D>
HWY_INLINE void average(D d, const PoolShape& s, int64_t first, int64_t rows, int64_t j,
                        const float* x, float scale, float* y) {
  auto sum = hn::Zero(d);
  for (int64_t u = 0; u < rows; ++u) {
    for (int64_t v = 0; v < s.kernel_width; ++v) {
      const float* p = x + first + j * s.stride_x + u * s.in_width + v;
      sum = hn::Add(sum, load_strided(d, p, s.stride_x));
    }
  }
  hn::StoreU(hn::Mul(sum, hn::Set(d, scale)), d, y + j);
}

// Calls f(d, j) for vectors of windows that cover [0, count) if there is at least one; the last may
// overlap the one before.
template <class D, class F>
HWY_INLINE bool cover(D d, int64_t count, const F& f) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if (count < lanes) return false;
  for (int64_t j = 0; j < count; j += lanes) f(d, HWY_MIN(j, count - lanes));
  return true;
}
template <class F>
HWY_INLINE void cover(int64_t count, const F& f) {
  if (cover(hn::ScalableTag<float>(), count, f)) return;
  if (cover(hn::CappedTag<float, 4>(), count, f)) return;
  cover(hn::CappedTag<float, 1>(), count, f);
}

void find_maxima_kernel(const PoolShape& s, int64_t first, int64_t rows, int64_t count,
                        const float* x, int32_t* best) {
  cover(count, [&](auto d, int64_t j) HWY_ATTR { find_maxima(d, s, first, rows, j, x, best); });
}
void average_kernel(const PoolShape& s, int64_t first, int64_t rows, int64_t count, const float* x,
                    float scale, float* y) {
  cover(count, [&](auto d, int64_t j) HWY_ATTR { average(d, s, first, rows, j, x, scale, y); });
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
namespace {

HWY_EXPORT(max_halves_kernel);
HWY_EXPORT(max_pairs_kernel);
HWY_EXPORT(max_halves_grad_kernel);
HWY_EXPORT(find_maxima_kernel);
HWY_EXPORT(average_kernel);

// Of a plane: kernels count pixels, and how far lanes are apart, in 32 bits.
constexpr int64_t kMostPixels = std::numeric_limits<int32_t>::max() / 64;

// Pixels first, first + step, … below end along one axis.
struct Window {
  int64_t first, end, step;
  int64_t count() const { return (end - first + step - 1) / step; }
};

Window window(int64_t i, int64_t in, int64_t kernel, int64_t stride, int64_t padding,
              int64_t dilation) {
  const int64_t begin = i * stride - padding;
  const int64_t skipped = begin < 0 ? (-begin + dilation - 1) / dilation : 0;
  return {begin + skipped * dilation, std::min(in, begin + (kernel - 1) * dilation + 1), dilation};
}
Window row_window(const PoolShape& s, int64_t i) {
  if (s.adaptive) {
    return {i * s.in_height / s.out_height,
            ((i + 1) * s.in_height + s.out_height - 1) / s.out_height, 1};
  }
  return window(i, s.in_height, s.kernel_height, s.stride_y, s.padding_y, s.dilation_y);
}
Window column_window(const PoolShape& s, int64_t j) {
  if (s.adaptive) {
    return {j * s.in_width / s.out_width, ((j + 1) * s.in_width + s.out_width - 1) / s.out_width,
            1};
  }
  return window(j, s.in_width, s.kernel_width, s.stride_x, s.padding_x, s.dilation_x);
}

// Outputs [begin, end) of a row whose windows have all their columns.
struct WholeWindows {
  int64_t begin = 0, end = 0;

  explicit WholeWindows(const PoolShape& s) {
    if (s.adaptive || s.in_height * s.in_width > kMostPixels) return;
    const int64_t reach = (s.kernel_width - 1) * s.dilation_x;  // of a window's last column
    const int64_t last = s.in_width - 1 - reach + s.padding_x;  // where a whole one may begin
    begin = std::min(s.out_width, (s.padding_x + s.stride_x - 1) / s.stride_x);
    end = last < 0 ? begin : std::clamp(last / s.stride_x + 1, begin, s.out_width);
  }
};

// For every row of outputs i and the rows of pixels that its windows see, from left to right:
// one(i, rows, j) for windows that lack columns, run(i, rows, j, count) for whole ones from j on.
template <class One, class Run>
void for_each_window(const PoolShape& s, const One& one, const Run& run) {
  const WholeWindows whole(s);
  for (int64_t i = 0; i < s.out_height; ++i) {
    const Window rows = row_window(s, i);
    for (int64_t j = 0; j < whole.begin; ++j) one(i, rows, j);
    if (whole.begin < whole.end) run(i, rows, whole.begin, whole.end - whole.begin);
    for (int64_t j = whole.end; j < s.out_width; ++j) one(i, rows, j);
  }
}

// The common case: windows of 2 × 2 side by side, none beyond the image.
bool is_halving(const PoolShape& s) {
  return s.kernel_height == 2 && s.kernel_width == 2 && s.stride_y == 2 && s.stride_x == 2 &&
         s.padding_y == 0 && s.padding_x == 0 && s.dilation_y == 1 && s.dilation_x == 1 &&
         2 * s.out_height <= s.in_height && 2 * s.out_width <= s.in_width;
}

// That of signals: windows of 1 × 2 side by side.
bool is_pairing(const PoolShape& s) {
  return s.kernel_height == 1 && s.kernel_width == 2 && s.stride_y == 1 && s.stride_x == 2 &&
         s.padding_y == 0 && s.padding_x == 0 && s.dilation_x == 1 && 2 * s.out_width <= s.in_width;
}

template <class T>
int64_t first_maximum(const PoolShape& s, const T* x, const Window& rows, const Window& columns) {
  int64_t best = rows.first * s.in_width + columns.first;
  for (int64_t y = rows.first; y < rows.end; y += rows.step) {
    for (int64_t p = y * s.in_width + columns.first; p < y * s.in_width + columns.end;
         p += columns.step) {
      best = x[p] <= x[best] || std::isnan(x[best]) ? best : p;
    }
  }
  return best;
}

// Calls body(index of the first largest pixel, o) for every output of a plane, in their order.
template <class Body>
void for_each_maximum(const PoolShape& s, const float* x, const Body& body) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(find_maxima_kernel);
  const auto one = [&](int64_t i, const Window& rows, int64_t j) {
    body(first_maximum(s, x, rows, column_window(s, j)), i * s.out_width + j);
  };
  for_each_window(s, one, [&](int64_t i, const Window& rows, int64_t begin, int64_t count) {
    constexpr int64_t kChunk = 256;
    int32_t best[kChunk];
    for (int64_t at = begin; at < begin + count; at += kChunk) {
      const int64_t windows = std::min(kChunk, begin + count - at);
      kernel(s, rows.first * s.in_width + column_window(s, at).first, rows.count(), windows, x,
             best);
      for (int64_t j = 0; j < windows; ++j) body(best[j], i * s.out_width + at + j);
    }
  });
}

// Averages of parts as large as each other are those of windows side by side.
PoolShape simplified(PoolShape s) {
  if (!s.adaptive || s.in_height % s.out_height != 0 || s.in_width % s.out_width != 0) return s;
  s.adaptive = false;
  s.kernel_height = s.stride_y = s.in_height / s.out_height;
  s.kernel_width = s.stride_x = s.in_width / s.out_width;
  return s;
}

// One window, of all pixels.
bool is_global(const PoolShape& s) {
  return s.out_height == 1 && s.out_width == 1 && s.kernel_height == s.in_height &&
         s.kernel_width == s.in_width && s.padding_y == 0 && s.padding_x == 0 && s.divisor == 0;
}

template <class T>
T sum_of(const PoolShape& s, const T* x, const Window& rows, const Window& columns) {
  T sum = 0;
  for (int64_t i = rows.first; i < rows.end; ++i) {
    for (int64_t j = columns.first; j < columns.end; ++j) sum += x[i * s.in_width + j];
  }
  return sum;
}

// How many pixels window i has along one axis, with the padding but without what is beyond it.
int64_t padded_count(int64_t i, int64_t in, int64_t kernel, int64_t stride, int64_t padding) {
  return std::min(kernel, in + 2 * padding - i * stride);
}

// What each pixel counts in the average of window (i, j).
template <class T = float>
T share(const PoolShape& s, int64_t i, int64_t j, const Window& rows, const Window& columns) {
  if (s.divisor != 0) return T{1} / static_cast<T>(s.divisor);
  const int64_t pixels =
      s.include_padding && !s.adaptive
          ? padded_count(i, s.in_height, s.kernel_height, s.stride_y, s.padding_y) *
                padded_count(j, s.in_width, s.kernel_width, s.stride_x, s.padding_x)
          : (rows.end - rows.first) * (columns.end - columns.first);
  return T{1} / static_cast<T>(pixels);
}

// Runs body(plane) for every plane, on several threads where that pays.
template <class Body>
void for_each_plane(ThreadPool& pool, const PoolShape& s, const Body& body) {
  const int64_t grain = std::max<int64_t>(1, 4096 / std::max<int64_t>(1, s.in_height * s.in_width));
  pool.parallel_for(s.planes, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t plane = begin; plane < end; ++plane) body(plane);
  });
}

// body(first pixel of the plane, its first output, i, j, rows, columns) for every window of every
// plane.
template <class Body>
void for_each_window_of_all(ThreadPool& pool, const PoolShape& s, const Body& body) {
  for_each_plane(pool, s, [&](int64_t plane) {
    for (int64_t i = 0; i < s.out_height; ++i) {
      const Window rows = row_window(s, i);
      for (int64_t j = 0; j < s.out_width; ++j) {
        body(plane * s.in_height * s.in_width, plane * s.out_height * s.out_width, i, j, rows,
             column_window(s, j));
      }
    }
  });
}

}  // namespace

void max_pool2d(ThreadPool& pool, const PoolShape& s, const float* x, const float* values,
                float* y) {
  const bool pairing = is_pairing(s), halving = is_halving(s);
  const auto kernel =
      pairing ? HWY_DYNAMIC_DISPATCH(max_pairs_kernel) : HWY_DYNAMIC_DISPATCH(max_halves_kernel);
  for_each_plane(pool, s, [&](int64_t plane) {
    const int64_t in = plane * s.in_height * s.in_width, out = plane * s.out_height * s.out_width;
    if (pairing || halving) return kernel(s, x + in, values + in, y + out);
    for_each_maximum(s, x + in, [&](int64_t p, int64_t o) { y[out + o] = values[in + p]; });
  });
}

void max_pool2d_grad(ThreadPool& pool, const PoolShape& s, const float* x, const float* dy,
                     float* dx) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(max_halves_grad_kernel);
  const bool halving = is_halving(s);
  for_each_plane(pool, s, [&](int64_t plane) {
    const int64_t in = plane * s.in_height * s.in_width, out = plane * s.out_height * s.out_width;
    if (!halving || 2 * s.out_height < s.in_height || 2 * s.out_width < s.in_width) {
      std::fill_n(dx + in, s.in_height * s.in_width, 0.0f);
    }
    if (halving) return kernel(s, x + in, dy + out, dx + in);
    for_each_maximum(s, x + in, [&](int64_t p, int64_t o) { dx[in + p] += dy[out + o]; });
  });
}

void avg_pool2d(ThreadPool& pool, const PoolShape& shape, const float* x, float* y) {
  const PoolShape s = simplified(shape);
  if (is_global(s)) {
    sum_reduce(pool, x, s.planes, s.in_height * s.in_width, 1, y);
    const float scale = 1.0f / static_cast<float>(s.in_height * s.in_width);
    for (int64_t plane = 0; plane < s.planes; ++plane) y[plane] *= scale;
    return;
  }
  const auto kernel = HWY_DYNAMIC_DISPATCH(average_kernel);
  for_each_plane(pool, s, [&](int64_t plane) {
    const float* from = x + plane * s.in_height * s.in_width;
    float* to = y + plane * s.out_height * s.out_width;
    const auto one = [&](int64_t i, const Window& rows, int64_t j) {
      const Window columns = column_window(s, j);
      to[i * s.out_width + j] = sum_of(s, from, rows, columns) * share(s, i, j, rows, columns);
    };
    for_each_window(s, one, [&](int64_t i, const Window& rows, int64_t begin, int64_t count) {
      const Window columns = column_window(s, begin);
      kernel(s, rows.first * s.in_width + columns.first, rows.count(), count, from,
             share(s, i, begin, rows, columns), to + i * s.out_width + begin);
    });
  });
}

void avg_pool2d_grad(ThreadPool& pool, const PoolShape& shape, const float* dy, float* dx) {
  const PoolShape s = simplified(shape);
  const bool global = is_global(s);
  for_each_plane(pool, s, [&](int64_t plane) {
    const int64_t pixels = s.in_height * s.in_width;
    const float* from = dy + plane * s.out_height * s.out_width;
    float* to = dx + plane * pixels;
    if (global) {
      std::fill_n(to, pixels, *from / static_cast<float>(pixels));
      return;
    }
    std::fill_n(to, pixels, 0.0f);
    const auto one = [&](int64_t i, const Window& rows, int64_t j) {
      const Window columns = column_window(s, j);
      const float part = from[i * s.out_width + j] * share(s, i, j, rows, columns);
      for (int64_t row = rows.first; row < rows.end; ++row) {
        for (int64_t p = columns.first; p < columns.end; ++p) to[row * s.in_width + p] += part;
      }
    };
    for_each_window(s, one, [&](int64_t i, const Window& rows, int64_t begin, int64_t count) {
      const Window columns = column_window(s, begin);
      const float scale = share(s, i, begin, rows, columns);
      const float* const parts = from + i * s.out_width + begin;
      for (int64_t row = rows.first; row < rows.end; ++row) {
        // A pixel gets its parts from left to right.
        for (int64_t v = s.kernel_width - 1; v >= 0; --v) {
          float* pixel = to + row * s.in_width + columns.first + v;
          for (int64_t j = 0; j < count; ++j, pixel += s.stride_x) *pixel += parts[j] * scale;
        }
      }
    });
  });
}

void max_pool2d_f64(ThreadPool& pool, const PoolShape& s, const double* x, const double* values,
                    double* y) {
  for_each_window_of_all(pool, s,
                         [&](int64_t in, int64_t out, int64_t i, int64_t j, const Window& rows,
                             const Window& columns) {
                           y[out + i * s.out_width + j] =
                               values[in + first_maximum(s, x + in, rows, columns)];
                         });
}

void max_pool2d_grad_f64(ThreadPool& pool, const PoolShape& s, const double* x, const double* dy,
                         double* dx) {
  std::fill_n(dx, s.planes * s.in_height * s.in_width, 0.0);
  for_each_window_of_all(pool, s,
                         [&](int64_t in, int64_t out, int64_t i, int64_t j, const Window& rows,
                             const Window& columns) {
                           dx[in + first_maximum(s, x + in, rows, columns)] +=
                               dy[out + i * s.out_width + j];
                         });
}

void avg_pool2d_f64(ThreadPool& pool, const PoolShape& s, const double* x, double* y) {
  for_each_window_of_all(pool, s,
                         [&](int64_t in, int64_t out, int64_t i, int64_t j, const Window& rows,
                             const Window& columns) {
                           y[out + i * s.out_width + j] = sum_of(s, x + in, rows, columns) *
                                                          share<double>(s, i, j, rows, columns);
                         });
}

void avg_pool2d_grad_f64(ThreadPool& pool, const PoolShape& s, const double* dy, double* dx) {
  std::fill_n(dx, s.planes * s.in_height * s.in_width, 0.0);
  for_each_window_of_all(pool, s,
                         [&](int64_t in, int64_t out, int64_t i, int64_t j, const Window& rows,
                             const Window& columns) {
                           const double part = dy[out + i * s.out_width + j] *
                                               share<double>(s, i, j, rows, columns);
                           for (int64_t row = rows.first; row < rows.end; ++row) {
                             for (int64_t p = columns.first; p < columns.end; ++p) {
                               dx[in + row * s.in_width + p] += part;
                             }
                           }
                         });
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
