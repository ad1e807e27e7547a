#include "lib/base/normal_distribution.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace lumen {

double normal_cdf(double x) {
  return std::erfc(-x / std::numbers::sqrt2) / 2;
}

double normal_quantile(double p) {
  if (p <= 0) return -std::numeric_limits<double>::infinity();
  double low = -40, high = 40;  // where the distribution is 0 and 1 in double
  for (double middle = 0; low < middle && middle < high; middle = low + (high - low) / 2) {
    (normal_cdf(middle) < p ? low : high) = middle;
  }
  return high;
}

}  // namespace lumen
