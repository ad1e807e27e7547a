// Element-wise block functions in double: what a step of float64 runs. Compiled for every Highway
// target, dispatched at run time.
#pragma once

#include <cstdint>

namespace lumen::kernels {

// Computes out[i] = f(in[0][i], in[1][i], …) for i in [0, n) in double. Inputs and output are
// contiguous, unaligned, non-overlapping or exactly equal to out (in place). Functions are noexcept
// and single-threaded.
using BlockF64Fn = void (*)(const double* const* in, double* out, int64_t n);

// Formulas and special values are those of the float functions of the same names (elementwise.h),
// with results down to the smallest number. + − × ÷ sqrt are correctly rounded, the others within 4
// ulp (gelu: 6; gelu_tanh: for x > −0.75; slopes: within 4 ulp of 1).
namespace block_f64 {
void add(const double* const* in, double* out, int64_t n);
void sub(const double* const* in, double* out, int64_t n);
void mul(const double* const* in, double* out, int64_t n);
void div(const double* const* in, double* out, int64_t n);
// C's fmod; Python's % and //, as block::remainder and block::floor_divide. Exact.
void mod(const double* const* in, double* out, int64_t n);
void remainder(const double* const* in, double* out, int64_t n);
void floor_divide(const double* const* in, double* out, int64_t n);
void maximum(const double* const* in, double* out, int64_t n);
void minimum(const double* const* in, double* out, int64_t n);
void clamp(const double* const* in, double* out, int64_t n);
void neg(const double* const* in, double* out, int64_t n);
void abs(const double* const* in, double* out, int64_t n);
void sign(const double* const* in, double* out, int64_t n);
void relu(const double* const* in, double* out, int64_t n);
void leaky_relu(const double* const* in, double* out, int64_t n);
void floor(const double* const* in, double* out, int64_t n);
void ceil(const double* const* in, double* out, int64_t n);
void round(const double* const* in, double* out, int64_t n);
void trunc(const double* const* in, double* out, int64_t n);
void exp2(const double* const* in, double* out, int64_t n);
void log2(const double* const* in, double* out, int64_t n);
void exp(const double* const* in, double* out, int64_t n);
void log(const double* const* in, double* out, int64_t n);
void expm1(const double* const* in, double* out, int64_t n);
void log1p(const double* const* in, double* out, int64_t n);
void sin(const double* const* in, double* out, int64_t n);
void cos(const double* const* in, double* out, int64_t n);
void sqrt(const double* const* in, double* out, int64_t n);
void rsqrt(const double* const* in, double* out, int64_t n);
void recip(const double* const* in, double* out, int64_t n);
void tanh(const double* const* in, double* out, int64_t n);
void sigmoid(const double* const* in, double* out, int64_t n);
void silu(const double* const* in, double* out, int64_t n);
void silu_slope(const double* const* in, double* out, int64_t n);
void gelu(const double* const* in, double* out, int64_t n);
void gelu_slope(const double* const* in, double* out, int64_t n);
void gelu_tanh(const double* const* in, double* out, int64_t n);
void gelu_tanh_slope(const double* const* in, double* out, int64_t n);
void hard_swish(const double* const* in, double* out, int64_t n);
void hard_swish_slope(const double* const* in, double* out, int64_t n);
void pow(const double* const* in, double* out, int64_t n);
void erf(const double* const* in, double* out, int64_t n);
}  // namespace block_f64

}  // namespace lumen::kernels
