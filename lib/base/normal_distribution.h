// The standard normal distribution.
#pragma once

namespace lumen {

// The part of it that lies below x; 0 for −∞.
double normal_cdf(double x);
// The x that the part p lies below, 0 ≤ p < 1; −∞ for 0.
double normal_quantile(double p);

}  // namespace lumen
