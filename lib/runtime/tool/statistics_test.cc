#include "lib/runtime/tool/statistics.h"

#include "lib/base/testing.h"

namespace lumen::runtime {
namespace {

using Samples = std::vector<double>;

// 0 … n − 1 through `value`.
template <typename Value>
Samples sampled(int n, Value value) {
  Samples samples;
  for (int i = 0; i < n; ++i) samples.push_back(value(i));
  return samples;
}

TEST_CASE("medians of odd and even numbers of samples", "[bench]") {
  const Spread odd = spread({3, 1, 2}), even = spread({4, 1, 2, 8}), one = spread({7});
  REQUIRE((odd.median == 2 && odd.min == 1 && odd.max == 3));
  REQUIRE((even.median == 3 && even.min == 1 && even.max == 8));
  REQUIRE((one.median == 7 && one.min == 7 && one.max == 7));
}

TEST_CASE("thinned samples are at even distances", "[bench]") {
  REQUIRE(thinned({1, 2, 3}, 3) == Samples{1, 2, 3});
  REQUIRE(thinned({0, 1, 2, 3, 4, 5}, 3) == Samples{0, 2, 4});
  REQUIRE(thinned({0, 1, 2, 3, 4}, 2) == Samples{0, 2});
}

// scipy 1.17.1: mannwhitneyu(a, b, method="exact"), with ties PermutationMethod(), which goes
// through all divisions.
TEST_CASE("Mann-Whitney p-values of few samples are exact", "[bench]") {
  const Samples a = {10.1, 10.4, 9.9, 10.2, 10.0}, b = {9.2, 9.4, 9.1, 9.5, 9.95};
  REQUIRE(mann_whitney_p(a, b) == Approx(0.015873015873015872).epsilon(1e-12));
  REQUIRE(mann_whitney_p(b, a) == Approx(0.015873015873015872).epsilon(1e-12));
  REQUIRE(mann_whitney_p(Samples{1, 4, 6, 9}, Samples{2, 3, 5, 7, 8, 10, 11}) ==
          Approx(0.5272727272727272).epsilon(1e-12));
  const Samples c = sampled(20, [](int i) { return 7 * i % 41 + 0.5; });
  const Samples d = sampled(25, [](int i) { return 11 * i % 43 + 0.25; });
  REQUIRE(mann_whitney_p(c, d) == Approx(0.8653488782869316).epsilon(1e-12));
  REQUIRE(mann_whitney_p(Samples{3, 3, 4, 5, 5}, Samples{1, 2, 3, 3, 4, 4}) ==
          Approx(0.19480519480519481).epsilon(1e-12));
  REQUIRE(mann_whitney_p(Samples{1, 1, 1}, Samples{1, 1}) == 1);
}

// scipy 1.17.1: mannwhitneyu(a, b, method="asymptotic").
TEST_CASE("Mann-Whitney p-values of many samples are corrected for ties", "[bench]") {
  const Samples a = sampled(30, [](int i) { return i * 0.37; });
  const Samples b = sampled(26, [](int i) { return i * 0.41 + 1.1; });
  REQUIRE(mann_whitney_p(a, b) == Approx(0.32831489113445445).epsilon(1e-9));
  const Samples c = sampled(30, [](int i) { return i % 7; });
  const Samples d = sampled(40, [](int i) { return i % 9; });
  REQUIRE(mann_whitney_p(c, d) == Approx(0.16006442610273153).epsilon(1e-9));
  REQUIRE(mann_whitney_p(Samples(30, 1.0), Samples(30, 1.0)) == 1);
}

TEST_CASE("how small a p-value so many samples can have", "[bench]") {
  REQUIRE(least_mann_whitney_p(3, 3) == Approx(0.1));
  REQUIRE(least_mann_whitney_p(4, 4) == Approx(0.02857142857142857));
  REQUIRE(least_mann_whitney_p(1, 1) == 1);
  REQUIRE(least_mann_whitney_p(100'000, 100'000) == 0);
  REQUIRE(mann_whitney_p(Samples{1, 2, 3, 4}, Samples{5, 6, 7, 8}) ==
          Approx(least_mann_whitney_p(4, 4)));
}

// scipy 1.17.1: bootstrap((x, y), ratio of medians, n_resamples=200000, method="percentile"), with
// other random numbers: medians are few values, so the percentiles are nearly the same.
TEST_CASE("the bootstrap's interval of a ratio of medians", "[bench]") {
  Samples x = sampled(21, [](int i) { return 10.0 + 7 * i % 13 * 0.1 + i * 0.011; });
  Samples y = sampled(21, [](int i) { return 9.0 + 5 * i % 17 * 0.1 + i * 0.013; });
  const Interval many = median_ratio_interval(x, y);
  REQUIRE(many.low == Approx(1.0265244200841734).margin(0.004));
  REQUIRE(many.high == Approx(1.1259329338799535).margin(0.004));
  x.resize(8);
  y.resize(6);
  const Interval few = median_ratio_interval(x, y);
  REQUIRE(few.low == Approx(1.0156592858567723).margin(0.004));
  REQUIRE(few.high == Approx(1.1614100185528755).margin(0.004));
  const Interval again = median_ratio_interval(x, y);
  REQUIRE((again.low == few.low && again.high == few.high));
  const Interval sure = median_ratio_interval({6}, {2, 2});
  REQUIRE((sure.low == 3 && sure.high == 3));
}

}  // namespace
}  // namespace lumen::runtime
