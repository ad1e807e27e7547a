#include "lib/kernels/reduce.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/tensor/dtype.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

void check(int64_t outer, int64_t axis, int64_t inner) {
  Philox random(1);
  std::vector<float> x(static_cast<size_t>(outer * axis * inner));
  for (float& v : x) v = static_cast<float>(random.uniform() - 0.25);
  std::vector<double> sums(static_cast<size_t>(outer * inner), 0), squares = sums;
  std::vector<float> maxima(sums.size(), -kInf), minima(sums.size(), kInf);
  for (int64_t i = 0; i < outer * axis * inner; ++i) {
    const auto at = static_cast<size_t>(i / (axis * inner) * inner + i % inner);
    sums[at] += x[static_cast<size_t>(i)];
    squares[at] += double{x[static_cast<size_t>(i)]} * x[static_cast<size_t>(i)];
    maxima[at] = std::max(maxima[at], x[static_cast<size_t>(i)]);
    minima[at] = std::min(minima[at], x[static_cast<size_t>(i)]);
  }
  on_every_target([&] {
    INFO("outer " << outer << " axis " << axis << " inner " << inner);
    std::vector<float> one(sums.size(), -77.0f), two = one, three = one;
    ThreadPool single(1), pair(2), team(3);
    sum_reduce(single, x.data(), outer, axis, inner, one.data());
    sum_reduce(pair, x.data(), outer, axis, inner, two.data());
    sum_reduce(team, x.data(), outer, axis, inner, three.data());
    for (size_t i = 0; i < sums.size(); ++i) {
      REQUIRE(std::fabs(one[i] - sums[i]) <= 1e-6 * (1 + static_cast<double>(axis) / 4));
    }
    REQUIRE(std::memcmp(one.data(), two.data(), one.size() * sizeof(float)) == 0);
    REQUIRE(std::memcmp(one.data(), three.data(), one.size() * sizeof(float)) == 0);
    square_sum_reduce(single, x.data(), outer, axis, inner, one.data());
    square_sum_reduce(pair, x.data(), outer, axis, inner, two.data());
    for (size_t i = 0; i < squares.size(); ++i) {
      REQUIRE(std::fabs(one[i] - squares[i]) <= 1e-6 * (1 + static_cast<double>(axis) / 4));
    }
    REQUIRE(std::memcmp(one.data(), two.data(), one.size() * sizeof(float)) == 0);
    max_reduce(team, x.data(), outer, axis, inner, one.data());
    REQUIRE(one == maxima);
    min_reduce(team, x.data(), outer, axis, inner, one.data());
    REQUIRE(one == minima);
  });
}

}  // namespace

TEST_CASE("sums, maxima and minima along each kind of axis") {
  for (int64_t axis = 0; axis <= 70; ++axis) check(3, axis, 1);
  for (int64_t inner = 2; inner <= 35; ++inner) check(2, 9, inner);
  for (int64_t axis : {0, 1, 63, 64, 65, 129, 1000}) check(2, axis, 19);
  for (int64_t axis : {1023, 1025, 4097, 16383, 16384, 16385, 1'000'003}) check(1, axis, 1);
  for (int64_t axis : {1, 2, 3, 4, 5}) {  // short rows, a vector of them and some
    for (int64_t rows : {1, 15, 16, 17, 70}) check(rows, axis, 1);
  }
  check(3, 40'000, 1);
  check(300, 50, 1);
  check(2, 100, 700);
  for (int64_t axis : {127, 128, 129, 500}) check(1, axis, 130);
  check(1, 300, 2048);
  check(1, 300, 2049);
}

TEST_CASE("sums and extremes of 16-bit floats are those of the floats they stand for") {
  Philox random(7);
  auto compare = [&](DType dtype, int64_t outer, int64_t axis, int64_t inner) {
    INFO(name(dtype) << " " << outer << " " << axis << " " << inner);
    std::vector<uint16_t> x(static_cast<size_t>(outer * axis * inner));
    std::vector<float> wide(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const auto value = static_cast<float>(random.normal());
      x[i] = dtype == DType::kF16 ? to_f16(value).bits : to_bf16(value).bits;
      wide[i] = dtype == DType::kF16 ? to_float(f16{x[i]}) : to_float(bf16{x[i]});
    }
    std::vector<float> expected(static_cast<size_t>(outer * inner)), y(expected.size());
    for (int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      sum_reduce(pool, wide.data(), outer, axis, inner, expected.data());
      sum_reduce_half(pool, dtype, x.data(), outer, axis, inner, y.data());
      REQUIRE(y == expected);
      square_sum_reduce(pool, wide.data(), outer, axis, inner, expected.data());
      square_sum_reduce_half(pool, dtype, x.data(), outer, axis, inner, y.data());
      REQUIRE(y == expected);
      max_reduce(pool, wide.data(), outer, axis, inner, expected.data());
      max_reduce_half(pool, dtype, x.data(), outer, axis, inner, y.data());
      REQUIRE(y == expected);
      min_reduce(pool, wide.data(), outer, axis, inner, expected.data());
      min_reduce_half(pool, dtype, x.data(), outer, axis, inner, y.data());
      REQUIRE(y == expected);
    }
  };
  on_every_target([&] {
    for (DType dtype : {DType::kF16, DType::kBF16}) {
      for (int64_t inner : {2, 3, 16, 17, 300, 530}) {
        compare(dtype, inner == 530 ? 1 : 2, 150, inner);
      }
      for (int64_t axis = 0; axis < 70; ++axis) compare(dtype, 3, axis, 1);
      for (int64_t axis : {1023, 1025, 4097, 100'001}) compare(dtype, 2, axis, 1);
    }
  });
}

TEST_CASE("sum_reduce is pairwise: its error hardly grows with the length") {
  ThreadPool pool(2);
  on_every_target([&] {
    const std::vector<float> x(4'000'000, 0.1f);
    float sum = 0;
    sum_reduce(pool, x.data(), 1, 4'000'000, 1, &sum);
    CHECK(std::fabs(sum - 4e6 * double(0.1f)) < 0.5);
    std::vector<float> columns(2);
    sum_reduce(pool, x.data(), 1, 2'000'000, 2, columns.data());
    CHECK(std::fabs(columns[1] - 2e6 * double(0.1f)) < 0.5);
  });
}

TEST_CASE("extremes and argmax show a NaN wherever it stands") {
  ThreadPool pool(2);
  on_every_target([&] {
    for (int64_t n : {1, 2, 5, 16, 17, 70, 130}) {
      for (int64_t at = 0; at < n; ++at) {
        std::vector<float> x(static_cast<size_t>(n), 1.0f);
        x[static_cast<size_t>(at)] = kNan;
        x[0] = at == 0 ? kNan : kInf;
        float y = 0;
        max_reduce(pool, x.data(), 1, n, 1, &y);
        REQUIRE(std::isnan(y));
        min_reduce(pool, x.data(), 1, n, 1, &y);
        REQUIRE(std::isnan(y));
        std::vector<float> pairs;
        for (float v : x) pairs.insert(pairs.end(), {v, 2.0f});
        float both[2];
        max_reduce(pool, pairs.data(), 1, n, 2, both);
        REQUIRE(std::isnan(both[0]));
        REQUIRE(both[1] == 2);
        std::vector<float> wide(static_cast<size_t>(n) * 35, -2.0f), of_columns(35);
        wide[static_cast<size_t>(at) * 35 + 17] = kNan;
        max_reduce(pool, wide.data(), 1, n, 35, of_columns.data());
        for (size_t i = 0; i < 35; ++i)
          REQUIRE((i == 17 ? std::isnan(of_columns[i]) : of_columns[i] == -2));
        REQUIRE(argmax(x.data(), n) == at);
        std::vector<uint16_t> narrow;
        for (float v : x) narrow.push_back(to_bf16(v).bits);
        max_reduce_half(pool, DType::kBF16, narrow.data(), 1, n, 1, &y);
        REQUIRE(std::isnan(y));
        min_reduce_half(pool, DType::kBF16, narrow.data(), 1, n, 1, &y);
        REQUIRE(std::isnan(y));
      }
    }
  });
}

TEST_CASE("extremes keep signs of zero and NaN on every target") {
  on_every_target([&] {
    ThreadPool pool(1);
    for (int64_t n : {5, 16, 64, 127, 1024, 3000}) {
      std::vector<float> x(static_cast<size_t>(n), -0.0f);
      float y = 1;
      max_reduce(pool, x.data(), 1, n, 1, &y);
      REQUIRE((y == 0 && std::signbit(y)));
      min_reduce(pool, x.data(), 1, n, 1, &y);
      REQUIRE((y == 0 && std::signbit(y)));
      for (int64_t at = 0; at < n; at += 7) {
        for (float sign : {1.0f, -1.0f}) {
          x.assign(x.size(), kInf * sign);
          max_reduce(pool, x.data(), 1, n, 1, &y);
          REQUIRE(y == kInf * sign);
          x[static_cast<size_t>(at)] = std::copysign(kNan, sign);
          max_reduce(pool, x.data(), 1, n, 1, &y);
          REQUIRE(std::isnan(y));
          y = 0;
          min_reduce(pool, x.data(), 1, n, 1, &y);
          REQUIRE(std::isnan(y));
        }
      }
    }
  });
}

TEST_CASE("argmax takes the first of equals") {
  on_every_target([&] {
    for (int64_t n = 1; n <= 70; ++n) {
      for (int64_t at = 0; at < n; ++at) {
        std::vector<float> x(static_cast<size_t>(n), -kInf);
        CHECK(argmax(x.data(), n) == 0);
        for (int64_t i = at; i < n; i += 3) x[static_cast<size_t>(i)] = 5;
        REQUIRE(argmax(x.data(), n) == at);
      }
    }
  });
}
