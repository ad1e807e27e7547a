// Softmax and its gradients over rows of float64. Formulas and special values as in norm.h and
// norm_backward.h; everything is computed in double.
#pragma once

#include <cstdint>

#include "lib/base/pool.h"

namespace lumen::kernels {

// `rows` rows of `dim` contiguous numbers, `stride` numbers apart.
struct RowsF64 {
  const double* data;
  int64_t rows, dim, stride;

  const double* row(int64_t i) const { return data + i * stride; }
};

// y [rows, dim], contiguous, may be x.
void softmax(ThreadPool& pool, const RowsF64& x, double* y);
void log_softmax(ThreadPool& pool, const RowsF64& x, double* y);

// dx [rows, dim], contiguous, of the result y of the function and the gradient dy of that; it may
// be one of them.
void softmax_backward(ThreadPool& pool, const RowsF64& y, const RowsF64& dy, double* dx);
void log_softmax_backward(ThreadPool& pool, const RowsF64& y, const RowsF64& dy, double* dx);

}  // namespace lumen::kernels
