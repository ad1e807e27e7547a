#include "lib/kernels/clamped_swiglu.h"

#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/clamped_swiglu.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

void clamped_swiglu_kernel(const ClampedSwiglu& by, const float* gate, const float* up, int64_t n,
                           float* out) {
  const Float d;
  const auto alpha = hn::Set(d, by.alpha), limit = hn::Set(d, by.limit);
  const auto least = hn::Neg(limit), one = hn::Set(d, 1.0f);
  for_each_vector(0, n, [&](auto load, auto store) HWY_ATTR {
    auto g = load(gate), u = load(up);
    // Comparisons with a NaN are false.
    g = hn::IfThenElse(hn::Gt(g, limit), limit, g);
    u = hn::IfThenElse(hn::Gt(u, limit), limit, hn::IfThenElse(hn::Lt(u, least), least, u));
    const auto activated = hn::Mul(g, sigmoid_vector(d, hn::Mul(g, alpha)));
    store(hn::Mul(hn::Add(u, one), activated), out);
  });
}

void clamped_swiglu_slopes_kernel(const ClampedSwiglu& by, float* gate, float* up, int64_t n,
                                  float* out) {
  const Float d;
  const auto alpha = hn::Set(d, by.alpha), limit = hn::Set(d, by.limit), one = hn::Set(d, 1.0f);
  for_each_vector(0, n, [&](auto load, auto store) HWY_ATTR {
    const auto g = load(gate), u = load(up);
    const auto clamped = hn::Min(g, limit);
    const auto more = hn::Add(hn::Max(hn::Neg(limit), hn::Min(u, limit)), one);
    // a(g) = g σ(αg), a'(g) = σ(αg) (1 + αg (1 − σ(αg))).
    const auto scaled = hn::Mul(clamped, alpha), sigma = sigmoid_vector(d, scaled);
    const auto activated = hn::Mul(clamped, sigma);
    const auto slope = hn::Mul(sigma, hn::MulAdd(scaled, hn::Sub(one, sigma), one));
    store(hn::Mul(more, activated), out);
    store(hn::IfThenElseZero(hn::Le(g, limit), hn::Mul(more, slope)), gate);
    store(hn::IfThenElseZero(hn::Le(hn::Abs(u), limit), activated), up);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

HWY_EXPORT(clamped_swiglu_kernel);
HWY_EXPORT(clamped_swiglu_slopes_kernel);

void clamped_swiglu(const ClampedSwiglu& by, const float* gate, const float* up, int64_t n,
                    float* out) {
  HWY_DYNAMIC_DISPATCH(clamped_swiglu_kernel)(by, gate, up, n, out);
}

void clamped_swiglu_slopes(const ClampedSwiglu& by, float* gate, float* up, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(clamped_swiglu_slopes_kernel)(by, gate, up, n, out);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
