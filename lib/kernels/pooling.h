// Two-dimensional pooling and its gradients.
#pragma once

#include <cstdint>

#include "lib/base/pool.h"

namespace lumen::kernels {

// Planes (batch × channels) of in_height × in_width pixels to planes of out_height × out_width; all
// contiguous. Output (i, j) looks at the pixels i · stride_y + u · dilation_y − padding_y
// (u < kernel_height) that exist, and likewise across; `adaptive`: at rows ⌊i · in / out⌋ up to
// ⌈(i + 1) · in / out⌉, nothing else of the kernel counting.
struct PoolShape {
  int64_t planes;
  int64_t in_height, in_width;
  int64_t out_height, out_width;
  int64_t kernel_height = 1, kernel_width = 1;
  int64_t stride_y = 1, stride_x = 1;
  int64_t padding_y = 0, padding_x = 0;
  int64_t dilation_y = 1, dilation_x = 1;  // of the maximum only
  bool adaptive = false;                   // of the average only
  // Averages divide by the pixels of their window, with these of the padding (but none beyond it),
  // or by `divisor`, if that is not 0.
  bool include_padding = true;
  int64_t divisor = 0;
};

// y[o] = values[p] for the first pixel p of o's window at which x is largest (a NaN is larger than
// anything): maximum pooling with values = x, which they may be. Every window has a pixel.
void max_pool2d(ThreadPool& pool, const PoolShape& shape, const float* x, const float* values,
                float* y);

// dx[p] = Σ dy[o] over the windows o whose first largest pixel p is. noexcept, as all here; nothing
// depends on the number of threads.
void max_pool2d_grad(ThreadPool& pool, const PoolShape& shape, const float* x, const float* dy,
                     float* dx);

// Averages over the windows, and the gradient: every pixel of a window gets its share of dy.
void avg_pool2d(ThreadPool& pool, const PoolShape& shape, const float* x, float* y);
void avg_pool2d_grad(ThreadPool& pool, const PoolShape& shape, const float* dy, float* dx);

// The same of float64, without vectors.
void max_pool2d_f64(ThreadPool& pool, const PoolShape& shape, const double* x, const double* values,
                    double* y);
void max_pool2d_grad_f64(ThreadPool& pool, const PoolShape& shape, const double* x,
                         const double* dy, double* dx);
void avg_pool2d_f64(ThreadPool& pool, const PoolShape& shape, const double* x, double* y);
void avg_pool2d_grad_f64(ThreadPool& pool, const PoolShape& shape, const double* dy, double* dx);

}  // namespace lumen::kernels
