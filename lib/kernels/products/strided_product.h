// The product of two matrices with any strides in the type of their numbers, float32 or float64,
// behind `gemm`: by vectors, of single columns, of blocks.
#pragma once

#include "lib/base/pool.h"
#include "lib/kernels/matmul.h"

namespace lumen::kernels {

// The result does not depend on the number of threads. Does not allocate. noexcept.
void strided_product(ThreadPool& pool, const StridedProduct<float>& product);
void strided_product(ThreadPool& pool, const StridedProduct<double>& product);

}  // namespace lumen::kernels
