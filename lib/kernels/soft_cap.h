// Soft caps of attention's scores and of logits (Gemma 2): cap · tanh(x / cap).
#pragma once

#include <cstdint>

namespace lumen::kernels {

// x → cap · tanh(inverse · x), where inverse is 1 / cap, or that times what x lacks.
struct SoftCap {
  float inverse, cap;
};

// In place, n numbers. Errors are 3 ulp, or `coarse` 1.3e-6 · cap, for what is multiplied as
// bfloat16 numbers or codes. A NaN stays NaN, an infinity becomes ±cap. Single-threaded, noexcept;
// what a number becomes does not depend on those beside it.
void soft_cap(const SoftCap& by, bool coarse, int64_t n, float* x);

}  // namespace lumen::kernels
