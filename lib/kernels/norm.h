// Row normalisations and softmax.
#pragma once

#include <cstdint>

#include "lib/base/pool.h"

namespace lumen::kernels {

// `rows` rows of `dim` contiguous floats, `stride` floats apart.
struct Rows {
  const float* data;
  int64_t rows, dim, stride;
};

// y = x / √(mean(x²) + eps) · w (Zhang & Sennrich 2019); w has `dim` floats, null means ones.
// y may be x. Sums in float32 over 4 or more partial sums per vector lane. noexcept.
void rms_norm(ThreadPool& pool, const Rows& x, const float* w, float eps, float* y,
              int64_t y_stride);

// y = (x − mean) / √(var + eps) · w + b (Ba et al. 2016), biased variance, two passes.
void layer_norm(ThreadPool& pool, const Rows& x, const float* w, const float* b, float eps,
                float* y, int64_t y_stride);

// y = exp(x − max) / Σ exp(x − max). A row with a NaN gives NaN; a row of only −inf gives NaN.
void softmax(ThreadPool& pool, const Rows& x, float* y, int64_t y_stride);

// y = x − max − ln Σ exp(x − max); special rows as softmax.
void log_softmax(ThreadPool& pool, const Rows& x, float* y, int64_t y_stride);

}  // namespace lumen::kernels
