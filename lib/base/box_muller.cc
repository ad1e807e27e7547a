#include "lib/base/box_muller.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace lumen {
namespace {

constexpr int kHalf = kNormalGroup / 2;
constexpr double kMagic = 0x1.8p52;  // x + kMagic is x rounded to an integer, in the lower bits

// Series in z: c[0] + c[1] z + …
template <int kCount>
double series(const double (&c)[kCount], double z) {
  double sum = c[kCount - 1];
  for (int i = kCount - 1; i-- > 0;) sum = sum * z + c[i];
  return sum;
}

// ln x for x in [2⁻²⁴, 1]: x = 2^k m with √½ ≤ m < √2, ln m = 2 artanh s, s = (m − 1) / (m + 1),
// |s| ≤ 0.172. Operations on bits that every vector unit has, so that compilers make vectors.
double log_of(double x) {
  constexpr double kSeries[] = {2.0,      2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,
                                2.0 / 11, 2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19};
  constexpr double kLn2High = 0x1.62e42fee00000p-1, kLn2Low = 0x1.a39ef35793c76p-33;
  constexpr uint64_t kLeast = 0x3fe6a09e667f3bcd;  // √½
  constexpr uint64_t kBias = 64;
  const auto bits = std::bit_cast<uint64_t>(x);
  const uint64_t exponent = (bits - kLeast + (kBias << 52)) >> 52;  // k + kBias
  const double k = std::bit_cast<double>(exponent | 0x4330000000000000) - (0x1p52 + kBias);
  const double m = std::bit_cast<double>(bits - ((exponent - kBias) << 52));
  const double s = (m - 1) / (m + 1);
  return k * kLn2High + (s * series(kSeries, s * s) + k * kLn2Low);
}

// sin and cos of x in [0, 7]: x = n π/2 + r, |r| ≤ π/4; series of r.
void sin_cos(double x, double& sine, double& cosine) {
  constexpr double kSin[] = {1.0,          -1.0 / 6,        1.0 / 120,        -1.0 / 5040,
                             1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000};
  constexpr double kCos[] = {1.0,
                             -1.0 / 2,
                             1.0 / 24,
                             -1.0 / 720,
                             1.0 / 40320,
                             -1.0 / 3628800,
                             1.0 / 479001600,
                             -1.0 / 87178291200,
                             1.0 / 20922789888000};
  // π/2 in two parts; n times the first is exact.
  constexpr double kHigh = 0x1.921fb54400000p+0, kLow = 0x1.0b4611a626331p-34;
  const double shifted = x * (2 / std::numbers::pi) + kMagic;
  const auto quarter = std::bit_cast<uint64_t>(shifted);
  const double n = shifted - kMagic;
  const double r = (x - n * kHigh) - n * kLow, z = r * r;
  const auto s = std::bit_cast<uint64_t>(r * series(kSin, z));
  const auto c = std::bit_cast<uint64_t>(series(kCos, z));
  const uint64_t odd = 0 - (quarter & 1);
  const uint64_t sin_sign = (quarter & 2) << 62, cos_sign = ((quarter + 1) & 2) << 62;
  sine = std::bit_cast<double>(((s & ~odd) | (c & odd)) ^ sin_sign);
  cosine = std::bit_cast<double>(((c & ~odd) | (s & odd)) ^ cos_sign);
}

}  // namespace

void box_muller(float* group) {
  double logs[kHalf], sines[kHalf], cosines[kHalf];
  for (int i = 0; i < kHalf; ++i) logs[i] = log_of(1 - static_cast<double>(group[i]));
  for (int i = 0; i < kHalf; ++i) {
    const float angle = static_cast<float>(2 * std::numbers::pi) * group[i + kHalf];
    sin_cos(static_cast<double>(angle), sines[i], cosines[i]);
  }
  for (int i = 0; i < kHalf; ++i) {
    const float radius = std::sqrt(-2 * static_cast<float>(logs[i]));
    group[i] = radius * static_cast<float>(cosines[i]);
    group[i + kHalf] = radius * static_cast<float>(sines[i]);
  }
}

void box_muller(double* group) {
  for (int i = 0; i < kHalf; ++i) {
    const double radius = std::sqrt(-2 * std::log(1 - group[i]));
    const double angle = 2 * std::numbers::pi * group[i + kHalf];
    group[i] = radius * std::cos(angle);
    group[i + kHalf] = radius * std::sin(angle);
  }
}

}  // namespace lumen
