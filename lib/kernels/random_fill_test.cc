#include "lib/kernels/random_fill.h"

#include <cmath>
#include <numbers>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/testing/every_target.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

constexpr RandomKey kKey{123, 4'000'000'000u, 0x1234567890ABCDEFull};

uint32_t word_of(int64_t i, int offset = 0) {
  const Philox generator(kKey.seed | uint64_t{kKey.step} << 32, kKey.stream);
  const auto index = static_cast<uint64_t>(i / 64 * 16 + i % 16);
  return generator.block(index)[static_cast<size_t>(i % 64 / 16 + offset)];
}

float uniform_of(int64_t i) {
  return static_cast<float>(word_of(i) >> 8) * 0x1p-24f;
}

// fill(pool, n, y) on every length up to two groups and a long one, behind a guard, with 1 and 3
// threads; returns the long array after checking that all others begin it.
template <class Fill>
std::vector<float> check_fill(const Fill& fill) {
  constexpr int64_t kLong = 50'003;
  auto run = [&](int64_t n, int threads) {
    ThreadPool pool(threads);
    std::vector<float> y(static_cast<size_t>(n) + 2, -77.0f);
    fill(pool, n, &y[1]);
    REQUIRE(y.back() == -77);
    return std::vector<float>(y.begin() + 1, y.end() - 1);
  };
  const std::vector<float> all = run(kLong, 1);
  REQUIRE(run(kLong, 3) == all);
  for (int64_t n = 0; n < 130; ++n) {
    REQUIRE(run(n, 2) == std::vector<float>(all.begin(), all.begin() + n));
  }
  return all;
}

}  // namespace

TEST_CASE("uniform_fill is Philox, element by element") {
  on_every_target([] {
    const std::vector<float> y = check_fill(
        [](ThreadPool& pool, int64_t n, float* out) { uniform_fill(pool, kKey, n, -2, 4, out); });
    for (size_t i = 0; i < y.size(); ++i) {
      const float product = 6 * uniform_of(static_cast<int64_t>(i));
      REQUIRE(y[i] == product - 2);
    }
  });
}

TEST_CASE("normal_fill gives the same standard normal bits on every target") {
  std::vector<float> first;
  on_every_target([&] {
    const std::vector<float> y = check_fill(
        [](ThreadPool& pool, int64_t n, float* out) { normal_fill(pool, kKey, n, 0, 1, out); });
    if (first.empty()) first = y;
    REQUIRE(y == first);
    double mean = 0, square = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      mean += y[i];
      square += y[i] * y[i];
      const auto at = static_cast<int64_t>(i);
      const bool second = at % 32 >= 16;
      const int64_t pair = second ? at - 16 : at;
      const double u = ((word_of(pair) >> 8) + 1) * 0x1p-24, v = (word_of(pair, 1) >> 8) * 0x1p-24;
      const double angle = 2 * std::numbers::pi * v;
      const double want =
          std::sqrt(-2 * std::log(u)) * (second ? std::sin(angle) : std::cos(angle));
      REQUIRE(std::fabs(y[i] - want) < 2e-6);
    }
    CHECK(std::fabs(mean / static_cast<double>(y.size())) < 0.02);
    CHECK(square / static_cast<double>(y.size()) == Approx(1).epsilon(0.02));
  });
}

TEST_CASE("dropout keeps what its mask keeps, and scales it") {
  on_every_target([] {
    for (double p : {0.0, 0.1, 0.5, 1.0}) {
      const std::vector<float> y = check_fill([&](ThreadPool& pool, int64_t n, float* out) {
        std::vector<float> x(static_cast<size_t>(n) + 1);
        for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i + 1);
        dropout(pool, kKey, n, p, x.data(), out);
      });
      const float scale = p < 1 ? static_cast<float>(1 / (1 - p)) : 0;
      for (size_t i = 0; i < y.size(); ++i) {
        const bool dropped = uniform_of(static_cast<int64_t>(i)) < static_cast<float>(p);
        REQUIRE(y[i] == (dropped ? 0 : static_cast<float>(i + 1) * scale));
      }
    }
    ThreadPool pool(2);
    std::vector<float> x(1000, 1.0f), y(1000);
    dropout(pool, kKey, 1000, 0.5, x.data(), y.data());
    dropout(pool, kKey, 1000, 0.5, x.data(), x.data());
    CHECK(x == y);
  });
}
