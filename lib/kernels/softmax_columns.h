// Softmax along an axis that is not the last, and its gradients: x [outer, n, inner], contiguous,
// along the middle axis. Formulas, types and special values as in norm.h and norm_backward.h.
//
// Strips of neighbouring columns are copied to workspace as float32, which L2 holds whatever the
// distance of the rows is, computed there, and copied to the result, which may be one of the
// operands. The same bits for any number of threads. noexcept.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/pool.h"
#include "lib/tensor/dtype.h"

namespace lumen::kernels {

struct Columns {
  int64_t outer, n, inner;
  DType dtype = DType::kF32;  // of x and y: float32, float16 or bfloat16
};

// Bytes of `workspace` below, 64-byte aligned.
size_t softmax_columns_workspace_bytes(int64_t n, int threads);

void softmax_columns(ThreadPool& pool, const Columns& shape, const void* x, void* y,
                     std::byte* workspace);
void log_softmax_columns(ThreadPool& pool, const Columns& shape, const void* x, void* y,
                         std::byte* workspace);
void softmax_columns_backward(ThreadPool& pool, const Columns& shape, const void* y, const void* dy,
                              DType dy_type, float* dx, std::byte* workspace);
void log_softmax_columns_backward(ThreadPool& pool, const Columns& shape, const void* y,
                                  const void* dy, DType dy_type, float* dx, std::byte* workspace);

}  // namespace lumen::kernels
