#include "lib/runtime/tool/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "lib/base/random.h"

namespace lumen::runtime {
namespace {

constexpr size_t kMostExactSamples = 25;  // every count of subsets is below 2^53

// The middle of `n` sorted values is the mean of those at these two places.
size_t lower_middle(size_t n) {
  return (n - 1) / 2;
}
size_t upper_middle(size_t n) {
  return n / 2;
}

double median_of_sorted(const std::vector<double>& sorted) {
  const size_t n = sorted.size();
  return (sorted[lower_middle(n)] + sorted[upper_middle(n)]) / 2;
}

// Ranks of two sets of samples together, doubled so that they are whole numbers.
struct PooledRanks {
  std::vector<size_t> doubled;  // of all samples, ascending
  size_t first_sum = 0;         // of the first set's
  double ties = 0;              // Σ t³ − t over groups of t equal values
};

PooledRanks pool_ranks(std::span<const double> a, std::span<const double> b) {
  std::vector<std::pair<double, bool>> all;
  for (const double x : a) all.emplace_back(x, true);
  for (const double x : b) all.emplace_back(x, false);
  std::sort(all.begin(), all.end());
  PooledRanks ranks;
  for (size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    while (end < all.size() && all[end].first == all[begin].first) ++end;
    for (size_t i = begin; i < end; ++i) {
      ranks.doubled.push_back(begin + 1 + end);
      if (all[i].second) ranks.first_sum += begin + 1 + end;
    }
    const auto t = static_cast<double>(end - begin);
    ranks.ties += t * t * t - t;
  }
  return ranks;
}

// counts[s]: in how many ways `chosen` of the ranks have the sum s.
std::vector<double> count_rank_sums(const std::vector<size_t>& ranks, size_t chosen) {
  size_t total = 0;
  for (const size_t rank : ranks) total += rank;
  std::vector<std::vector<double>> counts(chosen + 1, std::vector<double>(total + 1));
  counts[0][0] = 1;
  for (const size_t rank : ranks) {
    for (size_t k = chosen; k > 0; --k) {
      for (size_t sum = rank; sum <= total; ++sum) counts[k][sum] += counts[k - 1][sum - rank];
    }
  }
  return counts[chosen];
}

double exact_p(const PooledRanks& ranks, size_t m) {
  const std::vector<double> counts = count_rank_sums(ranks.doubled, m);
  double all = 0, below = 0, above = 0;
  for (size_t sum = 0; sum < counts.size(); ++sum) {
    all += counts[sum];
    if (sum <= ranks.first_sum) below += counts[sum];
    if (sum >= ranks.first_sum) above += counts[sum];
  }
  return std::min(1.0, 2 * std::min(below, above) / all);
}

// With U = R − m (m + 1) / 2 of the first set's rank sum R: mean m n / 2, variance
// m n / 12 ((N + 1) − Σ (t³ − t) / (N (N − 1))), N = m + n.
double normal_p(const PooledRanks& ranks, double m, double n) {
  const double total = m + n;
  const double u = static_cast<double>(ranks.first_sum) / 2 - m * (m + 1) / 2;
  const double variance = m * n / 12 * (total + 1 - ranks.ties / (total * (total - 1)));
  if (variance <= 0) return 1;
  const double z = (std::abs(u - m * n / 2) - 0.5) / std::sqrt(variance);
  return std::min(1.0, std::erfc(z / std::sqrt(2.0)));
}

// The median of as many draws from `sorted`, with replacement. `counts` has room for each.
double draw_median(const std::vector<double>& sorted, Xoshiro256& random,
                   std::vector<uint32_t>& counts) {
  const size_t n = sorted.size();
  std::fill(counts.begin(), counts.end(), 0);
  for (size_t i = 0; i < n; ++i) ++counts[uint64_t{random.next_u32()} * n >> 32];
  size_t place = 0, seen = counts[0];
  while (seen <= lower_middle(n)) seen += counts[++place];
  const double lower = sorted[place];
  while (seen <= upper_middle(n)) seen += counts[++place];
  return (lower + sorted[place]) / 2;
}

}  // namespace

Spread spread(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return {median_of_sorted(samples), samples.front(), samples.back()};
}

std::vector<double> thinned(std::vector<double> samples, size_t most) {
  const size_t n = samples.size();
  if (n <= most) return samples;
  for (size_t i = 0; i < most; ++i) samples[i] = samples[i * n / most];
  samples.resize(most);
  return samples;
}

double mann_whitney_p(std::span<const double> a, std::span<const double> b) {
  const PooledRanks ranks = pool_ranks(a, b);
  if (std::max(a.size(), b.size()) <= kMostExactSamples) return exact_p(ranks, a.size());
  return normal_p(ranks, static_cast<double>(a.size()), static_cast<double>(b.size()));
}

double least_mann_whitney_p(size_t m, size_t n) {
  double ways = 1;
  for (size_t i = 1; i <= std::min(m, n) && std::isfinite(ways); ++i) {
    ways *= static_cast<double>(std::max(m, n) + i) / static_cast<double>(i);
  }
  return std::min(1.0, 2 / ways);
}

Interval median_ratio_interval(std::vector<double> a, std::vector<double> b) {
  constexpr size_t kResamples = 2000, kTail = kResamples / 40;  // 2.5 % on each side
  constexpr uint64_t kSeed = 42;
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  std::vector<uint32_t> a_counts(a.size()), b_counts(b.size());
  std::vector<double> ratios(kResamples);
  Xoshiro256 random(kSeed);
  for (double& ratio : ratios) {
    const double numerator = draw_median(a, random, a_counts);
    ratio = numerator / draw_median(b, random, b_counts);
  }
  std::sort(ratios.begin(), ratios.end());
  return {ratios[kTail], ratios[kResamples - 1 - kTail]};
}

}  // namespace lumen::runtime
