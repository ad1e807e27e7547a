#include "lib/kernels/norm.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/reference.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/tiles/bf16_panels.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<double> widen(const float* x, int64_t n) {
  return std::vector<double>(x, x + n);
}

void require_close(const float* got, const std::vector<double>& expected, double tolerance) {
  for (size_t i = 0; i < expected.size(); ++i) {
    INFO("element " << i << " of " << expected.size());
    REQUIRE(std::fabs(got[i] - expected[i]) <= tolerance * (1 + std::fabs(expected[i])));
  }
}

// Runs `kernel(pool, x, y, y_stride)` on rows of every short length and some long ones, compares
// with `expected(row)` and checks the gaps between rows and the independence of threads.
template <class Kernel, class Expected>
void check_rows(double tolerance, const Kernel& kernel, const Expected& expected) {
  Philox random(1);
  std::vector<int64_t> dims;
  for (int64_t dim = 1; dim <= 67; ++dim) dims.push_back(dim);
  for (int64_t dim : {288, 1000, 4096, 5001}) dims.push_back(dim);
  on_every_target([&] {
    for (int64_t dim : dims) {
      const int64_t rows = 5, x_stride = dim + 3, y_stride = dim + 1;
      std::vector<float> x(static_cast<size_t>((rows - 1) * x_stride + dim));
      for (float& v : x) v = static_cast<float>(3 * random.normal() + 1);
      std::vector<float> y(static_cast<size_t>(rows * y_stride), -77.0f), again = y;
      ThreadPool one(1), three(3);
      kernel(one, Rows{x.data(), rows, dim, x_stride}, y.data(), y_stride);
      kernel(three, Rows{x.data(), rows, dim, x_stride}, again.data(), y_stride);
      REQUIRE(std::memcmp(y.data(), again.data(), y.size() * sizeof(float)) == 0);
      for (int64_t row = 0; row < rows; ++row) {
        require_close(&y[static_cast<size_t>(row * y_stride)],
                      expected(widen(&x[static_cast<size_t>(row * x_stride)], dim)), tolerance);
        REQUIRE(y[static_cast<size_t>(row * y_stride + dim)] == -77);
      }
      kernel(three, Rows{x.data(), rows, dim, x_stride}, x.data(), x_stride);  // in place
      REQUIRE(std::memcmp(x.data(), y.data(), static_cast<size_t>(dim) * sizeof(float)) == 0);
    }
  });
}

}  // namespace

TEST_CASE("rms_norm") {
  std::vector<float> w(5001);
  for (size_t i = 0; i < w.size(); ++i) w[i] = 0.5f + static_cast<float>(i % 7);
  check_rows(
      2e-6,
      [&](ThreadPool& pool, const Rows& x, float* y, int64_t stride) {
        rms_norm(pool, x, w.data(), 1e-5f, y, stride);
      },
      [&](const std::vector<double>& x) {
        return reference::rms_norm(x, widen(w.data(), static_cast<int64_t>(x.size())), 1e-5);
      });
  check_rows(
      2e-6,
      [&](ThreadPool& pool, const Rows& x, float* y, int64_t stride) {
        rms_norm(pool, x, nullptr, 1e-5f, y, stride);
      },
      [&](const std::vector<double>& x) {
        return reference::rms_norm(x, std::vector<double>(x.size(), 1.0), 1e-5);
      });
}

TEST_CASE("layer_norm") {
  std::vector<float> w(5001), b(5001);
  for (size_t i = 0; i < w.size(); ++i) {
    w[i] = 0.5f + static_cast<float>(i % 7);
    b[i] = static_cast<float>(i % 5) - 2;
  }
  for (const float* bias :
       {static_cast<const float*>(b.data()), static_cast<const float*>(nullptr)}) {
    check_rows(
        5e-6,
        [&](ThreadPool& pool, const Rows& x, float* y, int64_t stride) {
          layer_norm(pool, x, w.data(), bias, 1e-5f, y, stride);
        },
        [&](const std::vector<double>& x) {
          const auto n = static_cast<int64_t>(x.size());
          const auto shift = bias ? widen(bias, n) : std::vector<double>(x.size(), 0.0);
          return reference::layer_norm(x, widen(w.data(), n), shift, 1e-5);
        });
  }
}

TEST_CASE("rms_norm and layer_norm round their rows to bfloat16 if asked to") {
  Philox random(3);
  on_every_target([&] {
    for (int64_t dim : {1, 33, 288, 4096}) {
      const int64_t rows = 5, stride = dim + 1;
      std::vector<float> x(static_cast<size_t>(rows * dim)), w(static_cast<size_t>(dim)), b = w;
      for (auto* values : {&x, &w, &b}) {
        for (float& v : *values) v = static_cast<float>(random.normal());
      }
      std::vector<float> y(static_cast<size_t>(rows * dim));
      std::vector<uint16_t> narrow(static_cast<size_t>(rows * stride), 0x4321);
      auto check = [&] {
        for (int64_t row = 0; row < rows; ++row) {
          std::vector<uint16_t> expected(static_cast<size_t>(dim));
          round_row(&y[static_cast<size_t>(row * dim)], dim, expected.data());
          const uint16_t* const got = &narrow[static_cast<size_t>(row * stride)];
          CHECK(std::equal(expected.begin(), expected.end(), got));
          CHECK(got[dim] == 0x4321);
        }
      };
      ThreadPool pool(2);
      const Rows from{x.data(), rows, dim, dim};
      auto* const to = reinterpret_cast<float*>(narrow.data());
      rms_norm(pool, from, w.data(), 1e-5f, y.data(), dim);
      rms_norm(pool, from, w.data(), 1e-5f, to, stride, true);
      check();
      layer_norm(pool, from, w.data(), b.data(), 1e-5f, y.data(), dim);
      layer_norm(pool, from, w.data(), b.data(), 1e-5f, to, stride, true);
      check();
    }
  });
}

TEST_CASE("softmax") {
  check_rows(
      1e-6,
      [&](ThreadPool& pool, const Rows& x, float* y, int64_t stride) {
        softmax(pool, x, y, stride);
      },
      [&](const std::vector<double>& x) { return reference::softmax(x); });
}

TEST_CASE("softmax of special rows") {
  ThreadPool pool(1);
  on_every_target([&] {
    for (size_t n : {3, 19, 70}) {
      std::vector<float> x(n, -kInf), y(n);
      const Rows rows{x.data(), 1, static_cast<int64_t>(n), static_cast<int64_t>(n)};
      softmax(pool, rows, y.data(), 0);
      for (float v : y) CHECK(std::isnan(v));
      x[1] = 1e30f;  // everything else underflows, whatever its distance
      x[2] = -1e38f;
      softmax(pool, rows, y.data(), 0);
      for (size_t i = 0; i < n; ++i) CHECK(y[i] == (i == 1 ? 1.0f : 0.0f));
      for (size_t at = 0; at < n; ++at) {
        std::vector<float> z(n, 0.5f);
        z[at] = std::numeric_limits<float>::quiet_NaN();
        softmax(pool, {z.data(), 1, rows.dim, rows.dim}, y.data(), 0);
        for (float v : y) REQUIRE(std::isnan(v));
      }
    }
  });
}
