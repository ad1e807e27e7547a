// Random numbers from a counter: Philox4x32-10 (Salmon et al. 2011), the generator of
// base/random.h, computed many counters at a time.
//
// Element i of an array is a pure function of key, stream and i: the same bits on every machine and
// SIMD target and for any number of threads. Elements come in groups of 64: element i takes word
// (i mod 64) / 16 of the block with counter 16 (i / 64) + i mod 16, that is of
// Philox(seed | step << 32, stream).block(16 (i / 64) + i mod 16). noexcept.
#pragma once

#include <cstdint>

#include "lib/base/pool.h"

namespace lumen::kernels {

struct RandomKey {
  uint32_t seed, step;
  uint64_t stream;  // distinct for each use
};

// low + (high − low) u with u uniform on the multiples of 2⁻²⁴ in [0, 1): word >> 8.
void uniform_fill(ThreadPool& pool, const RandomKey& key, int64_t n, float low, float high,
                  float* y);

// mean + stddev z, z standard normal by Box & Muller from pairs of words (0, 1) and (2, 3):
// √(−2 ln u₀) cos 2πu₁ and √(−2 ln u₀) sin 2πu₁, u₀ in (0, 1]; |z| ≤ 5.77.
void normal_fill(ThreadPool& pool, const RandomKey& key, int64_t n, float mean, float stddev,
                 float* y);

// What dropout with probability p does with an element: 0 where the upper 24 bits of its word are
// below `threshold`, that is u < p, else times `scale`, 1 / (1 − p) (0 for p = 1).
struct DropoutRule {
  float threshold, scale;
};
inline DropoutRule dropout_rule(double p) {
  return {static_cast<float>(p) * 0x1p24f, p < 1 ? static_cast<float>(1 / (1 - p)) : 0.0f};
}

// y = x · (u < p ? 0 : 1 / (1 − p)), u as in uniform_fill; p = 1 gives zeros. y may be x.
void dropout(ThreadPool& pool, const RandomKey& key, int64_t n, double p, const float* x, float* y);

}  // namespace lumen::kernels
