#include "lib/kernels/loss.h"

#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/loss.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

// ln(1 + x) for x ≥ −1: with u = 1 + x rounded, ln u · x / (u − 1) undoes the rounding (Kahan).
HWY_INLINE FloatVec log1p_by_log(FloatVec x) {
  const Float d;
  const auto one = hn::Set(d, 1.0f), u = hn::Add(one, x);
  const auto corrected = hn::Div(hn::Mul(log_vector(d, u), x), hn::Sub(u, one));
  return hn::IfThenElse(hn::Eq(u, one), x, corrected);
}

void log_sigmoid(const float* const* in, float* out, int64_t n, const float*) {
  const Float d;
  for_each_vector(0, n, [&](auto load, auto store) HWY_ATTR {
    const auto x = load(in[0]);
    const auto rest = log1p_by_log(exp_vector(d, hn::Neg(hn::Abs(x))));
    const auto low = hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Zero(d), x);
    store(hn::Sub(low, rest), out);
  });
}

void binary_cross_entropy(const float* const* in, float* out, int64_t n, const float*) {
  const Float d;
  const auto least = hn::Set(d, -100.0f), one = hn::Set(d, 1.0f);
  const auto limited = [&](FloatVec v)
                           HWY_ATTR { return hn::IfThenElse(hn::Lt(v, least), least, v); };
  for_each_vector(0, n, [&](auto load, auto store) HWY_ATTR {
    const auto p = load(in[0]), t = load(in[1]);
    const auto yes = limited(log_vector(d, p)), no = limited(log1p_by_log(hn::Neg(p)));
    store(hn::Sub(hn::Mul(hn::Sub(t, one), no), hn::Mul(t, yes)), out);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

HWY_EXPORT(log_sigmoid);
HWY_EXPORT(binary_cross_entropy);

void block::log_sigmoid(const float* const* in, float* out, int64_t n, const float* params) {
  HWY_DYNAMIC_DISPATCH(log_sigmoid)(in, out, n, params);
}

void block::binary_cross_entropy(const float* const* in, float* out, int64_t n,
                                 const float* params) {
  HWY_DYNAMIC_DISPATCH(binary_cross_entropy)(in, out, n, params);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
