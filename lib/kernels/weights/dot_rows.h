// Products of few activation rows with many weight rows: each weight is read once from memory.
#pragma once

#include <cstdint>

#include "lib/kernels/matmul.h"
#include "lib/kernels/weights/quantize_rows.h"

namespace lumen::kernels {

// y[r][j − begin] = Σ_k x[r][k] · w[j][k] for weight rows j in [begin, end) and r in [0, m). Rows
// of y are y_stride floats apart. A sum is formed in the same order whatever m, begin and end are.
// Single-threaded, noexcept.

// Float weights (f32 f16 bf16), float32 accumulation; rows of x are x_stride floats apart.
void dot_rows_float(const Weight& w, int64_t begin, int64_t end, const float* x, int64_t x_stride,
                    int64_t m, float* y, int64_t y_stride);

// Quantised weights: int32 within a block, float32 across. Takes the native kernel
// (dot_rows_vnni.h) where the SIMD target in use has one, else the portable one.
void dot_rows_quantized(const Weight& w, int64_t begin, int64_t end, const QuantizedRows& x,
                        int64_t m, float* y, int64_t y_stride);
void dot_rows_portable(const Weight& w, int64_t begin, int64_t end, const QuantizedRows& x,
                       int64_t m, float* y, int64_t y_stride);

}  // namespace lumen::kernels
