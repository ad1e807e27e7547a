#include "lib/kernels/norm_f64.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/testing/every_target.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

using Row = std::vector<double>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Row log_softmax_of(const Row& x) {
  double largest = -kInfinity;
  for (double v : x) largest = std::fmax(largest, v);
  long double total = 0;
  for (double v : x) total += std::exp(static_cast<long double>(v) - largest);
  Row y;
  for (double v : x) {
    y.push_back(static_cast<double>(static_cast<long double>(v) - largest - std::log(total)));
  }
  return y;
}

Row softmax_of(const Row& x) {
  Row y = log_softmax_of(x);
  for (double& v : y) v = std::exp(v);
  return y;
}

Row softmax_gradient(const Row& y, const Row& dy) {
  long double total = 0;
  for (size_t i = 0; i < y.size(); ++i) total += static_cast<long double>(y[i]) * dy[i];
  Row dx;
  for (size_t i = 0; i < y.size(); ++i) {
    dx.push_back(static_cast<double>(y[i] * (dy[i] - total)));
  }
  return dx;
}

Row log_softmax_gradient(const Row& y, const Row& dy) {
  long double total = 0;
  for (double v : dy) total += v;
  Row dx;
  for (size_t i = 0; i < y.size(); ++i) {
    dx.push_back(static_cast<double>(dy[i] - std::exp(static_cast<long double>(y[i])) * total));
  }
  return dx;
}

// A row's normalisation, without a mean (rms_norm) or with one, and its gradients.
struct Normal {
  Normal(const Row& x, bool is_centred, double eps) {
    const auto count = static_cast<long double>(x.size());
    long double mean = 0, squares = 0;
    for (double v : x) mean += is_centred ? v / count : 0;
    for (double v : x) squares += (v - mean) * (v - mean);
    r = 1 / std::sqrt(squares / count + eps);
    for (double v : x) values.push_back((v - mean) * r);
  }
  Row gradient(const Row& w, const Row& dy, bool is_centred) const {
    const auto count = static_cast<long double>(w.size());
    long double mean = 0, product = 0;
    for (size_t i = 0; i < w.size(); ++i) {
      const long double g = static_cast<long double>(w[i]) * dy[i];
      mean += is_centred ? g / count : 0;
      product += g * values[i] / count;
    }
    Row dx;
    for (size_t i = 0; i < w.size(); ++i) {
      const long double g = static_cast<long double>(w[i]) * dy[i];
      dx.push_back(static_cast<double>(r * (g - mean - values[i] * product)));
    }
    return dx;
  }

  long double r;
  std::vector<long double> values;
};

void require_close(const double* got, const Row& expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    INFO("element " << i << " of " << expected.size());
    REQUIRE(std::fabs(got[i] - expected[i]) <= 2e-14 * (1 + std::fabs(expected[i])));
  }
}

// Five rows, three numbers apart, of every short length and some long ones.
constexpr int64_t kRowCount = 5, kGap = 3;
void for_each_length(const std::function<void(int64_t dim, Philox& random)>& body) {
  on_every_target([&] {
    Philox random(1);
    for (int64_t dim = 0; dim <= 70; ++dim) body(dim, random);
    for (int64_t dim : {288, 1000, 4097}) body(dim, random);
  });
}

struct Problem {
  Problem(int64_t dim, Philox& random) : numbers(static_cast<size_t>(kRowCount * (dim + kGap))) {
    for (double& v : numbers) v = 3 * random.normal() + 1;
    rows = {numbers.data(), kRowCount, dim, dim + kGap};
  }
  Row row(int64_t i) const { return {rows.row(i), rows.row(i) + rows.dim}; }

  std::vector<double> numbers;
  RowsF64 rows{};
};

// Runs kernel(pool, y) on one thread and on three, and compares the rows with expected(i).
template <class Kernel, class Expected>
void check(int64_t dim, const Kernel& kernel, const Expected& expected) {
  std::vector<double> y(static_cast<size_t>(kRowCount * dim + 1), -77.0), again = y;
  ThreadPool one(1), three(3);
  kernel(one, y.data());
  kernel(three, again.data());
  REQUIRE(std::memcmp(y.data(), again.data(), y.size() * sizeof(double)) == 0);
  CHECK(y.back() == -77);
  for (int64_t i = 0; i < kRowCount; ++i) require_close(y.data() + i * dim, expected(i));
}

}  // namespace

TEST_CASE("softmax and log_softmax of float64 are those of the formulas") {
  for_each_length([](int64_t dim, Philox& random) {
    const Problem x(dim, random);
    check(
        dim, [&](ThreadPool& pool, double* y) { softmax(pool, x.rows, y); },
        [&](int64_t i) { return softmax_of(x.row(i)); });
    check(
        dim, [&](ThreadPool& pool, double* y) { log_softmax(pool, x.rows, y); },
        [&](int64_t i) { return log_softmax_of(x.row(i)); });
  });
}

TEST_CASE("the gradients of softmax and log_softmax of float64 are those of the formulas") {
  for_each_length([](int64_t dim, Philox& random) {
    Problem y(dim, random), log_y(dim, random);
    const Problem dy(dim, random);
    for (int64_t i = 0; i < kRowCount; ++i) {
      const Row soft = softmax_of(y.row(i)), log_soft = log_softmax_of(log_y.row(i));
      std::copy(soft.begin(), soft.end(), y.numbers.begin() + i * y.rows.stride);
      std::copy(log_soft.begin(), log_soft.end(), log_y.numbers.begin() + i * log_y.rows.stride);
    }
    check(
        dim, [&](ThreadPool& pool, double* dx) { softmax_backward(pool, y.rows, dy.rows, dx); },
        [&](int64_t i) { return softmax_gradient(y.row(i), dy.row(i)); });
    check(
        dim,
        [&](ThreadPool& pool, double* dx) { log_softmax_backward(pool, log_y.rows, dy.rows, dx); },
        [&](int64_t i) { return log_softmax_gradient(log_y.row(i), dy.row(i)); });
  });
}

TEST_CASE("norms of float64 and their gradients are those of the formulas") {
  for_each_length([](int64_t dim, Philox& random) {
    if (dim == 0) return;
    const Problem x(dim, random), dy(dim, random), weights(dim, random);
    const Row w = weights.row(0), b = weights.row(1);
    constexpr double kEps = 1e-3;
    for (bool is_centred : {false, true}) {
      check(
          dim,
          [&](ThreadPool& pool, double* y) {
            is_centred ? layer_norm(pool, x.rows, w.data(), b.data(), kEps, y)
                       : rms_norm(pool, x.rows, w.data(), kEps, y);
          },
          [&](int64_t i) {
            const Normal normal(x.row(i), is_centred, kEps);
            Row y;
            for (size_t k = 0; k < w.size(); ++k) {
              y.push_back(static_cast<double>(normal.values[k] * w[k] + (is_centred ? b[k] : 0)));
            }
            return y;
          });
      Row dw(static_cast<size_t>(dim)), db = dw;
      check(
          dim,
          [&](ThreadPool& pool, double* dx) {
            std::vector<std::byte> memory(norm_backward_f64_workspace_bytes(kRowCount, dim));
            is_centred ? layer_norm_backward(pool, x.rows, w.data(), dy.rows, kEps, dx, dw.data(),
                                             db.data(), memory.data())
                       : rms_norm_backward(pool, x.rows, w.data(), dy.rows, kEps, dx, dw.data(),
                                           memory.data());
          },
          [&](int64_t i) {
            return Normal(x.row(i), is_centred, kEps).gradient(w, dy.row(i), is_centred);
          });
      Row want_dw(w.size()), want_db(w.size());
      for (int64_t i = 0; i < kRowCount; ++i) {
        const Normal normal(x.row(i), is_centred, kEps);
        for (size_t k = 0; k < w.size(); ++k) {
          want_dw[k] += static_cast<double>(normal.values[k] * dy.row(i)[k]);
          want_db[k] += is_centred ? dy.row(i)[k] : 0;
        }
      }
      require_close(dw.data(), want_dw);
      require_close(db.data(), want_db);
    }
  });
}

TEST_CASE("sums over many rows of a norm's gradients are the same bits for any number of threads") {
  constexpr int64_t kRows = 1000, kDim = 37;
  Philox random(3);
  Row x(kRows * kDim), dy(x.size()), w(kDim);
  for (Row* all : {&x, &dy, &w}) {
    for (double& v : *all) v = random.normal();
  }
  std::vector<std::byte> memory(norm_backward_f64_workspace_bytes(kRows, kDim));
  std::vector<Row> results;
  for (int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    Row dx(x.size()), dw(kDim), db(kDim);
    layer_norm_backward(pool, {x.data(), kRows, kDim, kDim}, w.data(),
                        {dy.data(), kRows, kDim, kDim}, 1e-5, dx.data(), dw.data(), db.data(),
                        memory.data());
    dw.insert(dw.end(), db.begin(), db.end());
    results.push_back(dw);
  }
  CHECK(results[0] == results[1]);
  CHECK(results[0] == results[2]);
  double sum = 0;
  for (size_t i = 0; i < dy.size(); i += kDim) sum += dy[i];
  CHECK(std::fabs(results[0][kDim] - sum) < 1e-12);
}

TEST_CASE("softmax of float64 takes special rows as of float32") {
  const double nan = std::nan("");
  on_every_target([&] {
    ThreadPool pool(1);
    for (size_t at = 0; at < 19; ++at) {
      Row x(19, 1.0), y(19);
      const RowsF64 rows{x.data(), 1, 19, 19};
      x[at] = nan;
      softmax(pool, rows, y.data());
      for (double v : y) REQUIRE(std::isnan(v));
      x[at] = -kInfinity;
      softmax(pool, rows, y.data());
      for (size_t i = 0; i < y.size(); ++i) {
        REQUIRE(std::fabs(y[i] - (i == at ? 0 : 1.0 / 18)) <= 1e-16);
      }
      x[at] = 1e300;  // in place
      softmax(pool, rows, x.data());
      for (size_t i = 0; i < x.size(); ++i) REQUIRE(x[i] == (i == at ? 1 : 0));
    }
    Row x(5, -kInfinity);
    softmax(pool, {x.data(), 1, 5, 5}, x.data());
    for (double v : x) REQUIRE(std::isnan(v));
  });
}
