// Gradients of the row normalisations and of softmax (norm.h), fused: each row is read while it
// lies in the cache, and the gradients of the weights are summed on the way.
//
// dy has the rows and dim of x, and its type or float32; weights have the type of x, results are
// float32. Outputs are contiguous rows, `dim` apart, and overlap nothing, except that dx may be dy
// if both are contiguous. The same bits for any number of threads: rows are summed in fixed blocks,
// and the blocks in order. noexcept.
#pragma once

#include <cstddef>

#include "lib/kernels/norm.h"

namespace lumen::kernels {

// dx = y · (dy − Σ y dy) with y = softmax(x).
void softmax_backward(ThreadPool& pool, const Rows& y, const Rows& dy, float* dx);

// dx = dy − exp(y) · Σ dy with y = log_softmax(x).
void log_softmax_backward(ThreadPool& pool, const Rows& y, const Rows& dy, float* dx);

// Bytes of `workspace` below, 64-byte aligned, for any number of threads.
size_t norm_backward_workspace_bytes(int64_t rows, int64_t dim);

// With r = 1 / √(mean(x²) + eps) and g = dy · w: dx = r g − x r³ mean(g x); dw = Σ over rows of
// dy · x · r.
void rms_norm_backward(ThreadPool& pool, const Rows& x, const void* w, const Rows& dy, float eps,
                       float* dx, float* dw, std::byte* workspace);

// With x̂ = (x − mean) r, r = 1 / √(var + eps) and g = dy · w: dx = r (g − mean(g) − x̂ mean(g x̂));
// dw = Σ over rows of dy · x̂; db = Σ over rows of dy.
void layer_norm_backward(ThreadPool& pool, const Rows& x, const void* w, const Rows& dy, float eps,
                         float* dx, float* dw, float* db, std::byte* workspace);

}  // namespace lumen::kernels
