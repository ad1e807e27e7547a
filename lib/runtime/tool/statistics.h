// Statistics of measurements: medians, and whether two sets of samples differ.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lumen::runtime {

// Median (of an even number: the mean of the middle two), smallest and largest of samples.
struct Spread {
  double median, min, max;
};
// `samples` is not empty.
Spread spread(std::vector<double> samples);

// `samples`, or `most` of them at even distances.
std::vector<double> thinned(std::vector<double> samples, size_t most);

// The two-sided p-value of the Mann-Whitney U test: how likely samples of one distribution are
// ranked as unlike as `a` and `b`, or more. Equal values share the mean of their ranks. Exact, over
// all ways to divide the ranks, for up to 25 samples each; beyond by the normal approximation with
// corrections for ties and continuity. Both not empty.
double mann_whitney_p(std::span<const double> a, std::span<const double> b);

// The smallest p-value that `m` and `n` samples can have: 2 / binomial(m + n, m), at most 1.
double least_mann_whitney_p(size_t m, size_t n);

struct Interval {
  double low, high;
};

// The 95 % percentile interval of median(a) / median(b) by the bootstrap (Efron and Tibshirani, "An
// Introduction to the Bootstrap", 1993, chapter 13), `a` and `b` drawn apart. The same for the same
// samples. Both not empty, all positive.
Interval median_ratio_interval(std::vector<double> a, std::vector<double> b);

}  // namespace lumen::runtime
