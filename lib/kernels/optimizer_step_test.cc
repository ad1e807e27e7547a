#include "lib/kernels/optimizer_step.h"

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

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<float> seeded_floats(int64_t n, uint64_t seed) {
  Philox random(seed);
  return random_floats(random, n);
}

std::vector<int64_t> lengths() {
  std::vector<int64_t> lengths;
  for (int64_t n = 0; n <= 35; ++n) lengths.push_back(n);
  lengths.push_back(50'001);
  return lengths;
}

// What one element of an optimizer does: p and up to three state values, all in double.
struct Element {
  double p, state[3];
};

// Runs `kernel(pool, n, first, p, g, state)` for three steps on misaligned arrays with 1 and 3
// threads, which must agree to the bit, and compares with `reference(element, g, step)`.
template <class Kernel, class Reference>
void check_step(const Kernel& kernel, const Reference& reference) {
  for (int64_t n : lengths()) {
    const auto count = static_cast<size_t>(n);
    const std::vector<float> start = seeded_floats(n, 1);
    std::vector<std::vector<float>> gradients;
    std::vector<Element> elements;
    for (float p : start) elements.push_back({p, {0, 0, 0}});
    for (int step = 1; step <= 3; ++step) {
      gradients.push_back(seeded_floats(n + 1, 10 + static_cast<uint64_t>(step)));
      for (size_t i = 0; i < count; ++i) reference(elements[i], gradients.back()[i + 1], step);
    }
    auto run = [&](int threads) {
      ThreadPool pool(threads);
      std::vector<std::vector<float>> arrays(4, std::vector<float>(count + 2, 0.0f));
      std::copy(start.begin(), start.end(), arrays[0].begin() + 1);
      for (int step = 1; step <= 3; ++step) {
        for (auto& array : arrays) array[count + 1] = -77;
        kernel(pool, n, step, &arrays[0][1], gradients[static_cast<size_t>(step - 1)].data() + 1,
               std::vector<float*>{&arrays[1][1], &arrays[2][1], &arrays[3][1]});
        for (auto& array : arrays) REQUIRE(array[count + 1] == -77);
      }
      return arrays;
    };
    on_every_target([&] {
      const auto got = run(1);
      REQUIRE(got == run(3));
      for (size_t i = 0; i < count; ++i) {
        if (got[0][i + 1] == Approx(elements[i].p).epsilon(1e-5).margin(1e-5)) continue;
        FAIL("element " << i << " of " << n << ": " << got[0][i + 1] << ", not " << elements[i].p);
      }
    });
  }
}

}  // namespace

TEST_CASE("sgd_step") {
  for (bool nesterov : {false, true}) {
    check_step(
        [&](ThreadPool& pool, int64_t n, int step, float* p, const float* g, auto state) {
          sgd_step(pool, n,
                   {.lr = 0.1,
                    .momentum = 0.9,
                    .dampening = nesterov ? 0 : 0.3,
                    .weight_decay = 0.01,
                    .gradient_scale = 0.5,
                    .nesterov = nesterov,
                    .first = step == 1},
                   p, g, state[0]);
        },
        [&](Element& e, double g, int step) {
          g = 0.5 * g + 0.01 * e.p;
          e.state[0] = step == 1 ? g : 0.9 * e.state[0] + (nesterov ? 1 : 0.7) * g;
          e.p -= 0.1 * (nesterov ? g + 0.9 * e.state[0] : e.state[0]);
        });
  }
  check_step([](ThreadPool& pool, int64_t n, int, float* p, const float* g,
                const auto&) { sgd_step(pool, n, {.lr = 0.1}, p, g, nullptr); },
             [](Element& e, double g, int) { e.p -= 0.1 * g; });
}

TEST_CASE("a mean that keeps nothing of a large gradient is the new one exactly") {
  on_every_target([] {
    ThreadPool pool(1);
    const float huge = 0x1p40f, small = 0.25f;
    float p = 0, m = 0, v = 0, square = 0, average = 0;
    for (const float* g : {&huge, &small}) {
      adam_step(pool, 1, {.lr = 0, .beta1 = 0, .beta2 = 0}, &p, g, &m, &v, nullptr);
      rmsprop_step(pool, 1, {.lr = 0, .alpha = 0}, &p, g, &square, &average, nullptr);
    }
    CHECK(m == small);
    CHECK(average == small);
  });
}

TEST_CASE("a gradient that does not change has no negative variance") {
  on_every_target([] {
    ThreadPool pool(1);
    const std::vector<float> g = seeded_floats(64, 1);
    std::vector<float> p(64), square(64), average(64);
    for (int step = 0; step < 200; ++step) {
      rmsprop_step(pool, 64, {.lr = 1e-3, .alpha = 0.5}, p.data(), g.data(), square.data(),
                   average.data(), nullptr);
    }
    CHECK(std::none_of(p.begin(), p.end(), [](float x) { return std::isnan(x); }));
    average[0] = std::numeric_limits<float>::quiet_NaN();
    rmsprop_step(pool, 1, {.lr = 1e-3}, p.data(), g.data(), square.data(), average.data(), nullptr);
    CHECK(std::isnan(p[0]));
  });
}

TEST_CASE("adam_step") {
  for (bool decoupled : {false, true}) {
    for (bool amsgrad : {false, true}) {
      auto options = [&](int step) {
        return AdamStep{.lr = 0.01,
                        .beta1 = 0.8,
                        .beta2 = 0.95,
                        .eps = 1e-6,
                        .weight_decay = 0.1,
                        .gradient_scale = 2,
                        .bias_correction1 = 1 - std::pow(0.8, step),
                        .bias_correction2 = 1 - std::pow(0.95, step),
                        .decoupled = decoupled};
      };
      check_step(
          [&](ThreadPool& pool, int64_t n, int step, float* p, const float* g, auto state) {
            adam_step(pool, n, options(step), p, g, state[0], state[1],
                      amsgrad ? state[2] : nullptr);
          },
          [&](Element& e, double g, int step) {
            auto& [m, v, v_max] = e.state;
            g *= 2;
            if (decoupled) {
              e.p -= 0.01 * 0.1 * e.p;
            } else {
              g += 0.1 * e.p;
            }
            m = 0.8 * m + 0.2 * g;
            v = 0.95 * v + 0.05 * g * g;
            v_max = std::max(v_max, v);
            const double root = std::sqrt((amsgrad ? v_max : v) / (1 - std::pow(0.95, step)));
            e.p -= 0.01 * m / (1 - std::pow(0.8, step)) / (root + 1e-6);
          });
    }
  }
}

TEST_CASE("rmsprop_step") {
  for (bool centered : {false, true}) {
    for (double momentum : {0.0, 0.9}) {
      check_step(
          [&](ThreadPool& pool, int64_t n, int, float* p, const float* g, auto state) {
            rmsprop_step(
                pool, n,
                {.lr = 0.01, .alpha = 0.9, .eps = 1e-2, .weight_decay = 0.1, .momentum = momentum},
                p, g, state[0], centered ? state[1] : nullptr, momentum > 0 ? state[2] : nullptr);
          },
          [&](Element& e, double g, int) {
            auto& [square, average, buffer] = e.state;
            g += 0.1 * e.p;
            square = 0.9 * square + 0.1 * g * g;
            average = 0.9 * average + 0.1 * g;
            const double root = std::sqrt(centered ? square - average * average : square);
            buffer = momentum * buffer + g / (root + 1e-2);
            e.p -= 0.01 * buffer;
          });
    }
  }
}

TEST_CASE("adagrad_step") {
  check_step(
      [](ThreadPool& pool, int64_t n, int, float* p, const float* g, auto state) {
        adagrad_step(pool, n, {.lr = 0.1, .weight_decay = 0.1}, p, g, state[0]);
      },
      [](Element& e, double g, int) {
        g += 0.1 * e.p;
        e.state[0] += g * g;
        e.p -= 0.1 * g / (std::sqrt(e.state[0]) + 1e-10);
      });
}

TEST_CASE("lion_step") {
  check_step(
      [](ThreadPool& pool, int64_t n, int, float* p, const float* g, auto state) {
        lion_step(pool, n, {.lr = 0.1, .weight_decay = 0.1, .gradient_scale = -1}, p, g, state[0]);
      },
      [](Element& e, double g, int) {
        g = -g;
        const double direction = 0.9 * e.state[0] + 0.1 * g;
        e.p -= 0.1 * 0.1 * e.p;
        e.p -= 0.1 * (direction > 0 ? 1 : direction < 0 ? -1 : 0);
        e.state[0] = 0.99 * e.state[0] + 0.01 * g;
      });
  ThreadPool pool(1);
  float p[] = {1, 1}, m[] = {0, 0};
  const float g[] = {0, std::numeric_limits<float>::quiet_NaN()};
  lion_step(pool, 2, {.lr = 0.5}, p, g, m);
  CHECK(p[0] == 1);
  CHECK(std::isnan(p[1]));
}

TEST_CASE("power_sum") {
  on_every_target([] {
    for (int64_t n : lengths()) {
      const std::vector<float> values = seeded_floats(n + 1, 5);
      const float* x = values.data() + 1;
      ThreadPool one(1), three(3);
      for (double p : {0.0, 1.0, 2.0, 3.5, kInfinity}) {
        double want = 0;
        for (int64_t i = 0; i < n; ++i) {
          const double magnitude = std::fabs(static_cast<double>(x[i]));
          if (std::isinf(p)) {
            want = std::max(want, magnitude);
          } else {
            want += p == 0 ? magnitude != 0 : std::pow(magnitude, p);
          }
        }
        INFO("p " << p << ", n " << n);
        REQUIRE(power_sum(one, x, n, p) == Approx(want).epsilon(1e-12));
        REQUIRE(power_sum(one, x, n, p) == power_sum(three, x, n, p));
      }
    }
    ThreadPool pool(2);
    for (size_t at : {0, 7, 40'000}) {
      std::vector<float> x(50'000, 1.0f);
      x[at] = std::numeric_limits<float>::quiet_NaN();
      for (double p : {0.0, 1.0, 2.0, 3.0, kInfinity}) {
        REQUIRE(std::isnan(power_sum(pool, x.data(), 50'000, p)));
      }
    }
  });
}

TEST_CASE("scale, axpy, clip_values") {
  on_every_target([] {
    for (int64_t n : lengths()) {
      const auto count = static_cast<size_t>(n);
      const std::vector<float> x = seeded_floats(n + 1, 6), start = seeded_floats(n + 2, 7);
      for (int threads : {1, 3}) {
        ThreadPool pool(threads);
        std::vector<float> y = start;
        axpy(pool, n, 0.25f, x.data() + 1, y.data() + 1);
        for (size_t i = 1; i <= count; ++i) {
          REQUIRE(y[i] == Approx(start[i] + 0.25 * x[i]).margin(1e-6));
        }
        REQUIRE(y[count + 1] == start[count + 1]);
        y = start;
        scale(pool, n, -3, y.data() + 1);
        for (size_t i = 1; i <= count; ++i) REQUIRE(y[i] == -3 * start[i]);
        y = start;
        clip_values(pool, n, -0.5f, 0.25f, y.data() + 1);
        for (size_t i = 1; i <= count; ++i) {
          REQUIRE(y[i] == std::min(std::max(start[i], -0.5f), 0.25f));
        }
      }
    }
    ThreadPool pool(1);
    float nan = std::numeric_limits<float>::quiet_NaN();
    clip_values(pool, 1, -1, 1, &nan);
    CHECK(std::isnan(nan));
  });
}

TEST_CASE("all_finite") {
  on_every_target([] {
    ThreadPool pool(2);
    CHECK(all_finite(pool, nullptr, 0));
    for (size_t n : {1, 17, 70'000}) {
      std::vector<float> x(n, 3e38f);
      REQUIRE(all_finite(pool, x.data(), static_cast<int64_t>(n)));
      for (size_t at : {size_t{0}, n / 2, n - 1}) {
        for (float bad : {INFINITY, -INFINITY, NAN}) {
          x[at] = bad;
          REQUIRE_FALSE(all_finite(pool, x.data(), static_cast<int64_t>(n)));
          x[at] = 0;
        }
      }
    }
  });
}
