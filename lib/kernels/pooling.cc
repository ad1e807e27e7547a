#include "lib/kernels/pooling.h"

#include <algorithm>
#include <cmath>

#include "lib/kernels/targets-inl.h"

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

// Pixels in no window are left alone.
void max_halves_grad_kernel(const PoolShape& s, const float* x, const float* dy, float* dx) {
  for_each_windows(s, [&](auto d, int64_t i, int64_t j) HWY_ATTR {
    const int64_t corner = 2 * (i * s.in_width + j);
    max_windows_grad(d, s.in_width, x + corner, dy + i * s.out_width + j, dx + corner);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
namespace {

HWY_EXPORT(max_halves_kernel);
HWY_EXPORT(max_halves_grad_kernel);

// Pixels first, first + step, … below end along one axis.
struct Window {
  int64_t first, end, step;
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

// Calls body(rows, columns, o) for the window of every output of a plane.
template <class Body>
void for_each_window(const PoolShape& s, const Body& body) {
  for (int64_t i = 0; i < s.out_height; ++i) {
    const Window rows = row_window(s, i);
    for (int64_t j = 0; j < s.out_width; ++j) {
      body(rows, column_window(s, j), i * s.out_width + j);
    }
  }
}

// The common case: windows of 2 × 2 side by side.
bool is_halving(const PoolShape& s) {
  return s.kernel_height == 2 && s.kernel_width == 2 && s.stride_y == 2 && s.stride_x == 2 &&
         s.padding_y == 0 && s.padding_x == 0 && s.dilation_y == 1 && s.dilation_x == 1;
}

// Calls body(index of the first largest pixel, o) for every output of a plane.
template <class Body>
void for_each_maximum(const PoolShape& s, const float* x, const Body& body) {
  for_each_window(s, [&](const Window& rows, const Window& columns, int64_t o) {
    int64_t best = rows.first * s.in_width + columns.first;
    for (int64_t y = rows.first; y < rows.end; y += rows.step) {
      for (int64_t p = y * s.in_width + columns.first; p < y * s.in_width + columns.end;
           p += columns.step) {
        best = x[p] <= x[best] || std::isnan(x[best]) ? best : p;
      }
    }
    body(best, o);
  });
}

float share(const PoolShape& s, const Window& rows, const Window& columns) {
  const int64_t pixels = s.include_padding && !s.adaptive
                             ? s.kernel_height * s.kernel_width
                             : (rows.end - rows.first) * (columns.end - columns.first);
  return 1.0f / static_cast<float>(pixels);
}

// Runs body(plane) for every plane, on several threads where that pays.
template <class Body>
void for_each_plane(ThreadPool& pool, const PoolShape& s, const Body& body) {
  const int64_t grain = std::max<int64_t>(1, 4096 / std::max<int64_t>(1, s.in_height * s.in_width));
  pool.parallel_for(s.planes, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t plane = begin; plane < end; ++plane) body(plane);
  });
}

}  // namespace

void max_pool2d(ThreadPool& pool, const PoolShape& s, const float* x, const float* values,
                float* y) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(max_halves_kernel);
  const bool halving = is_halving(s);
  for_each_plane(pool, s, [&](int64_t plane) {
    const int64_t in = plane * s.in_height * s.in_width, out = plane * s.out_height * s.out_width;
    if (halving) return kernel(s, x + in, values + in, y + out);
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

void avg_pool2d(ThreadPool& pool, const PoolShape& s, const float* x, float* y) {
  for_each_plane(pool, s, [&](int64_t plane) {
    const float* from = x + plane * s.in_height * s.in_width;
    float* to = y + plane * s.out_height * s.out_width;
    for_each_window(s, [&](const Window& rows, const Window& columns, int64_t o) {
      float sum = 0;
      for (int64_t i = rows.first; i < rows.end; ++i) {
        for (int64_t j = columns.first; j < columns.end; ++j) sum += from[i * s.in_width + j];
      }
      to[o] = sum * share(s, rows, columns);
    });
  });
}

void avg_pool2d_grad(ThreadPool& pool, const PoolShape& s, const float* dy, float* dx) {
  for_each_plane(pool, s, [&](int64_t plane) {
    const float* from = dy + plane * s.out_height * s.out_width;
    float* to = dx + plane * s.in_height * s.in_width;
    std::fill_n(to, s.in_height * s.in_width, 0.0f);
    for_each_window(s, [&](const Window& rows, const Window& columns, int64_t o) {
      const float part = from[o] * share(s, rows, columns);
      for (int64_t i = rows.first; i < rows.end; ++i) {
        for (int64_t j = columns.first; j < columns.end; ++j) to[i * s.in_width + j] += part;
      }
    });
  });
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
