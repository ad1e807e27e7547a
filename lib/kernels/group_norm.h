// Normalisation over groups of channels of each sample (Wu & He 2018), and its gradients.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/pool.h"

namespace lumen::kernels {

// float32 [batch, groups, channels, pixels], contiguous: `channels` of them in each group.
struct GroupShape {
  int64_t batch, groups, channels, pixels;
};

// y = (x − mean) / √(var + eps) · w + b with the mean and biased variance of the group; w and b
// [groups · channels] may be null (1 and 0). Sums of up to 4096 numbers in float32, those in
// double. The same bits for any number of threads. noexcept.
void group_norm(ThreadPool& pool, const GroupShape& shape, const float* x, const float* w,
                const float* b, float eps, float* y);

// Bytes of `workspace` below, 64-byte aligned.
size_t group_norm_workspace_bytes(const GroupShape& shape);

// With x̂ = (x − mean) r, r = 1 / √(var + eps) and g = dy · w: dx = r (g − mean(g) − x̂ mean(g x̂)),
// means over the group; dw = Σ dy · x̂ and db = Σ dy per channel, over samples in their order.
void group_norm_backward(ThreadPool& pool, const GroupShape& shape, const float* x, const float* w,
                         const float* dy, float eps, float* dx, float* dw, float* db,
                         std::byte* workspace);

}  // namespace lumen::kernels
