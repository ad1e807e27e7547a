// Row normalisations, softmax and their gradients of float64. Formulas and special values as in
// norm.h and norm_backward.h; everything is computed in double. The same bits for any number of
// threads. noexcept.
#pragma once

#include <cstddef>
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

// y [rows, dim], contiguous, may be x; w and b have `dim` numbers.
void rms_norm(ThreadPool& pool, const RowsF64& x, const double* w, double eps, double* y);
void layer_norm(ThreadPool& pool, const RowsF64& x, const double* w, const double* b, double eps,
                double* y);

// dx [rows, dim], contiguous, may be x or dy; dw and db [dim]. `workspace` is 64-byte aligned.
size_t norm_backward_f64_workspace_bytes(int64_t rows, int64_t dim);
void rms_norm_backward(ThreadPool& pool, const RowsF64& x, const double* w, const RowsF64& dy,
                       double eps, double* dx, double* dw, std::byte* workspace);
void layer_norm_backward(ThreadPool& pool, const RowsF64& x, const double* w, const RowsF64& dy,
                         double eps, double* dx, double* dw, double* db, std::byte* workspace);

}  // namespace lumen::kernels
