// Element-wise block functions: what a fused step runs, chunk by chunk, over pieces that stay in
// L1. Compiled for every Highway target, dispatched at run time.
#pragma once

#include <cstdint>

namespace lumen::kernels {

// Computes out[i] = f(in[0][i], in[1][i], …) for i in [0, n) in float. Inputs and output are
// contiguous, unaligned, non-overlapping or exactly equal to out (in place). `params` are the
// function's constants, null where it has none. Functions are noexcept and single-threaded.
using BlockFn = void (*)(const float* const* in, float* out, int64_t n, const float* params);

// Special values follow IEEE 754 and C's <math.h> unless stated. + − × ÷ sqrt are correctly
// rounded, the others within 4 ulp (gelu: for x > −1, gelu_tanh: for x > −0.75, beyond that their
// arguments' rounding counts; slopes: within 4 ulp of 1).
namespace block {
void add(const float* const* in, float* out, int64_t n, const float* params);
void sub(const float* const* in, float* out, int64_t n, const float* params);
void mul(const float* const* in, float* out, int64_t n, const float* params);
void div(const float* const* in, float* out, int64_t n, const float* params);
// C fmodf: the result has the sign of the dividend.
void mod(const float* const* in, float* out, int64_t n, const float* params);
// x − floor(x / y) · y, exactly: the sign of the divisor, as Python's %.
void remainder(const float* const* in, float* out, int64_t n, const float* params);
// Python's //: the quotient that belongs to remainder; x / 0 as IEEE 754.
void floor_divide(const float* const* in, float* out, int64_t n, const float* params);
// 1 where in0 < in1, else 0; NaN compares false.
void less_than(const float* const* in, float* out, int64_t n, const float* params);
void equal(const float* const* in, float* out, int64_t n, const float* params);
// NaN if either is NaN.
void maximum(const float* const* in, float* out, int64_t n, const float* params);
void minimum(const float* const* in, float* out, int64_t n, const float* params);
// in0 != 0 ? in1 : in2.
void where(const float* const* in, float* out, int64_t n, const float* params);
void neg(const float* const* in, float* out, int64_t n, const float* params);
void abs(const float* const* in, float* out, int64_t n, const float* params);
void exp2(const float* const* in, float* out, int64_t n, const float* params);
void log2(const float* const* in, float* out, int64_t n, const float* params);
void exp(const float* const* in, float* out, int64_t n, const float* params);
void log(const float* const* in, float* out, int64_t n, const float* params);
// Accurate for every x: reduced in double, very large angles by libm.
void sin(const float* const* in, float* out, int64_t n, const float* params);
void cos(const float* const* in, float* out, int64_t n, const float* params);
void sqrt(const float* const* in, float* out, int64_t n, const float* params);
void rsqrt(const float* const* in, float* out, int64_t n, const float* params);
void recip(const float* const* in, float* out, int64_t n, const float* params);
void tanh(const float* const* in, float* out, int64_t n, const float* params);
// 1 / (1 + exp(−x)).
void sigmoid(const float* const* in, float* out, int64_t n, const float* params);
// x · sigmoid(x).
void silu(const float* const* in, float* out, int64_t n, const float* params);
// x · Φ(x) = x/2 · (1 + erf(x/√2)); 0 for x < −6.
void gelu(const float* const* in, float* out, int64_t n, const float* params);
// x/2 · (1 + tanh(√(2/π)·(x + 0.044715 x³))).
void gelu_tanh(const float* const* in, float* out, int64_t n, const float* params);
// The derivatives of the three at x.
void silu_slope(const float* const* in, float* out, int64_t n, const float* params);
void gelu_slope(const float* const* in, float* out, int64_t n, const float* params);
void gelu_tanh_slope(const float* const* in, float* out, int64_t n, const float* params);
// x · clamp(x + 3, 0, 6) / 6; −0 for x ≤ −3.
void hard_swish(const float* const* in, float* out, int64_t n, const float* params);
// Its derivative: x/3 + ½ for |x| ≤ 3, else 0 or 1.
void hard_swish_slope(const float* const* in, float* out, int64_t n, const float* params);
void relu(const float* const* in, float* out, int64_t n, const float* params);
// in0 > 0 ? in1 : in2 · in1.
void leaky_relu(const float* const* in, float* out, int64_t n, const float* params);
void floor(const float* const* in, float* out, int64_t n, const float* params);
void ceil(const float* const* in, float* out, int64_t n, const float* params);
// Halves to even.
void round(const float* const* in, float* out, int64_t n, const float* params);
void trunc(const float* const* in, float* out, int64_t n, const float* params);
void erf(const float* const* in, float* out, int64_t n, const float* params);
void expm1(const float* const* in, float* out, int64_t n, const float* params);
void log1p(const float* const* in, float* out, int64_t n, const float* params);
void pow(const float* const* in, float* out, int64_t n, const float* params);
// min(max(x, low), high) of x, low and high; NaN stays, bounds are none.
void clamp(const float* const* in, float* out, int64_t n, const float* params);
// (0 < x) − (x < 0); 0 for NaN.
void sign(const float* const* in, float* out, int64_t n, const float* params);
}  // namespace block

}  // namespace lumen::kernels
