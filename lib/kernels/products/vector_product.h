// The inner parts of products of a matrix with a vector, and of two vectors: pieces for one thread.
#pragma once

#include <cstdint>

#include "lib/tensor/dtype.h"

namespace lumen::kernels {

// Numbers of a row whose products are added up side by side: sums of longer rows are made of those
// of such blocks, added in order.
inline constexpr int64_t kRowBlock = 8192;

// sums[i] = Σ_k a[i · a_stride + k] · x[k] for k in [0, depth), i in [0, rows). A sum does not
// depend on which rows stand beside it. noexcept.
void dot_rows_with(const float* a, int64_t a_stride, int64_t rows, const float* x, int64_t depth,
                   float* sums);
void dot_rows_with(const double* a, int64_t a_stride, int64_t rows, const double* x, int64_t depth,
                   double* sums);

// The same of rows of float16 or bfloat16 numbers, to the bit what it gives of them as float32.
void dot_rows_with(DType dtype, const uint16_t* a, int64_t a_stride, int64_t rows, const float* x,
                   int64_t depth, float* sums);

// At most so many columns of a call.
inline constexpr int64_t kColumnChunk = 1024;

// y[j] = (add ? y[j] : 0) + Σ_k a[k · a_stride + j] · x[k · x_stride] for k in [0, depth), j in [0,
// cols): every sum is one chain of multiply-adds over k, as multiply_panels makes. noexcept.
void sum_rows_times(const float* a, int64_t a_stride, int64_t cols, const float* x,
                    int64_t x_stride, int64_t depth, bool add, float* y);
void sum_rows_times(const double* a, int64_t a_stride, int64_t cols, const double* x,
                    int64_t x_stride, int64_t depth, bool add, double* y);

void sum_rows_times(DType dtype, const uint16_t* a, int64_t a_stride, int64_t cols, const float* x,
                    int64_t depth, bool add, float* y);

// y[j] = (add ? y[j] : 0) + factor · x[j] for j in [0, n); `past_caches`: as stream (streaming.h),
// only without `add`. noexcept.
void scale_row(float factor, const float* x, int64_t n, bool add, bool past_caches, float* y);
void scale_row(double factor, const double* x, int64_t n, bool add, bool past_caches, double* y);

}  // namespace lumen::kernels
