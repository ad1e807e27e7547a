#include "lib/kernels/soft_cap.h"

#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/soft_cap.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

void soft_cap_fine(const SoftCap& by, int64_t n, float* x) {
  const Float d;
  const auto inverse = hn::Set(d, by.inverse), cap = hn::Set(d, by.cap);
  for_each_vector(0, n, [&](auto load, auto store) HWY_ATTR {
    store(hn::Mul(tanh_vector(d, hn::Mul(load(x), inverse)), cap), x);
  });
}

void soft_cap_coarse(const SoftCap& by, int64_t n, float* x) {
  const Float d;
  const auto inverse = hn::Set(d, 2 * kLog2E * by.inverse), cap = hn::Set(d, by.cap);
  for_each_vector(0, n, [&](auto load, auto store) HWY_ATTR {
    store(capped_coarse(d, hn::Mul(load(x), inverse), cap), x);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {

HWY_EXPORT(soft_cap_fine);
HWY_EXPORT(soft_cap_coarse);

void soft_cap(const SoftCap& by, bool coarse, int64_t n, float* x) {
  if (coarse) return HWY_DYNAMIC_DISPATCH(soft_cap_coarse)(by, n, x);
  HWY_DYNAMIC_DISPATCH(soft_cap_fine)(by, n, x);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
