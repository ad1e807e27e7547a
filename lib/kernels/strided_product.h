// The product of two matrices with any strides in the type of their numbers, float32 or float64,
// behind `gemm`: by vectors, of single columns, of blocks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/pool.h"
#include "lib/kernels/matmul.h"

namespace lumen::kernels {

// c[i][j] = Σ_k a[i][k] · b[k][j], as GemmArgs says.
template <typename T>
struct StridedProduct {
  int64_t m, n, k;
  const T* a;
  int64_t a_row_stride, a_col_stride;
  const T* b;
  int64_t b_row_stride, b_col_stride;
  T* c;
  int64_t c_stride;
  std::byte* workspace;  // blocked_product_bytes, or those of float64
  bool accumulate = false;
  const EpilogueOf<T>* epilogue = nullptr;
  bool rounds = false;  // a and b to bfloat16; only float32
};

// The result does not depend on the number of threads. Does not allocate. noexcept.
void strided_product(ThreadPool& pool, const StridedProduct<float>& product);
void strided_product(ThreadPool& pool, const StridedProduct<double>& product);

}  // namespace lumen::kernels
