#include "lib/kernels/experts.h"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "lib/base/testing.h"
#include "lib/kernels/products/few_rows.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/testing/random_weights.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

// The matrices of all experts in rows, in panels, and as panels.
struct Layer {
  std::vector<std::vector<std::byte>> memory;
  std::vector<Weight> gate, up, down;

  Layer(Philox& random, DType dtype, Layout layout, int64_t experts, int64_t hidden,
        int64_t intermediate) {
    const auto add = [&](std::vector<Weight>& to, int64_t rows, int64_t cols) {
      memory.push_back(random_weights(random, dtype, rows, cols));
      const Weight w{memory.back().data(), dtype, rows, cols};
      if (layout == Layout::kPanels) memory.push_back(pack(w));
      to.push_back({memory.back().data(), dtype, rows, cols, layout});
    };
    for (int64_t e = 0; e < experts; ++e) {
      add(gate, intermediate, hidden);
      add(up, intermediate, hidden);
      add(down, hidden, intermediate);
    }
  }
};

struct Problem {
  const Layer& layer;
  int64_t m, used;
  bool normalize;
  const std::vector<float>&x, &logits;
  std::array<ExpertBias, 3> biases = {};  // of gate, up and down
  ClampedSwiglu clamped = {};

  std::vector<float> run(int threads) const {
    ThreadPool pool(threads);
    const int64_t hidden = layer.gate[0].cols, intermediate = layer.gate[0].rows;
    const auto experts = static_cast<int64_t>(layer.gate.size());
    std::vector<float> y(m * hidden + 3, -12345.0f);
    std::vector<std::byte> workspace(
        experts_workspace_bytes({m, hidden, intermediate, experts, used}, threads) + 64);
    kernels::experts(pool, {.x = x.data(),
                            .x_stride = hidden + 5,
                            .logits = logits.data(),
                            .logits_stride = experts,
                            .m = m,
                            .used = used,
                            .normalize = normalize,
                            .gate = layer.gate,
                            .up = layer.up,
                            .down = layer.down,
                            .gate_bias = biases[0],
                            .up_bias = biases[1],
                            .down_bias = biases[2],
                            .clamped = clamped,
                            .y = y.data(),
                            .workspace = align_64(workspace)});
    CHECK(std::count(y.end() - 3, y.end(), -12345.0f) == 3);
    y.resize(m * hidden);
    return y;
  }

  double activated(double gate, double up) const {
    if (clamped.limit == 0) return gate / (1 + std::exp(-gate)) * up;
    const double limit = clamped.limit, g = std::min(gate, limit);
    return (std::clamp(up, -limit, limit) + 1) * g / (1 + std::exp(-clamped.alpha * g));
  }

  // One expert after the other, one token after the other, in double.
  std::vector<double> expected() const {
    const int64_t hidden = layer.gate[0].cols, intermediate = layer.gate[0].rows;
    const auto experts = static_cast<int64_t>(layer.gate.size());
    std::vector<double> y(m * hidden);
    std::vector<int32_t> chosen(used);
    std::vector<float> probability(used);
    for (int64_t t = 0; t < m; ++t) {
      choose_experts(logits.data() + t * experts, experts, used, normalize, chosen.data(),
                     probability.data());
      for (int64_t i = 0; i < used; ++i) {
        std::vector<double> gate, up, down;
        reference::linear_row(x.data() + t * (hidden + 5), layer.gate[chosen[i]], gate);
        reference::linear_row(x.data() + t * (hidden + 5), layer.up[chosen[i]], up);
        const auto add = [&](const ExpertBias& bias, std::vector<double>& to) {
          if (bias.data == nullptr) return;
          for (size_t j = 0; j < to.size(); ++j) to[j] += bias.data[chosen[i] * bias.stride + j];
        };
        add(biases[0], gate);
        add(biases[1], up);
        std::vector<float> inner(intermediate);
        for (int64_t j = 0; j < intermediate; ++j) {
          inner[j] = static_cast<float>(activated(gate[j], up[j]));
        }
        reference::linear_row(inner.data(), layer.down[chosen[i]], down);
        add(biases[2], down);
        for (int64_t j = 0; j < hidden; ++j) y[t * hidden + j] += probability[i] * down[j];
      }
    }
    return y;
  }
};

struct Inputs {
  std::vector<float> x, logits;
  Inputs(Philox& random, int64_t m, int64_t experts, int64_t hidden)
      : x(random_floats(random, m * (hidden + 5))), logits(random_floats(random, m * experts)) {}
};

}  // namespace

TEST_CASE("experts give what each of them gives alone, weighted by the router") {
  Philox random(1);
  for (const auto& sizes : {std::pair(256, 512), std::pair(64, 32)}) {
    const int64_t hidden = sizes.first, intermediate = sizes.second;
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4_K}) {
      if (!has_panels(dtype, hidden) || !has_panels(dtype, intermediate)) continue;
      if (hidden % info(dtype).block_elements || intermediate % info(dtype).block_elements) {
        continue;
      }
      const Layer rows(random, dtype, Layout::kRows, 5, hidden, intermediate);
      for (int64_t m : {1, 3, 9, 24, 90}) {
        const Inputs in(random, m, 5, hidden);
        const Problem problem{rows, m, 2, m % 2 == 1, in.x, in.logits};
        const std::vector<double> expected = problem.expected();
        INFO(name(dtype) << " m = " << m << ", " << hidden);
        on_every_target([&] {
          const auto one = problem.run(1);
          CHECK(relative_error(one, expected) < (is_quantized(dtype) ? 2e-2 : 1e-5));
          CHECK(same_bits(problem.run(3), one));
        });
      }
    }
  }
}

TEST_CASE("experts add their biases and clamp, and give the bits that a token gets alone") {
  Philox random(5);
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kQ8_0}) {
    for (const Layout layout : {Layout::kRows, Layout::kPanels}) {
      const int64_t hidden = 256, intermediate = 512, experts = 5;
      const Layer layer(random, dtype, layout, experts, hidden, intermediate);
      const auto numbers = random_floats(random, experts * intermediate);
      const std::array<ExpertBias, 3> biases = {ExpertBias{numbers.data(), intermediate},
                                                {numbers.data() + 1, intermediate - 1},
                                                {numbers.data() + 2, hidden}};
      for (int64_t m : {1, 3, 8, 24, 90}) {
        const Inputs in(random, m, experts, hidden);
        const Problem problem{layer, m, 2, true, in.x, in.logits, biases, {1.702f, 0.7f}};
        std::vector<double> expected;
        if (layout == Layout::kRows) expected = problem.expected();
        INFO(name(dtype) << " m = " << m);
        on_every_target([&] {
          const auto all = problem.run(1);
          CHECK(same_bits(problem.run(3), all));
          if (layout == Layout::kRows) {
            CHECK(relative_error(all, expected) < (is_quantized(dtype) ? 2e-2 : 1e-5));
          }
          if (m > kFewRows) return;
          for (int64_t t = 0; t < m; ++t) {
            const std::vector<float> x(in.x.begin() + t * (hidden + 5),
                                       in.x.begin() + (t + 1) * (hidden + 5));
            const std::vector<float> logits(in.logits.begin() + t * experts,
                                            in.logits.begin() + (t + 1) * experts);
            const std::vector<float> row(all.begin() + t * hidden, all.begin() + (t + 1) * hidden);
            CHECK(same_bits(Problem{layer, 1, 2, true, x, logits, biases, problem.clamped}.run(2),
                            row));
          }
        });
      }
    }
  }
}

TEST_CASE("experts in panels give the bits that a token gets alone") {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K}) {
    INFO(name(dtype));
    Philox random(2), again(2);
    const Layer panels(random, dtype, Layout::kPanels, 6, 256, 256);
    const Layer later(again, dtype, Layout::kRowsAsPanels, 6, 256, 256);
    const int64_t m = 24;
    const Inputs in(random, m, 6, 256);
    on_every_target([&] {
      const auto all = Problem{panels, m, 3, true, in.x, in.logits}.run(2);
      CHECK(same_bits(Problem{later, m, 3, true, in.x, in.logits}.run(1), all));
      for (int64_t t = 0; t < m; ++t) {
        const std::vector<float> x(in.x.begin() + t * 261, in.x.begin() + (t + 1) * 261);
        const std::vector<float> logits(in.logits.begin() + t * 6, in.logits.begin() + t * 6 + 6);
        const std::vector<float> row(all.begin() + t * 256, all.begin() + (t + 1) * 256);
        CHECK(same_bits(Problem{panels, 1, 3, true, x, logits}.run(3), row));
      }
    });
  }
}

TEST_CASE("experts are chosen by their logits, the first of equal ones") {
  const float logits[] = {1, 3, 2, 3, -1};
  int32_t chosen[5];
  float p[5];
  choose_experts(logits, 5, 2, true, chosen, p);
  CHECK((chosen[0] == 1 && chosen[1] == 3));
  CHECK((p[0] == 0.5f && p[1] == 0.5f));
  choose_experts(logits, 5, 1, false, chosen, p);
  CHECK(chosen[0] == 1);
  CHECK(p[0] == Approx(1 / (2 + std::exp(-1.0) + std::exp(-2.0) + std::exp(-4.0))));
  choose_experts(logits, 5, 5, true, chosen, p);
  CHECK(chosen[4] == 4);
  CHECK(p[0] + p[1] + p[2] + p[3] + p[4] == Approx(1));
}

TEST_CASE("a router that gives no numbers makes its token's result no number, and only that") {
  Philox random(3);
  const Layer layer(random, DType::kQ8_0, Layout::kPanels, 4, 64, 32);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (int64_t m : {2, 30}) {
      Inputs in(random, m, 4, 64);
      in.logits[4 + 2] = bad;  // of the second token
      const auto y = Problem{layer, m, 2, true, in.x, in.logits}.run(2);
      for (int64_t i = 0; i < m * 64; ++i) CHECK(std::isnan(y[i]) == (i / 64 == 1));
    }
  }
}
