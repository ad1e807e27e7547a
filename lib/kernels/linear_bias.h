// Linear biases of attention (ALiBi; Press et al. 2022): to the score of position p head h adds
// slope(h) · (p − t) for a query at position t.
#pragma once

#include <cmath>
#include <cstdint>

namespace lumen::kernels {

// With n the largest power of 2 that is not above `heads`: 2^(−max_bias · (h + 1) / n) of the first
// n heads h, and of the others those of 2n heads in between, 2^(−max_bias · (2 (h − n) + 1) / 2n).
inline float bias_slope(int64_t heads, float max_bias, int64_t head) {
  int64_t n = 1;
  while (2 * n <= heads) n *= 2;
  const int64_t step = head < n ? 2 * (head + 1) : 2 * (head - n) + 1;
  return std::exp2(-max_bias * static_cast<float>(step) / static_cast<float>(2 * n));
}

}  // namespace lumen::kernels
