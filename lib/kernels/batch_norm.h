// Normalisation over batch and pixels, per channel (Ioffe & Szegedy 2015).
#pragma once

#include <cstdint>

#include "lib/base/pool.h"

namespace lumen::kernels {

// float32 [batch, channels, pixels], contiguous; n = batch · pixels numbers per channel.
struct ChannelShape {
  int64_t batch, channels, pixels;
};

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
void batch_norm(ThreadPool& pool, const ChannelShape& shape, const float* x,
                const BatchNormScale& scale, float* y, float* mean, float* var);

// The gradients for those of y, mean and var: dx, dw = Σ dy · x̂ and db = Σ dy per channel. With
// `relu` dy counts where y, computed again, is above 0.
struct BatchNormGradients {
  const float *dy, *dmean, *dvar;
  float *dx, *dw, *db;
};
void batch_norm_backward(ThreadPool& pool, const ChannelShape& shape, const float* x,
                         const BatchNormScale& scale, const float* mean, const float* var,
                         const BatchNormGradients& gradients);

}  // namespace lumen::kernels
