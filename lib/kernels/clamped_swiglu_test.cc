#include "lib/kernels/clamped_swiglu.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/testing/random_floats.h"

using namespace lumen;
using namespace lumen::kernels;

TEST_CASE("the clamped gate follows its formula for every length") {
  on_every_target([] {
    Philox random(4);
    for (int64_t n = 0; n <= 37; ++n) {
      const auto gate = random_floats(random, n + 1), up = random_floats(random, n);
      for (const float limit : {0.5f, 100.0f}) {
        INFO(n << " numbers, limit " << limit);
        std::vector<float> out = gate;
        clamped_swiglu({1.702f, limit}, out.data(), up.data(), n, out.data());
        CHECK(out.back() == gate.back());
        for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
          const double g = std::min(gate[i], limit), u = std::clamp(up[i], -limit, limit);
          CHECK(out[i] == Approx((u + 1) * g / (1 + std::exp(-1.702f * g))).epsilon(1e-6));
        }
      }
    }
  });
}

TEST_CASE("the clamped gate keeps what is no number") {
  on_every_target([] {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const float up[] = {1, NAN, kInfinity, -kInfinity, 0};
    float gate[] = {NAN, 1, 9, 2, -kInfinity};
    clamped_swiglu({1, 3}, gate, up, 5, gate);
    CHECK((std::isnan(gate[0]) && std::isnan(gate[1])));
    CHECK(gate[2] == Approx(4 * 3 / (1 + std::exp(-3.0))));
    CHECK(gate[3] == Approx(-2 * 2 / (1 + std::exp(-2.0))));
  });
}

TEST_CASE("the slopes of the clamped gate are its differences") {
  on_every_target([] {
    Philox random(5);
    const auto value = [](double g, double u, double limit) {
      g = std::min(g, limit), u = std::clamp(u, -limit, limit);
      return (u + 1) * g / (1 + std::exp(-1.702 * g));
    };
    for (int64_t n = 0; n <= 37; ++n) {
      const auto gate = random_floats(random, n + 1), up = random_floats(random, n + 1);
      for (const float limit : {0.5f, 100.0f}) {
        std::vector<float> by_gate = gate, by_up = up, out(gate.size(), 7.0f);
        clamped_swiglu_slopes({1.702f, limit}, by_gate.data(), by_up.data(), n, out.data());
        CHECK((by_gate.back() == gate.back() && by_up.back() == up.back() && out.back() == 7));
        for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
          const double g = gate[i], u = up[i], h = 1e-6;
          CHECK(out[i] == Approx(value(g, u, limit)).epsilon(1e-6));
          const double dg = (value(g + h, u, limit) - value(g - h, u, limit)) / (2 * h);
          const double du = (value(g, u + h, limit) - value(g, u - h, limit)) / (2 * h);
          CHECK(by_gate[i] == Approx(dg).epsilon(1e-5).margin(1e-6));
          CHECK(by_up[i] == Approx(du).epsilon(1e-5).margin(1e-6));
        }
      }
    }
  });
}
