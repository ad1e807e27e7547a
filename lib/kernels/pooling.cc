#include "lib/kernels/pooling.h"

#include <algorithm>
#include <cmath>

namespace lumen::kernels {
namespace {

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

// Calls body(index of the first largest pixel, o) for every output of a plane.
template <class Body>
void for_each_maximum(const PoolShape& s, const float* x, const Body& body) {
  const bool halves = s.kernel_height == 2 && s.kernel_width == 2 && s.stride_y == 2 &&
                      s.stride_x == 2 && s.padding_y == 0 && s.padding_x == 0 &&
                      s.dilation_y == 1 && s.dilation_x == 1;
  if (halves) {
    // The common case without branches; later pixels win only if larger or NaN.
    for (int64_t i = 0; i < s.out_height; ++i) {
      for (int64_t j = 0; j < s.out_width; ++j) {
        int64_t best = 2 * (i * s.in_width + j);
        for (int64_t p : {best + 1, best + s.in_width, best + s.in_width + 1}) {
          best = x[p] <= x[best] || std::isnan(x[best]) ? best : p;
        }
        body(best, i * s.out_width + j);
      }
    }
    return;
  }
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
  for_each_plane(pool, s, [&](int64_t plane) {
    const int64_t in = plane * s.in_height * s.in_width, out = plane * s.out_height * s.out_width;
    for_each_maximum(s, x + in, [&](int64_t p, int64_t o) { y[out + o] = values[in + p]; });
  });
}

void max_pool2d_grad(ThreadPool& pool, const PoolShape& s, const float* x, const float* dy,
                     float* dx) {
  for_each_plane(pool, s, [&](int64_t plane) {
    const int64_t in = plane * s.in_height * s.in_width, out = plane * s.out_height * s.out_width;
    std::fill_n(dx + in, s.in_height * s.in_width, 0.0f);
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
