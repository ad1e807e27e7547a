// Element-wise block functions (elementwise.h, elementwise_f64.h) that losses need.
#pragma once

#include <cstdint>

namespace lumen::kernels::block {

// ln sigmoid(x) = min(x, 0) − ln(1 + e^−|x|), ≤ 4 ulp.
void log_sigmoid(const float* const* in, float* out, int64_t n, const float* params);

// −(t · max(ln p, −100) + (1 − t) · max(ln(1 − p), −100)) for p = in0, t = in1, as torch.
void binary_cross_entropy(const float* const* in, float* out, int64_t n, const float* params);

// c · (d − c/2) with c = min(max(d, low), high), for in0, in1 and in2. With −δ and δ Huber's loss.
void huber(const float* const* in, float* out, int64_t n, const float* params);

}  // namespace lumen::kernels::block

// The same in double, ≤ 4 ulp.
namespace lumen::kernels::block_f64 {
void log_sigmoid(const double* const* in, double* out, int64_t n);
void binary_cross_entropy(const double* const* in, double* out, int64_t n);
void huber(const double* const* in, double* out, int64_t n);
}  // namespace lumen::kernels::block_f64
