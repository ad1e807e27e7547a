// Sums, extremes and products along one axis.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/pool.h"
#include "lib/tensor/dtype.h"

namespace lumen::kernels {

// x is [outer, axis, inner] contiguous; y is [outer, inner]. The sum is pairwise over at least 8
// partial sums (error grows with log n), maximum and minimum are NaN if any element is. An axis of
// length 0 gives 0, −inf and inf. Results do not depend on the number of threads.
void sum_reduce(ThreadPool& pool, const float* x, int64_t outer, int64_t axis, int64_t inner,
                float* y);
// The same of float16 or bfloat16 numbers, added up in float32.
void sum_reduce_half(ThreadPool& pool, DType dtype, const uint16_t* x, int64_t outer, int64_t axis,
                     int64_t inner, float* y);
// Of their squares.
void square_sum_reduce(ThreadPool& pool, const float* x, int64_t outer, int64_t axis, int64_t inner,
                       float* y);
void square_sum_reduce_half(ThreadPool& pool, DType dtype, const uint16_t* x, int64_t outer,
                            int64_t axis, int64_t inner, float* y);
void square_sum_reduce_f64(ThreadPool& pool, const double* x, int64_t outer, int64_t axis,
                           int64_t inner, double* y);
void max_reduce(ThreadPool& pool, const float* x, int64_t outer, int64_t axis, int64_t inner,
                float* y);
void min_reduce(ThreadPool& pool, const float* x, int64_t outer, int64_t axis, int64_t inner,
                float* y);
// The same of float16 or bfloat16 numbers.
void max_reduce_half(ThreadPool& pool, DType dtype, const uint16_t* x, int64_t outer, int64_t axis,
                     int64_t inner, float* y);
void min_reduce_half(ThreadPool& pool, DType dtype, const uint16_t* x, int64_t outer, int64_t axis,
                     int64_t inner, float* y);

// Products of any plain type `from`, stored as `to`: of floats carried in double, of others in
// int64, which wraps; of nothing 1. Those down columns of floats (inner > 1), and of lines of at
// most 64, are the last of the running products (product_scan, typed.h); elements of longer lines
// are multiplied in an order that depends on their number alone.
void prod_reduce(ThreadPool& pool, DType from, const std::byte* x, int64_t outer, int64_t axis,
                 int64_t inner, DType to, std::byte* y);

// Index of the largest of n floats, the first of equals; NaN counts as largest. n ≥ 1.
int64_t argmax(const float* x, int64_t n);

}  // namespace lumen::kernels
