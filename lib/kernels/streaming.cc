#include "lib/kernels/streaming.h"

#include <algorithm>
#include <cstdint>

#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/streaming.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

void stream_kernel(const float* x, int64_t n, float* y) {
  const hn::ScalableTag<float> d;
  constexpr int64_t kLine = 16, kLanes = hn::MaxLanes(hn::ScalableTag<float>());
  const auto misaligned =
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(y) / sizeof(float)) % kLine;
  int64_t i = 0;
  for (const int64_t head = std::min(n, (kLine - misaligned) % kLine); i < head; ++i) y[i] = x[i];
  for (; i + kLine <= n; i += kLine) {
    for (int64_t at = i; at < i + kLine; at += kLanes) hn::Stream(hn::LoadU(d, x + at), d, y + at);
  }
  for (; i < n; ++i) y[i] = x[i];
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
HWY_EXPORT(stream_kernel);

void stream(const float* x, int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(stream_kernel)(x, n, y);
}

void finish_streams() {
  hwy::FlushStream();
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
