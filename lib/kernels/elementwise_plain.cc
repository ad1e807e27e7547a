// Element-wise block functions that are rare: plain loops over libm.
#include <cmath>

#include "lib/kernels/elementwise.h"

namespace lumen::kernels::block {
namespace {

template <class F>
void map(const float* const* in, float* out, int64_t n, F f) {
  for (int64_t i = 0; i < n; ++i) out[i] = f(in[0][i]);
}
template <class F>
void map2(const float* const* in, float* out, int64_t n, F f) {
  for (int64_t i = 0; i < n; ++i) out[i] = f(in[0][i], in[1][i]);
}

}  // namespace

void pow(const float* const* in, float* out, int64_t n, const float*) {
  map2(in, out, n, [](float x, float y) { return std::pow(x, y); });
}
void sign(const float* const* in, float* out, int64_t n, const float*) {
  map(in, out, n, [](float x) { return static_cast<float>((0 < x) - (x < 0)); });
}

}  // namespace lumen::kernels::block
