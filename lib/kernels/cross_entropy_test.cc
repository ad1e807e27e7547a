#include "lib/kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/reference.h"
#include "lib/kernels/reference_rows.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/testing/random_floats.h"
#include "lib/kernels/tiles/amx_emulation.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

using Floats = std::vector<float>;
using reference::Vector;

void require_close(float got, double want, double tolerance) {
  REQUIRE(std::fabs(got - want) <= tolerance * (1 + std::fabs(want)));
}

struct Result {
  Floats loss, weight, maximum, scale, dx;
  bool operator==(const Result&) const = default;
};

Result run(const CrossEntropy& args, const Floats& drow, int threads) {
  ThreadPool pool(threads);
  const auto rows = static_cast<size_t>(args.logits.rows);
  const Floats empty(rows + 1, -77.0f);
  Result r{empty, empty, empty, empty,
           Floats(rows * static_cast<size_t>(args.logits.dim) + 1, -77.0f)};
  cross_entropy(pool, args, {r.loss.data(), r.weight.data(), r.maximum.data(), r.scale.data()});
  cross_entropy_backward(pool, args, r.maximum.data(), r.scale.data(), drow.data(), r.dx.data());
  for (const Floats* array : {&r.loss, &r.weight, &r.maximum, &r.scale, &r.dx}) {
    REQUIRE(array->back() == -77);
  }
  return r;
}

void check(int64_t rows, int64_t classes, bool weighted, float smoothing, Philox& random) {
  INFO("classes " << classes << ", weighted " << weighted << ", smoothing " << smoothing);
  const int64_t stride = classes + 2;
  const Floats x = random_floats(random, rows * stride + 1, 3),
               drow = random_floats(random, rows, 1);
  Floats w(static_cast<size_t>(classes), 1.0f);
  if (weighted) {
    for (float& v : w) v = static_cast<float>(random.uniform());
  }
  std::vector<int32_t> targets;
  for (int64_t row = 0; row < rows; ++row) {
    const auto target = static_cast<int32_t>(random.below(static_cast<uint64_t>(classes)));
    targets.push_back(row % 4 == 3 ? -100 : target);
  }
  const CrossEntropy args{.logits = {x.data() + 1, rows, classes, stride},
                          .targets = targets.data(),
                          .class_weight = weighted ? w.data() : nullptr,
                          .smoothing = smoothing};
  const Result got = run(args, drow, 1);
  REQUIRE(got == run(args, drow, 3));
  for (int64_t row = 0; row < rows; ++row) {
    const auto first = x.begin() + 1 + row * stride;
    const auto at = static_cast<size_t>(row);
    const reference::RowLoss want = reference::cross_entropy(
        Vector(first, first + classes), targets[at], Vector(w.begin(), w.end()), -100, smoothing);
    require_close(got.loss[at], want.loss, 2e-6);
    require_close(got.weight[at], want.weight, 0);
    for (size_t j = 0; j < want.gradient.size(); ++j) {
      require_close(got.dx[at * want.gradient.size() + j], drow[at] * want.gradient[j], 2e-6);
    }
  }
}

}  // namespace

TEST_CASE("cross_entropy") {
  on_every_target([] {
    Philox random(5);
    for (int64_t classes = 1; classes <= 35; ++classes) {
      check(5, classes, false, 0, random);
      check(5, classes, true, 0.1f, random);
    }
    for (bool weighted : {false, true}) {
      for (float smoothing : {0.0f, 0.2f, 1.0f}) check(9, 1001, weighted, smoothing, random);
    }
    check(0, 3, false, 0, random);
  });
}

TEST_CASE("cross_entropy of extreme logits and of targets that are no class") {
  on_every_target([] {
    const float x[] = {1e4f, -1e4f, 0, 1e4f, -1e4f, 0, 1, 2, 3, 1, 2, 3};
    const std::vector<int32_t> targets = {0, 1, 3, -1};
    const Result got = run({.logits = {x, 4, 3, 3}, .targets = targets.data()}, {1, 1, 1, 1}, 1);
    CHECK(got.loss[0] == 0);
    CHECK(got.loss[1] == 2e4f);
    CHECK(Floats(got.dx.begin(), got.dx.begin() + 6) == Floats{0, 0, 0, 1, -1, 0});
    CHECK(std::isnan(got.loss[2]));
    CHECK(std::isnan(got.loss[3]));
    CHECK(std::isnan(got.dx[8]));
  });
}

TEST_CASE("cross_entropy of long rows with infinities and NaN anywhere") {
  on_every_target([] {
    constexpr int64_t kClasses = 9001;
    const int32_t target = 8999;
    auto loss_of = [&](const Floats& x) {
      return run({.logits = {x.data(), 1, kClasses, kClasses}, .targets = &target}, {1}, 1).loss[0];
    };
    Philox random(7);
    Floats x = random_floats(random, kClasses, 3);
    for (size_t i = 0; i < x.size(); ++i) x[i] += static_cast<float>(i / 3000);  // the top rises
    const Vector ones(x.size(), 1.0), wide(x.begin(), x.end());
    REQUIRE(loss_of(x) == Approx(reference::cross_entropy(wide, target, ones, -100, 0).loss));
    std::fill_n(x.begin(), 5000, -INFINITY);
    const Vector tail(x.begin() + 5000, x.end());
    REQUIRE(loss_of(x) ==
            Approx(reference::cross_entropy(tail, target - 5000, ones, -100, 0).loss));
    for (size_t at : {0, 4999, 9000}) {
      Floats bad = x;
      bad[at] = NAN;
      REQUIRE(std::isnan(loss_of(bad)));
    }
    REQUIRE(std::isnan(loss_of(Floats(kClasses, -INFINITY))));
  });
}

TEST_CASE("nll") {
  const float x[] = {-1, -2, -3, -4, -5, -6, -7, -8, -9};
  const float w[] = {0.5, 2, 4}, drow[] = {1, 10, 100};
  const int32_t targets[] = {2, -100, 1};
  const CrossEntropy args{.logits = {x, 3, 3, 3}, .targets = targets, .class_weight = w};
  ThreadPool pool(2);
  float loss[3], weight[3], dx[9];
  nll(pool, args, loss, weight);
  nll_backward(pool, args, drow, dx);
  CHECK(Floats(loss, loss + 3) == Floats{12, 0, 16});
  CHECK(Floats(weight, weight + 3) == Floats{4, 0, 2});
  CHECK(Floats(dx, dx + 9) == Floats{0, 0, -4, 0, 0, 0, 0, -200, 0});
}

namespace {

// What linear_cross_entropy is given and gives.
struct LinearLoss {
  int64_t rows, dim, classes;
  bool bf16 = false;
  float cap = 0;
  Floats hidden, weight, token_weights;
  std::vector<int32_t> targets;

  LinearLoss(int64_t row_count, int64_t width, int64_t class_count, Philox& random)
      : rows(row_count),
        dim(width),
        classes(class_count),
        hidden(random_floats(random, rows * dim, 1)),
        weight(random_floats(random, classes * dim, 1)),
        token_weights(random_floats(random, rows, 1)) {
    for (int64_t row = 0; row < rows; ++row) {
      targets.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(classes))));
      if (row % 5 == 4) token_weights[static_cast<size_t>(row)] = 0, targets.back() = -100;
    }
  }

  // Makes the loss of a row about `loss`.
  void scale_row(int64_t row, float loss) {
    float* const x = hidden.data() + row * dim;
    const auto logit = [&](int64_t c) {
      return std::inner_product(x, x + dim, weight.data() + c * dim, 0.0f);
    };
    float largest = logit(0);
    for (int64_t c = 1; c < classes; ++c) largest = std::max(largest, logit(c));
    const float factor = loss / (largest - logit(targets[static_cast<size_t>(row)]));
    for (int64_t i = 0; i < dim; ++i) x[i] *= factor;
  }

  struct Output {
    Floats loss, dhidden, dweight;
    bool operator==(const Output&) const = default;
  };

  Output run(int threads, bool of_hidden = true, bool of_weight = true) const {
    ThreadPool pool(threads);
    std::vector<std::byte> memory(
        linear_cross_entropy_workspace_bytes(rows, dim, classes, threads, bf16) + 64);
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    Output out{{-77}, Floats(of_hidden ? hidden.size() : 0), Floats(of_weight ? weight.size() : 0)};
    linear_cross_entropy(pool, {.rows = rows,
                                .dim = dim,
                                .classes = classes,
                                .hidden = hidden.data(),
                                .weight = weight.data(),
                                .targets = targets.data(),
                                .token_weights = token_weights.data(),
                                .loss = out.loss.data(),
                                .dhidden = of_hidden ? out.dhidden.data() : nullptr,
                                .dweight = of_weight ? out.dweight.data() : nullptr,
                                .workspace = memory.data() + (64 - address % 64) % 64,
                                .bf16 = bf16,
                                .logit_cap = cap});
    return out;
  }

  struct Expected {
    double loss = 0;
    Vector dhidden, dweight;
  };
  Expected expected() const {
    Expected want{0, Vector(hidden.size(), 0.0), Vector(weight.size(), 0.0)};
    for (int64_t row = 0; row < rows; ++row) {
      const auto at = static_cast<size_t>(row);
      Vector logits(static_cast<size_t>(classes), 0.0), slope(logits.size(), 1.0);
      for (int64_t c = 0; c < classes; ++c) {
        for (int64_t i = 0; i < dim; ++i) {
          logits[static_cast<size_t>(c)] += double{hidden[static_cast<size_t>(row * dim + i)]} *
                                            weight[static_cast<size_t>(c * dim + i)];
        }
        double& logit = logits[static_cast<size_t>(c)];
        logit = reference::soft_cap(logit, cap);
        if (cap != 0) slope[static_cast<size_t>(c)] = 1 - std::pow(logit / cap, 2);
      }
      const double counts = token_weights[at];
      const reference::RowLoss one =
          reference::cross_entropy(logits, targets[at], Vector(logits.size(), 1.0), -100, 0);
      want.loss += counts * one.loss;
      for (int64_t c = 0; c < classes; ++c) {
        const auto k = static_cast<size_t>(c);
        const double d = counts * one.gradient[k] * slope[k];
        for (int64_t i = 0; i < dim; ++i) {
          const auto h = static_cast<size_t>(row * dim + i), w = static_cast<size_t>(c * dim + i);
          want.dhidden[h] += d * weight[w];
          want.dweight[w] += d * hidden[h];
        }
      }
    }
    return want;
  }
};

double distance(const Floats& got, const Vector& want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return std::sqrt(error / norm);
}

bool all_nan(const Floats& x) {
  return std::all_of(x.begin(), x.end(), [](float v) { return std::isnan(v); });
}

}  // namespace

TEST_CASE("linear_cross_entropy adds up chunks") {
  on_every_target([] {
    Philox random(6);
    // The last shape takes several chunks of rows.
    for (auto [rows, dim, classes] :
         {std::array<int64_t, 3>{1, 1, 1}, {7, 5, 11}, {0, 3, 4}, {40, 33, 130}, {1100, 3, 17}}) {
      INFO(rows << " rows, " << classes << " classes");
      const LinearLoss test(rows, dim, classes, random);
      const auto got = test.run(1);
      REQUIRE(got == test.run(3));
      REQUIRE(test.run(2, false, false).loss == got.loss);
      const auto want = test.expected();
      require_close(got.loss[0], want.loss, 2e-6);
      for (size_t i = 0; i < want.dhidden.size(); ++i) {
        require_close(got.dhidden[i], want.dhidden[i], 5e-6);
      }
      for (size_t i = 0; i < want.dweight.size(); ++i) {
        require_close(got.dweight[i], want.dweight[i], 2e-5);
      }
    }
  });
}

TEST_CASE("linear_cross_entropy caps logits, on tiles too") {
  Philox random(21);
  LinearLoss test(70, 39, 2061, random);
  test.cap = 3;
  const auto want = test.expected();
  const auto check = [&](bool bf16) {
    INFO((bf16 ? "bfloat16" : "float32"));
    test.bf16 = bf16;
    const auto got = test.run(1);
    CHECK(got.loss[0] == Approx(want.loss).epsilon(bf16 ? 1e-3 : 2e-6));
    CHECK(distance(got.dhidden, want.dhidden) < (bf16 ? 8e-3 : 1.2e-5));
    CHECK(distance(got.dweight, want.dweight) < (bf16 ? 8e-3 : 1.2e-5));
    CHECK(got == test.run(3));
    CHECK(test.run(2, false, false).loss == got.loss);
  };
  on_every_target([&] {
    const ExactProductsScope exact;
    check(false);
  });
  on_every_tile_unit([&] {
    for (bool bf16 : {false, true}) check(bf16);
  });
}

TEST_CASE("linear_cross_entropy on tiles keeps no logits") {
  Philox random(16);
  // Not a multiple of any block: of classes, whose last group is one of 13, of rows and of dim.
  LinearLoss test(70, 39, 2061, random);
  const auto want = test.expected();
  on_every_tile_unit([&] {
    for (bool bf16 : {false, true}) {
      INFO((bf16 ? "bfloat16" : "float32"));
      test.bf16 = bf16;
      const auto got = test.run(1);
      CHECK(got.loss[0] == Approx(want.loss).epsilon(bf16 ? 1e-3 : 2e-6));
      CHECK(distance(got.dhidden, want.dhidden) < (bf16 ? 8e-3 : 1.2e-5));
      CHECK(distance(got.dweight, want.dweight) < (bf16 ? 8e-3 : 1.2e-5));
      CHECK(got == test.run(6));
      CHECK(test.run(2, false, false).loss == got.loss);
      CHECK(test.run(2, true, false).dhidden == got.dhidden);
      CHECK(test.run(2, false, true).dweight == got.dweight);
    }
  });
}

TEST_CASE("linear_cross_entropy on tiles adds up chunks of rows") {
  Philox random(17);
  LinearLoss test(2050, 32, 2048, random);
  test.bf16 = true;
  const auto want = test.expected();
  on_every_tile_unit([&] {
    const auto got = test.run(2);
    CHECK(got.loss[0] == Approx(want.loss).epsilon(1e-3));
    CHECK(distance(got.dhidden, want.dhidden) < 8e-3);
    CHECK(distance(got.dweight, want.dweight) < 8e-3);
  });
}

TEST_CASE("linear_cross_entropy on tiles takes logits of any size") {
  Philox random(19);
  LinearLoss test(70, 32, 2048, random);
  // A row that does not count.
  std::fill_n(test.hidden.begin() + 4 * test.dim, test.dim, 1e30f);
  // The exponential of the likeliest class is e^50 that of the target; then no float32.
  for (float largest : {50.0f, 400.0f}) {
    test.scale_row(2, largest);
    const auto want = test.expected();
    on_every_tile_unit([&] {
      for (bool bf16 : {false, true}) {
        INFO(largest << (bf16 ? ", bfloat16" : ", float32"));
        test.bf16 = bf16;
        const auto got = test.run(2);
        CHECK(got.loss[0] == Approx(want.loss).epsilon(bf16 ? 1e-2 : 1e-5));
        CHECK(distance(got.dhidden, want.dhidden) < (bf16 ? 0.1 : 4e-4));
        CHECK(distance(got.dweight, want.dweight) < (bf16 ? 0.1 : 4e-4));
        CHECK(got == test.run(3));
      }
    });
  }
}

TEST_CASE("linear_cross_entropy on tiles notices what is no number and no class") {
  on_every_tile_unit([] {
    Philox random(18);
    const LinearLoss good(35, 32, 2048, random);
    for (bool bf16 : {false, true}) {
      LinearLoss test = good;
      test.bf16 = bf16;
      test.hidden[5] = INFINITY;
      CHECK_FALSE(std::isfinite(test.run(2).loss[0]));
      test = good;
      test.bf16 = bf16;
      test.weight[77] = NAN;
      CHECK(std::isnan(test.run(2).loss[0]));
      test = good;
      test.bf16 = bf16;
      test.targets[3] = 2048;
      const auto got = test.run(2);
      CHECK(std::isnan(got.loss[0]));
      CHECK(all_nan(Floats(got.dhidden.begin() + 3 * 32, got.dhidden.begin() + 4 * 32)));
      CHECK_FALSE(std::isnan(got.dhidden[0]));
    }
  });
}
