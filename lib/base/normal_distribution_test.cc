#include "lib/base/normal_distribution.h"

#include <cmath>

#include "lib/base/testing.h"

using namespace lumen;

TEST_CASE("quantiles of the normal distribution are those of scipy, and its inverse") {
  // scipy.stats.norm.ppf
  CHECK(normal_quantile(0.95) == Approx(1.6448536269514722).epsilon(1e-14));
  CHECK(normal_quantile(0.999) == Approx(3.090232306167813).epsilon(1e-13));
  CHECK(normal_quantile(0.02) == Approx(-2.053748910631823).epsilon(1e-14));
  CHECK(normal_quantile(1e-9) == Approx(-5.9978070150076865).epsilon(1e-14));
  CHECK(std::abs(normal_quantile(0.5)) < 1e-15);
  CHECK((std::isinf(normal_quantile(0)) && normal_quantile(0) < 0));
  CHECK(normal_cdf(normal_quantile(0)) == 0);
  for (const double p : {1e-5, 0.3, 0.5, 0.7, 0.95}) {
    CHECK(normal_cdf(normal_quantile(p)) == Approx(p).epsilon(1e-14));
  }
}
