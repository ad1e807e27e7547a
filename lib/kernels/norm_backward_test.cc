#include "lib/kernels/norm_backward.h"

#include <cmath>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/reference_rows.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/testing/random_floats.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

using Floats = std::vector<float>;
using reference::Vector;

constexpr double kEps = 1e-5;

Vector row_of(const Floats& x, int64_t at, int64_t dim) {
  return Vector(x.begin() + at, x.begin() + at + dim);
}

void require_close(float got, double want, double tolerance) {
  REQUIRE(std::fabs(got - want) <= tolerance * (1 + std::fabs(want)));
}

// Rows of x and dy with gaps, misaligned, and room for all results.
struct Problem {
  int64_t rows, dim;
  Floats x, w, dy;
  int64_t x_stride, dy_stride;

  Problem(int64_t row_count, int64_t width, Philox& random)
      : rows(row_count),
        dim(width),
        x(random_floats(random, rows * (dim + 3) + 1, 2)),
        w(random_floats(random, dim, 1)),
        dy(random_floats(random, rows * (dim + 1) + 1, 1)),
        x_stride(dim + 3),
        dy_stride(dim + 1) {}

  Rows x_rows() const { return {x.data() + 1, rows, dim, x_stride}; }
  Rows dy_rows() const { return {dy.data() + 1, rows, dim, dy_stride}; }
  Vector x_row(int64_t row) const { return row_of(x, 1 + row * x_stride, dim); }
  Vector dy_row(int64_t row) const { return row_of(dy, 1 + row * dy_stride, dim); }
};

template <class Body>
void for_each_problem(const Body& body) {
  on_every_target([&] {
    Philox random(3);
    for (int64_t dim = 1; dim <= 35; ++dim) body(Problem(3, dim, random));
    for (int64_t rows : {1, 2, 40, 300}) body(Problem(rows, 67, random));
    body(Problem(9, 500, random));
    body(Problem(0, 5, random));
  });
}

struct Gradients {
  Floats dx, dw, db;
  bool operator==(const Gradients&) const = default;
};

// Runs the kernel with 1 and 3 threads, which must give the same bits, and checks the guard behind
// each result.
template <class Kernel>
Gradients run(const Problem& p, const Kernel& kernel) {
  auto once = [&](int threads) {
    ThreadPool pool(threads);
    std::vector<std::byte> memory(norm_backward_workspace_bytes(p.rows, p.dim) + 64);
    auto address = reinterpret_cast<uintptr_t>(memory.data());
    std::byte* workspace = memory.data() + (64 - address % 64) % 64;
    const auto dim = static_cast<size_t>(p.dim);
    Gradients g{Floats(static_cast<size_t>(p.rows) * dim + 1, -77.0f), Floats(dim + 1, -77.0f),
                Floats(dim + 1, -77.0f)};
    kernel(pool, g, workspace);
    for (const Floats* array : {&g.dx, &g.dw, &g.db}) REQUIRE(array->back() == -77);
    return g;
  };
  Gradients one = once(1);
  REQUIRE(one == once(3));
  return one;
}

}  // namespace

TEST_CASE("softmax_backward") {
  for_each_problem([](const Problem& p) {
    Floats y(p.x.size()), log_y(p.x.size());
    ThreadPool pool(1);
    softmax(pool, p.x_rows(), y.data() + 1, p.x_stride);
    log_softmax(pool, p.x_rows(), log_y.data() + 1, p.x_stride);
    const Gradients plain = run(p, [&](ThreadPool& threads, Gradients& g, std::byte*) {
      softmax_backward(threads, {y.data() + 1, p.rows, p.dim, p.x_stride}, p.dy_rows(),
                       g.dx.data());
    });
    const Gradients logarithmic = run(p, [&](ThreadPool& threads, Gradients& g, std::byte*) {
      log_softmax_backward(threads, {log_y.data() + 1, p.rows, p.dim, p.x_stride}, p.dy_rows(),
                           g.dx.data());
    });
    for (int64_t row = 0; row < p.rows; ++row) {
      const Vector want = reference::softmax_backward(p.x_row(row), p.dy_row(row));
      const Vector want_log = reference::log_softmax_backward(p.x_row(row), p.dy_row(row));
      for (size_t j = 0; j < want.size(); ++j) {
        const size_t at = static_cast<size_t>(row * p.dim) + j;
        require_close(plain.dx[at], want[j], 2e-6);
        require_close(logarithmic.dx[at], want_log[j], 5e-6);
      }
    }
  });
}

TEST_CASE("log_softmax") {
  ThreadPool pool(2);
  on_every_target([&] {
    Philox random(4);
    for (int64_t dim = 1; dim <= 70; ++dim) {
      const Problem p(5, dim, random);
      Floats y(static_cast<size_t>(5 * dim));
      log_softmax(pool, p.x_rows(), y.data(), dim);
      for (int64_t row = 0; row < 5; ++row) {
        const Vector want = reference::softmax(p.x_row(row));
        for (size_t j = 0; j < want.size(); ++j) {
          require_close(y[static_cast<size_t>(row * dim) + j], std::log(want[j]), 1e-6);
        }
      }
    }
    const float large[] = {1e4f, -1e4f, 1e4f};
    float y[3];
    log_softmax(pool, {large, 1, 3, 3}, y, 3);
    CHECK(y[0] == Approx(-std::log(2.0)));
    CHECK(y[1] == Approx(-2e4 - std::log(2.0)));
  });
}

TEST_CASE("rms_norm_backward") {
  for_each_problem([](const Problem& p) {
    const Gradients got = run(p, [&](ThreadPool& pool, Gradients& g, std::byte* workspace) {
      rms_norm_backward(pool, p.x_rows(), p.w.data(), p.dy_rows(), static_cast<float>(kEps),
                        g.dx.data(), g.dw.data(), workspace);
    });
    const Vector w(p.w.begin(), p.w.end());
    Vector dw(w.size(), 0.0);
    for (int64_t row = 0; row < p.rows; ++row) {
      const Vector x = p.x_row(row), dy = p.dy_row(row);
      const Vector want = reference::rms_norm_backward(x, w, dy, kEps);
      const Vector normal = reference::rms_normal(x, kEps);
      for (size_t j = 0; j < want.size(); ++j) {
        require_close(got.dx[static_cast<size_t>(row * p.dim) + j], want[j], 2e-5);
        dw[j] += dy[j] * normal[j];
      }
    }
    for (size_t j = 0; j < dw.size(); ++j) require_close(got.dw[j], dw[j], 2e-5);
  });
}

TEST_CASE("layer_norm_backward") {
  for_each_problem([](const Problem& p) {
    if (p.dim == 1) return;  // all differences cancel: nothing but rounding is left
    const Gradients got = run(p, [&](ThreadPool& pool, Gradients& g, std::byte* workspace) {
      layer_norm_backward(pool, p.x_rows(), p.w.data(), p.dy_rows(), static_cast<float>(kEps),
                          g.dx.data(), g.dw.data(), g.db.data(), workspace);
    });
    const Vector w(p.w.begin(), p.w.end());
    Vector dw(w.size(), 0.0), db = dw;
    for (int64_t row = 0; row < p.rows; ++row) {
      const Vector x = p.x_row(row), dy = p.dy_row(row);
      const Vector want = reference::layer_norm_backward(x, w, dy, kEps);
      const Vector normal = reference::layer_normal(x, kEps);
      for (size_t j = 0; j < want.size(); ++j) {
        require_close(got.dx[static_cast<size_t>(row * p.dim) + j], want[j], 5e-5);
        dw[j] += dy[j] * normal[j];
        db[j] += dy[j];
      }
    }
    for (size_t j = 0; j < dw.size(); ++j) {
      require_close(got.dw[j], dw[j], 2e-5);
      require_close(got.db[j], db[j], 2e-5);
    }
  });
}
