// Normalisation over groups of channels of each sample (Wu & He 2018), and its gradients.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/pool.h"
#include "lib/tensor/dtype.h"

namespace lumen::kernels {

// [batch, groups, channels, pixels], contiguous: `channels` of them in each group. Operands, and y,
// are of the type `dtype`, float32, float16 or bfloat16; narrow ones are computed in float32, and y
// is rounded once.
struct GroupShape {
  int64_t batch, groups, channels, pixels;
  DType dtype = DType::kF32;
};

// y = (x − mean) / √(var + eps) · w + b with the mean and biased variance of the group; w and b
// [groups · channels] may be null (1 and 0). Sums of up to 4096 numbers in float32, those in
// double. The same bits for any number of threads. noexcept.
void group_norm(ThreadPool& pool, const GroupShape& shape, const void* x, const void* w,
                const void* b, float eps, void* y);

// Bytes of `workspace` below, 64-byte aligned.
size_t group_norm_workspace_bytes(const GroupShape& shape);

// With x̂ = (x − mean) r, r = 1 / √(var + eps) and g = dy · w: dx = r (g − mean(g) − x̂ mean(g x̂)),
// means over the group; dw = Σ dy · x̂ and db = Σ dy per channel, over samples in their order.
// dy is of the type of x or float32, results are float32.
void group_norm_backward(ThreadPool& pool, const GroupShape& shape, const void* x, const void* w,
                         const void* dy, DType dy_type, float eps, float* dx, float* dw, float* db,
                         std::byte* workspace);

}  // namespace lumen::kernels
