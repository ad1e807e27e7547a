#include "lib/kernels/soft_cap.h"

#include <cmath>
#include <limits>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/reference.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/testing/random_floats.h"

using namespace lumen;
using namespace lumen::kernels;

TEST_CASE("soft caps follow the formula for every length") {
  on_every_target([] {
    Philox random(9);
    for (int64_t n = 0; n <= 37; ++n) {
      for (const float size : {1e-3f, 1.0f, 30.0f, 1e5f}) {
        std::vector<float> x = random_floats(random, n + 1);
        for (float& number : x) number *= size;
        for (const bool coarse : {false, true}) {
          INFO(n << " numbers of size " << size << (coarse ? ", coarse" : ""));
          std::vector<float> y = x;
          // Scores of natural units, capped in units of ln 2.
          soft_cap({0.25f, 5.5f}, coarse, n, y.data());
          CHECK(y.back() == x.back());
          for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
            const double want = 5.5 * std::tanh(0.25 * x[i]);
            CHECK(y[i] == Approx(want).epsilon(coarse ? 0 : 4e-7).margin(coarse ? 8e-6 : 0));
          }
        }
      }
    }
  });
}

TEST_CASE("soft caps keep what is no number, and make infinities the cap") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  on_every_target([] {
    for (const bool coarse : {false, true}) {
      std::vector<float> x = {NAN, kInfinity, -kInfinity, 0, 3e38f, -3e38f};
      soft_cap({0.5f, 2.0f}, coarse, static_cast<int64_t>(x.size()), x.data());
      CHECK(std::isnan(x[0]));
      CHECK(x[1] == Approx(2));
      CHECK(x[2] == Approx(-2));
      CHECK(x[3] == Approx(0).margin(1e-5));
      CHECK(x[4] == Approx(2));
      CHECK(x[5] == Approx(-2));
    }
  });
}
