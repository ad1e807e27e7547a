// Row normalisations and softmax.
#pragma once

#include <cstdint>

#include "lib/base/pool.h"
#include "lib/tensor/dtype.h"

namespace lumen::kernels {

// `rows` rows of `dim` contiguous floats, `stride` floats apart.
struct Rows {
  const float* data;
  int64_t rows, dim, stride;
};

// With y_type kBF16 numbers of y are rounded to bfloat16 as products do it (bf16_panels.h), and y
// points at such numbers; dim is at most this then.
inline constexpr int64_t kMaxRoundedDim = 4096;

// y = x / √(mean(x²) + eps) · w (Zhang & Sennrich 2019); w has `dim` floats, null means ones.
// y may be x. Sums in float32 over 4 or more partial sums per vector lane. noexcept.
void rms_norm(ThreadPool& pool, const Rows& x, const float* w, float eps, float* y,
              int64_t y_stride, DType y_type = DType::kF32);

// y = (x − mean) / √(var + eps) · w + b (Ba et al. 2016), biased variance, two passes.
void layer_norm(ThreadPool& pool, const Rows& x, const float* w, const float* b, float eps,
                float* y, int64_t y_stride, DType y_type = DType::kF32);

// y = exp(x − max) / Σ exp(x − max). A row with a NaN gives NaN; a row of only −inf gives NaN.
void softmax(ThreadPool& pool, const Rows& x, float* y, int64_t y_stride);

// y = x − max − ln Σ exp(x − max); special rows as softmax.
void log_softmax(ThreadPool& pool, const Rows& x, float* y, int64_t y_stride);

}  // namespace lumen::kernels
