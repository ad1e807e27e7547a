// Normalisation over batch and pixels, per channel (Ioffe & Szegedy 2015).
#pragma once

#include <cstdint>

#include "lib/base/pool.h"
#include "lib/tensor/dtype.h"

namespace lumen::kernels {

// [batch, channels, pixels] of float32, float16 or bfloat16, contiguous; n = batch · pixels numbers
// per channel. Narrow numbers are computed in float32, and y rounded once.
struct ChannelShape {
  int64_t batch, channels, pixels;
  DType dtype = DType::kF32;
};

// Channels of one pixel are computed so many at a time: rows far apart share few sets of the
// caches, so they are read in runs of some lines.
inline constexpr int64_t kMostChannels = 512;

// What is done with the normalised numbers x̂ = (x − mean) / √(var + eps): y = x̂ · w + b, or, with
// `relu`, max(0, x̂ · w + b); w and b [channels] may be null (1 and 0).
struct BatchNormScale {
  const float *w, *b;
  float eps;
  bool relu = false;
};

// mean and var (biased, Σ(x − mean)² / n) of every channel, and y. Two passes for the statistics;
// rows of pixels are summed in float32, rows are added up in double. Does not depend on the number
// of threads. noexcept.
void batch_norm(ThreadPool& pool, const ChannelShape& shape, const void* x,
                const BatchNormScale& scale, void* y, float* mean, float* var);
// The same in two steps.
void batch_norm_statistics(ThreadPool& pool, const ChannelShape& shape, const void* x, float* mean,
                           float* var);
void batch_norm_with(ThreadPool& pool, const ChannelShape& shape, const void* x,
                     const BatchNormScale& scale, const float* mean, const float* var, void* y);

// The gradients for those of y, mean and var: dx, dw = Σ dy · x̂ and db = Σ dy per channel. With
// `relu` dy counts where y, computed again, is above 0. dy has the type of x or is float32.
struct BatchNormGradients {
  const void* dy;
  DType dy_type;
  const float *dmean, *dvar;
  float *dx, *dw, *db;
};
void batch_norm_backward(ThreadPool& pool, const ChannelShape& shape, const void* x,
                         const BatchNormScale& scale, const float* mean, const float* var,
                         const BatchNormGradients& gradients);

}  // namespace lumen::kernels
