// Row normalisations and softmax.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/pool.h"
#include "lib/kernels/numbers.h"

namespace lumen::kernels {

// `rows` rows of `dim` contiguous numbers of type `dtype`, float32, float16 or bfloat16, `stride`
// numbers apart. What is computed of narrow ones is what would be of the same numbers in float32,
// rounded once.
struct Rows {
  const void* data;
  int64_t rows, dim, stride;
  DType dtype = DType::kF32;

  const void* row(int64_t i) const { return number_address(dtype, data, i * stride); }
};

// Results are numbers of the type of x unless said otherwise, weights are, too.

// y = x / √(mean(x²) + eps) · w (Zhang & Sennrich 2019); w has `dim` numbers, null means ones.
// y may be x. With `to_bf16` x is float32 and y, elsewhere, is rounded to bfloat16. Sums in float32
// over 4 or more partial sums per vector lane. noexcept.
void rms_norm(ThreadPool& pool, const Rows& x, const void* w, float eps, void* y, int64_t y_stride,
              bool to_bf16 = false);

// y = (x − mean) / √(var + eps) · w + b (Ba et al. 2016), biased variance, two passes.
void layer_norm(ThreadPool& pool, const Rows& x, const void* w, const void* b, float eps, void* y,
                int64_t y_stride, bool to_bf16 = false);

// y = exp(x − max) / Σ exp(x − max). A row with a NaN gives NaN; a row of only −inf gives NaN.
// Narrow rows need a workspace, 64-byte aligned.
size_t softmax_workspace_bytes(DType dtype, int64_t dim, int threads);
void softmax(ThreadPool& pool, const Rows& x, void* y, int64_t y_stride,
             std::byte* workspace = nullptr);

// y = x − max − ln Σ exp(x − max); special rows as softmax.
void log_softmax(ThreadPool& pool, const Rows& x, void* y, int64_t y_stride);

}  // namespace lumen::kernels
