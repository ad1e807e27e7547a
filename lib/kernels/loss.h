// Element-wise block functions (elementwise.h) that losses need.
#pragma once

#include <cstdint>

namespace lumen::kernels::block {

// ln sigmoid(x) = min(x, 0) − ln(1 + e^−|x|), ≤ 4 ulp.
void log_sigmoid(const float* const* in, float* out, int64_t n, const float* params);

// −(t · max(ln p, −100) + (1 − t) · max(ln(1 − p), −100)) for p = in0, t = in1, as torch.
void binary_cross_entropy(const float* const* in, float* out, int64_t n, const float* params);

}  // namespace lumen::kernels::block
