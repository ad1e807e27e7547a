// The gated activation of gpt-oss's experts.
#pragma once

#include <cstdint>

namespace lumen::kernels {

struct ClampedSwiglu {
  float alpha = 0, limit = 0;
};

// For the gate's g and the up's u, g' = min(g, limit) and u' = clamp(u, −limit, limit):
// out[i] = (u' + 1) · g' · sigmoid(alpha · g'), n numbers; `out` may be `gate`. A NaN stays NaN.
// Single-threaded, noexcept; what a number becomes does not depend on those beside it.
void clamped_swiglu(const ClampedSwiglu& by, const float* gate, const float* up, int64_t n,
                    float* out);

// The same to `out`, which is neither of them, and its derivatives in the place of gate and up: by
// g, 0 beyond the limit, and by u, 0 beyond the limits.
void clamped_swiglu_slopes(const ClampedSwiglu& by, float* gate, float* up, int64_t n, float* out);

}  // namespace lumen::kernels
