// Sums and maxima along one axis.
#pragma once

#include <cstdint>

#include "lib/base/pool.h"

namespace lumen::kernels {

// x is [outer, axis, inner] contiguous; y is [outer, inner]. The sum is pairwise over at least 8
// partial sums (error grows with log n), the maximum is NaN if any element is. An axis of length 0
// gives 0 and −inf. Results do not depend on the number of threads.
void sum_reduce(ThreadPool& pool, const float* x, int64_t outer, int64_t axis, int64_t inner,
                float* y);
// The same of bfloat16 numbers, added up in float32; inner > 1.
void sum_reduce_bf16(ThreadPool& pool, const uint16_t* x, int64_t outer, int64_t axis,
                     int64_t inner, float* y);
void max_reduce(ThreadPool& pool, const float* x, int64_t outer, int64_t axis, int64_t inner,
                float* y);

// Index of the largest of n floats, the first of equals; NaN counts as largest. n ≥ 1.
int64_t argmax(const float* x, int64_t n);

}  // namespace lumen::kernels
