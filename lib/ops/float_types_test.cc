// What kernels of float32 compute is computed in other types too: convolutions, pooling and the
// losses with class indices. lib/ops/golden_test.cc compares the values with PyTorch's.
#include <cmath>
#include <functional>

#include "lib/autograd/autograd.h"
#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/ops/loss.h"

using namespace lumen;
using graph::Tensor;

namespace {

using Inputs = std::span<const Tensor>;

struct Function {
  std::string name;
  std::vector<Shape> shapes;  // of the inputs, of which all have a gradient
  std::function<Tensor(Inputs)> of;
};

Tensor classes(std::vector<int64_t> values) {
  const auto n = static_cast<int64_t>(values.size());
  return graph::constant(Array::from<int64_t>(values, {n}));
}

// The functions under test, also of images and signals without a batch.
std::vector<Function> functions() {
  const ops::Conv2dOptions conv = {.stride = {2, 1}, .padding = {1, 2}, .groups = 2};
  const ops::PoolOptions pool = {
      .kernel = {3, 2}, .stride = {2, 2}, .padding = {1, 1}, .ceil_mode = true};
  const ops::Pool1dOptions signal = {.kernel = 3, .stride = 2, .padding = 1};
  return {
      {"conv2d",
       {{2, 4, 5, 4}, {6, 2, 3, 2}, {6}},
       [=](Inputs in) { return ops::conv2d(in[0], in[1], in[2], conv); }},
      {"conv1d", {{2, 7}, {3, 2, 3}}, [](Inputs in) { return ops::conv1d(in[0], in[1]); }},
      {"conv_transpose2d",
       {{4, 3, 5}, {4, 3, 3, 2}, {6}},
       [=](Inputs in) {
         return ops::conv_transpose2d(in[0], in[1], in[2], conv, {1, 0});
       }},
      {"conv_transpose1d",
       {{2, 2, 4}, {2, 3, 3}, {3}},
       [](Inputs in) { return ops::conv_transpose1d(in[0], in[1], in[2], {.stride = 2}); }},
      {"max_pool2d", {{1, 2, 6, 5}}, [=](Inputs in) { return ops::max_pool2d(in[0], pool); }},
      {"avg_pool2d", {{2, 6, 5}}, [=](Inputs in) { return ops::avg_pool2d(in[0], pool); }},
      {"adaptive_avg_pool2d",
       {{1, 2, 5, 4}},
       [](Inputs in) {
         return ops::adaptive_avg_pool2d(in[0], {2, 3});
       }},
      {"max_pool1d", {{2, 9}}, [=](Inputs in) { return ops::max_pool1d(in[0], signal); }},
      {"avg_pool1d", {{1, 2, 9}}, [=](Inputs in) { return ops::avg_pool1d(in[0], signal); }},
      {"layer_norm",
       {{2, 3, 4}, {4}, {4}},
       [](Inputs in) { return ops::layer_norm(in[0], in[1], in[2], 1e-3); }},
      {"rms_norm", {{3, 4}, {4}}, [](Inputs in) { return ops::rms_norm(in[0], in[1], 1e-3); }},
      {"group_norm",
       {{2, 4, 3}, {4}, {4}},
       [](Inputs in) { return ops::group_norm(in[0], 2, in[1], in[2], 1e-3); }},
      {"group_norm of many pixels",
       {{2, 4, 20}, {4}, {4}},
       [](Inputs in) { return ops::group_norm(in[0], 2, in[1], in[2], 1e-3); }},
      {"batch_norm",
       {{3, 2, 2, 2}, {2}, {2}},
       [](Inputs in) { return ops::batch_norm_training(in[0], in[1], in[2], 1e-3).y; }},
      {"batch_norm with statistics",
       {{3, 2, 2}, {2}, {2}},
       [](Inputs in) { return ops::batch_norm(in[0], in[1], in[2], {}, {}, 2); }},
      {"lstm",
       {{2, 3, 2}, {8, 2}, {8, 2}, {8}, {8}, {2, 2}, {2, 2}},
       [](Inputs in) {
         const auto y = ops::lstm(in[0], {in[1], in[2], in[3], in[4]}, in[5], in[6],
                                  {.lengths = classes({3, 1}), .reverse = true});
         const Tensor parts[] = {ops::flatten(y.out), ops::flatten(y.h), ops::flatten(y.c)};
         return ops::concat(parts, 0);
       }},
      {"gru",
       {{2, 3, 2}, {6, 2}, {6, 2}, {6}},
       [](Inputs in) {
         return ops::gru(in[0], {in[1], in[2], {}, in[3]}).out;
       }},
      {"rnn",
       {{1, 2, 3}, {2, 3}, {2, 2}},
       [](Inputs in) {
         return ops::rnn(in[0], {in[1], in[2], {}, {}}).h;
       }},
      {"cross_entropy",
       {{4, 3}},
       [](Inputs in) {
         return ops::cross_entropy(in[0], classes({2, 0, 1, 1}),
                                   {.ignore_index = 0, .label_smoothing = 0.1});
       }},
      {"cross_entropy of probabilities",
       {{4, 3}, {4, 3}},
       [](Inputs in) { return ops::cross_entropy(in[0], in[1], {.label_smoothing = 0.1}); }},
      {"nll",
       {{4, 3}},
       [](Inputs in) {
         return ops::nll(in[0], classes({2, 0, 1, 1}));
       }},
      {"huber_loss",
       {{4, 3}, {4, 3}},
       [](Inputs in) { return ops::huber_loss(in[0], in[1], ops::Reduction::kSum, 0.4); }},
      {"smooth_l1_loss",
       {{4, 3}, {4, 3}},
       [](Inputs in) { return ops::smooth_l1_loss(in[0], in[1], ops::Reduction::kMean, 0.3); }},
      {"mse_loss", {{4, 3}, {4, 3}}, [](Inputs in) { return ops::mse_loss(in[0], in[1]); }},
      {"l1_loss", {{4, 3}, {4, 3}}, [](Inputs in) { return ops::l1_loss(in[0], in[1]); }},
      {"binary_cross_entropy_with_logits",
       {{4, 3}, {4, 3}, {3}, {3}},
       [](Inputs in) { return ops::binary_cross_entropy_with_logits(in[0], in[1], in[2], in[3]); }},
      {"kl_div",
       {{4, 3}, {4, 3}},
       [](Inputs in) { return ops::kl_div(in[0], in[1], ops::Reduction::kBatchMean, true); }},
      {"linear_cross_entropy",
       {{4, 3}, {5, 3}},
       [](Inputs in) {
         const float weights[] = {1, 0, 0.5f, 2};
         return ops::linear_cross_entropy(in[0], in[1], classes({2, 9, 4, 1}),
                                          graph::constant(weights, {4}));
       }},
  };
}

std::vector<Array> random_arrays(const Function& function, DType dtype) {
  Philox random(7);
  std::vector<Array> arrays;
  for (const Shape& shape : function.shapes) {
    Array array = Array::zeros(DType::kF64, shape);
    for (double& x : array.as_mutable<double>()) x = 2 * random.uniform() - 1;
    arrays.push_back(graph::contiguous(graph::constant(array), dtype).eval());
  }
  return arrays;
}

// Σ y · probe, with fixed numbers as probe.
Tensor against_probe(const Tensor& y) {
  Philox random(99);
  Array probe = Array::zeros(DType::kF64, y.shape());
  for (double& x : probe.as_mutable<double>()) x = 2 * random.uniform() - 1;
  return ops::reduce(ops::mul(y, graph::constant(probe)), ops::Reduction::kSum);
}

// Of float64 variables: the against_probe value, its gradients against_probe, both as functions of
// the inputs.
Tensor value(const Function& function, Inputs in) {
  return against_probe(function.of(in));
}
Tensor slope(const Function& function, Inputs in) {
  const Tensor y = value(function, in);
  Tensor sum;
  for (const Tensor& g : autograd::gradients({&y, 1}, {}, in, true)) {
    sum = sum.defined() ? ops::add(sum, against_probe(ops::mul(g, g)))
                        : against_probe(ops::mul(g, g));
  }
  return sum;
}

using Scalar = Tensor (*)(const Function&, Inputs);

// The gradients of `of` against central differences in float64: relative error below 1e-6.
void check_differences(const Function& function, Scalar of) {
  const std::vector<Array> arrays = random_arrays(function, DType::kF64);
  std::vector<Tensor> variables;
  for (const Array& array : arrays) {
    variables.push_back(autograd::variable(Array::from<double>(array.as<double>(), array.shape())));
  }
  const Tensor y = of(function, variables);
  const std::vector<Tensor> gradients = autograd::gradients({&y, 1}, {}, variables);
  constexpr double kStep = 1e-4;
  for (size_t input = 0; input < arrays.size(); ++input) {
    REQUIRE(gradients[input].dtype() == DType::kF64);
    const Array found = gradients[input].eval();
    double error = 0, size = 0;
    for (int64_t i = 0; i < arrays[input].elements(); ++i) {
      auto at = [&](double step) {
        std::vector<Tensor> moved;
        for (const Array& array : arrays) {
          moved.push_back(
              autograd::variable(Array::from<double>(array.as<double>(), array.shape())));
        }
        Array there = moved[input].node()->value;
        there.as_mutable<double>()[static_cast<size_t>(i)] += step;
        return of(function, moved).item();
      };
      // Error of order step⁴.
      const double want =
          (8 * (at(kStep) - at(-kStep)) - (at(2 * kStep) - at(-2 * kStep))) / (12 * kStep);
      error += std::pow(found.as<double>()[static_cast<size_t>(i)] - want, 2);
      size += want * want;
    }
    INFO("input " << input << ": relative error " << std::sqrt(error / size));
    CHECK(std::sqrt(error) <= 1e-6 * std::sqrt(size) + 1e-12);
  }
}

}  // namespace

TEST_CASE("gradients and second derivatives in float64 are central differences") {
  for (const Function& function : functions()) {
    INFO(function.name);
    check_differences(function, value);
    if (function.name != "linear_cross_entropy") check_differences(function, slope);
  }
}

TEST_CASE("narrow types are computed in float32 and rounded once, with gradients in float32") {
  for (const Function& function : functions()) {
    for (DType dtype : {DType::kF16, DType::kBF16}) {
      INFO(function.name << " of " << name(dtype));
      const std::vector<Array> arrays = random_arrays(function, dtype);
      std::vector<Tensor> narrow, wide;
      for (const Array& array : arrays) {
        narrow.push_back(autograd::variable(array));
        wide.push_back(
            autograd::variable(graph::contiguous(graph::constant(array), DType::kF32).eval()));
      }
      const Tensor y = function.of(narrow), want = function.of(wide);
      CHECK(y.dtype() == dtype);
      CHECK(ops::allclose(y, graph::contiguous(want, dtype), 0, 0));
      const Tensor seed = ops::ones_like(want);
      const auto got = autograd::gradients({&y, 1}, {&seed, 1}, narrow);
      const auto expected = autograd::gradients({&want, 1}, {&seed, 1}, wide);
      for (size_t i = 0; i < got.size(); ++i) {
        CHECK(got[i].dtype() == DType::kF32);
        CHECK(ops::allclose(got[i], expected[i], 0, 0));
      }
    }
  }
}

TEST_CASE("mixed types are computed in the common one, and integers are refused") {
  const Tensor x = ops::ones({1, 2, 4, 4}, DType::kF16), w = ops::ones({3, 2, 3, 3}, DType::kF64);
  CHECK(ops::conv2d(x, w).dtype() == DType::kF64);
  CHECK(ops::conv2d(x, ops::ones({3, 2, 3, 3}, DType::kBF16)).dtype() == DType::kF32);
  const Tensor integers = ops::ones({1, 2, 4, 4}, DType::kI32);
  for (const auto& body : std::vector<std::function<void()>>{
           [&] { ops::conv2d(integers, w); },
           [&] {
             ops::max_pool2d(integers, {.kernel = {2, 2}});
           },
           [&] {
             ops::cross_entropy(ops::ones({2, 3}, DType::kI64), classes({0, 1}));
           }}) {
    CHECK(
        testing::contains(testing::refusal(ErrorKind::kMalformed, body), "cannot compute with i"));
  }
}

TEST_CASE("averages have no dilation") {
  const Tensor x = ops::ones({1, 1, 5, 5});
  CHECK(testing::contains(
      testing::refusal(ErrorKind::kMalformed,
                       [&] {
                         ops::avg_pool2d(x, {.kernel = {2, 2}, .dilation = {2, 1}});
                       }),
      "no dilation"));
}

TEST_CASE("rows of no class are NaN in float64 as in float32, and ignored ones 0") {
  for (DType dtype : {DType::kF32, DType::kF64}) {
    const Tensor x = ops::ones({3, 4}, dtype);
    for (bool log_probabilities : {false, true}) {
      const auto loss = log_probabilities ? ops::nll : ops::cross_entropy;
      const Tensor rows = graph::contiguous(
          loss(x, classes({7, -100, 1}), {.reduction = ops::Reduction::kNone}), DType::kF64);
      const Array array = rows.eval();
      const auto values = array.as<double>();
      CHECK(std::isnan(values[0]));
      CHECK(values[1] == 0);
      CHECK(std::isfinite(values[2]));
      CHECK(std::isnan(loss(x, classes({-100, -100, -100}), {}).item()));
    }
  }
}
