// Gradients of the row operations, losses and dropout: against finite differences in double.
#include <cmath>
#include <functional>

#include "lib/autograd/autograd.h"
#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/graph/reference_backend.h"
#include "lib/ops/loss.h"

using namespace lumen;
using graph::Tensor;

namespace {

using Inputs = std::span<const Tensor>;
using Build = std::function<Tensor(Inputs)>;

// Multiples of 2⁻¹⁰ in [low, high), so that x ± k/64 are floats too.
Array grid_values(const Shape& shape, double low, double high, Philox& random) {
  Array array = Array::zeros(DType::kF32, shape);
  for (float& x : array.as_mutable<float>()) {
    x = static_cast<float>(std::floor((low + (high - low) * random.uniform()) * 1024) / 1024);
  }
  return array;
}

// Σ build(inputs) · probe, with fixed numbers as probe.
Tensor probed(const Tensor& y) {
  Philox random(99);
  const Tensor probe = graph::constant(grid_values(y.shape(), -1, 1, random));
  return ops::reduce(ops::mul(y, probe), ops::Reduction::kSum);
}

// The gradients of build with respect to variables of these shapes with values in [low, high):
// relative error of each gradient, as a vector, below 1e-6.
void check_gradients(const std::string& what, const std::vector<Shape>& shapes, const Build& build,
                     double low = -2, double high = 2) {
  INFO(what);
  Philox random(31);
  std::vector<Array> arrays;
  std::vector<Tensor> variables;
  for (const Shape& shape : shapes) {
    arrays.push_back(grid_values(shape, low, high, random));
    variables.push_back(autograd::variable(arrays.back()));
  }
  const Tensor output = probed(build(variables));
  const std::vector<Tensor> gradients = autograd::gradients({&output, 1}, {}, variables);
  auto value_at = [&](size_t input, int64_t i, double step) {
    std::vector<Tensor> constants;
    for (const Array& array : arrays) constants.push_back(graph::constant(array));
    Array moved = Array::from<float>(arrays[input].as<float>(), arrays[input].shape());
    moved.as_mutable<float>()[static_cast<size_t>(i)] += static_cast<float>(step);
    constants[input] = graph::constant(moved);
    return graph::evaluate_reference(probed(build(constants)))[0];
  };
  constexpr double kStep = 1.0 / 64;
  for (size_t input = 0; input < arrays.size(); ++input) {
    const std::vector<double> got = graph::evaluate_reference(gradients[input]);
    double error = 0, size = 0;
    for (int64_t i = 0; i < arrays[input].elements(); ++i) {
      auto difference = [&](int k) {
        return value_at(input, i, k * kStep) - value_at(input, i, -k * kStep);
      };
      // Error of order step⁸.
      const double want =
          (672 * difference(1) - 168 * difference(2) + 32 * difference(3) - 3 * difference(4)) /
          (840 * kStep);
      error += std::pow(got[static_cast<size_t>(i)] - want, 2);
      size += want * want;
    }
    INFO("input " << input << ": relative error " << std::sqrt(error / size));
    REQUIRE(std::sqrt(error) <= 1e-6 * std::sqrt(size));
  }
}

Tensor integers(std::vector<int32_t> values) {
  const auto n = static_cast<int64_t>(values.size());
  return graph::constant(Array::from<int32_t>(values, {n}));
}

}  // namespace

TEST_CASE("gradients of softmax and norms equal finite differences") {
  check_gradients("softmax", {{3, 5}}, [](Inputs in) { return ops::softmax(in[0]); });
  check_gradients("softmax, axis 0", {{3, 5}}, [](Inputs in) { return ops::softmax(in[0], 0); });
  check_gradients("log_softmax", {{3, 5}}, [](Inputs in) { return ops::log_softmax(in[0]); });
  check_gradients("rms_norm", {{2, 2, 5}, {5}},
                  [](Inputs in) { return ops::rms_norm(in[0], in[1], 1e-3); });
  check_gradients("layer_norm", {{2, 2, 5}, {5}, {5}},
                  [](Inputs in) { return ops::layer_norm(in[0], in[1], in[2], 1e-3); });
}

TEST_CASE("gradients of gradients equal finite differences") {
  // The gradient of Σ (d/dx)² for a few rows.
  auto second = [](auto op) {
    return [op](Inputs in) {
      std::vector<Tensor> inputs(in.begin(), in.end());
      if (!inputs[0].requires_grad()) {
        inputs[0] = autograd::variable(in[0].eval());
      }
      const Tensor y = probed(op(inputs));
      return autograd::gradients({&y, 1}, {}, {&inputs[0], 1}, true)[0];
    };
  };
  check_gradients("softmax", {{2, 4}}, second([](Inputs in) { return ops::softmax(in[0]); }));
  check_gradients("log_softmax", {{2, 4}},
                  second([](Inputs in) { return ops::log_softmax(in[0]); }));
  check_gradients("rms_norm", {{2, 4}, {4}},
                  second([](Inputs in) { return ops::rms_norm(in[0], in[1], 1e-2); }));
  check_gradients("layer_norm", {{2, 4}, {4}, {4}},
                  second([](Inputs in) { return ops::layer_norm(in[0], in[1], in[2], 1e-1); }));
  check_gradients("cross_entropy", {{2, 4}}, second([](Inputs in) {
                    return ops::cross_entropy(in[0], integers({1, 3}));
                  }));
}

TEST_CASE("gradients of losses equal finite differences") {
  const Tensor targets = integers({2, 0, -100, 4});
  for (auto reduction : {ops::Reduction::kNone, ops::Reduction::kMean, ops::Reduction::kSum}) {
    for (double smoothing : {0.0, 0.25}) {
      check_gradients("cross_entropy", {{4, 5}}, [&](Inputs in) {
        return ops::cross_entropy(in[0], targets,
                                  {.label_smoothing = smoothing, .reduction = reduction});
      });
      check_gradients("cross_entropy, probabilities", {{4, 5}, {4, 5}}, [&](Inputs in) {
        return ops::cross_entropy(in[0], in[1],
                                  {.label_smoothing = smoothing, .reduction = reduction});
      });
    }
    check_gradients("nll", {{4, 5}},
                    [&](Inputs in) { return ops::nll(in[0], targets, {.reduction = reduction}); });
  }
  const Tensor counts = graph::constant(std::vector<float>{1, 0.5, 0, 2}, {4});
  for (const double cap : {0.0, 1.5}) {
    check_gradients("linear_cross_entropy", {{4, 3}, {5, 3}}, [&](Inputs in) {
      return ops::linear_cross_entropy(in[0], in[1], targets, counts, cap);
    });
  }
  check_gradients(
      "log_sigmoid", {{7}}, [](Inputs in) { return ops::log_sigmoid(in[0]); }, 0.2, 3);
  check_gradients("mse", {{7}, {7}}, [](Inputs in) { return ops::mse_loss(in[0], in[1]); });
  check_gradients(
      "bce", {{7}, {7}}, [](Inputs in) { return ops::binary_cross_entropy(in[0], in[1]); }, 0.4,
      0.6);
  check_gradients(
      "bce_with_logits", {{7}, {7}, {7}},
      [](Inputs in) { return ops::binary_cross_entropy_with_logits(in[0], in[1], {}, in[2]); }, 0.2,
      2);
  check_gradients(
      "kl_div", {{7}, {7}}, [](Inputs in) { return ops::kl_div(in[0], in[1]); }, 1, 2);
  check_gradients("kl_div of logarithms", {{7}, {7}},
                  [](Inputs in) { return ops::kl_div(in[0], in[1], ops::Reduction::kMean, true); });
  // Away from the kinks: the second input lies where |x − y| is beyond (below) the bend.
  for (double shift : {3.0, -3.0}) {
    const Tensor far = graph::scalar(static_cast<float>(shift));
    check_gradients("l1", {{7}}, [&](Inputs in) { return ops::l1_loss(in[0], far); });
    check_gradients("huber beyond", {{7}}, [&](Inputs in) {
      return ops::huber_loss(in[0], far, ops::Reduction::kSum, 0.25);
    });
    check_gradients("smooth_l1 below", {{7}}, [&](Inputs in) {
      return ops::smooth_l1_loss(in[0], far, ops::Reduction::kSum, 9);
    });
  }
}

TEST_CASE("the gradient of dropout has the mask of dropout") {
  const Tensor key = integers({7, 3});
  check_gradients("dropout", {{3, 40}},
                  [&](Inputs in) { return ops::dropout(in[0], 0.5, key, 11); });
  const Tensor x = autograd::variable(Array::from<float>(std::vector<float>(500, 1), {500}));
  const Tensor y = ops::dropout(x, 0.25, key, 1);
  const Tensor ones = graph::expand(graph::scalar(1), Shape{500});
  const Tensor dx = autograd::gradients({&y, 1}, {&ones, 1}, {&x, 1})[0];
  const Array kept = y.eval(), gradient = dx.eval();
  const auto a = kept.as<float>(), b = gradient.as<float>();
  CHECK(std::equal(a.begin(), a.end(), b.begin()));
  CHECK(ops::dropout(x, 0, key, 1).node() == x.node());
  const std::string message =
      testing::refusal(ErrorKind::kMalformed, [&] { ops::dropout(x, 1.5, key, 1); });
  CHECK(testing::contains(message, "dropout"));
}

TEST_CASE("linear_cross_entropy is not differentiated twice") {
  const Tensor hidden = autograd::variable(Array::zeros(DType::kF32, {2, 3}));
  const Tensor weight = autograd::variable(Array::zeros(DType::kF32, {5, 3}));
  const Tensor counts = graph::constant(std::vector<float>{1, 1}, {2});
  const Tensor loss = ops::linear_cross_entropy(hidden, weight, integers({0, 1}), counts);
  CHECK(loss.item() == Approx(2 * std::log(5.0)));
  const Tensor dx = autograd::gradients({&loss, 1}, {}, {&hidden, 1}, true)[0];
  const Tensor total = ops::reduce(dx, ops::Reduction::kSum);
  const std::string message = testing::refusal(ErrorKind::kMalformed, [&] {
    autograd::gradients({&total, 1}, {}, {&hidden, 1});
  });
  CHECK(testing::contains(message, "linear_cross_entropy_gradient has no gradient"));
}
