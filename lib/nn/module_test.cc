#include "lib/nn/module.h"

#include <cmath>

#include "lib/autograd/autograd.h"
#include "lib/base/testing.h"
#include "lib/nn/activation.h"
#include "lib/nn/dropout.h"
#include "lib/nn/layers.h"
#include "lib/nn/normalization.h"
#include "lib/nn/recurrent.h"

using namespace lumen;
using nn::Parameters;
using nn::Tensor;
using testing::contains;
using testing::refusal;

namespace {

Tensor key(int32_t seed, int32_t step) {
  const int32_t values[] = {seed, step};
  return graph::constant(Array::from<int32_t>(values, {2}));
}

Tensor ones(const Shape& shape) {
  return graph::constant(std::vector<float>(shape.elements(), 1.0f), shape);
}

std::vector<float> values(const Tensor& x) {
  const Array array = x.eval();
  const auto span = array.as<float>();
  return {span.begin(), span.end()};
}

}  // namespace

TEST_CASE("train and eval of one module change only what is inside it") {
  const auto parameters = Parameters::trainable(1);
  nn::Sequential a(parameters / "a"), b(parameters / "b");
  a.add<nn::Dropout>(0.5);
  nn::Sequential& inner = a.add<nn::Sequential>();
  inner.add<nn::BatchNorm1d>(3);
  b.add<nn::Dropout>(0.5);
  CHECK(a.training());
  a.eval();
  CHECK_FALSE(a[size_t{0}].training());
  CHECK_FALSE(inner[size_t{0}].training());
  CHECK(b.training());
  CHECK(b[size_t{0}].training());
  inner.train();
  CHECK(inner[size_t{0}].training());
  CHECK_FALSE(a.training());
  CHECK_FALSE(a[size_t{0}].training());

  const Tensor x = ones({2, 3});
  a.eval(), b.eval();
  CHECK(values(b(x)) == values(x));
  b.train();
  CHECK(values(b(ones({100}))) == values(ones({100})));  // no training outside a scope
  const nn::TrainingScope step(key(1, 0));
  CHECK(values(a(x)) == values(a(x)));
  CHECK(values(b(ones({100}))) != values(ones({100})));
}

TEST_CASE("containers name and run their parts") {
  const auto parameters = Parameters::trainable(1);
  nn::Sequential net(parameters / "net");
  net.add<nn::Linear>(4, 3, true);
  net.add<nn::Activation>("relu");
  nn::Residual& residual = net.add<nn::Residual>();
  residual.add<nn::Linear>(3, 3, false);
  nn::ModuleList list(parameters / "list");
  const nn::Linear& second = (list.add<nn::Linear>(2, 2, false), list.add<nn::Linear>(2, 5, false));
  nn::ModuleDict dict(parameters / "dict");
  dict.add<nn::Linear>("head", 2, 6, false);

  std::vector<std::string> names;
  for (const auto& item : parameters.named_parameters()) names.push_back(item.first);
  CHECK(names == std::vector<std::string>{"dict.head.weight", "list.0.weight", "list.1.weight",
                                          "net.0.bias", "net.0.weight", "net.2.0.weight"});
  const Tensor x = ones({2, 4}), pair = ones({1, 2});
  CHECK(net(x).shape() == Shape({2, 3}));
  CHECK(values(list[1](pair)) == values(second(pair)));
  CHECK(dict["head"](pair).shape() == Shape({1, 6}));
  const Tensor h = ones({1, 3});
  const auto w = parameters.named().at("net.2.0.weight");
  CHECK(values(residual(h)) == values(ops::add(h, ops::linear(h, w))));
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { dict["tail"]; }), "no module 'tail'"));
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { list[2]; }), "the container has 2"));
  CHECK(contains(refusal(ErrorKind::kUnsupported, [&] { list(x); }), "no forward"));
}

TEST_CASE("dropout draws streams in order, only inside a scope, and keeps the mean") {
  const nn::Dropout dropout(0.25);
  const Tensor x = ones({10'000});
  CHECK(values(dropout(x)) == values(x));
  CHECK(contains(refusal(ErrorKind::kMalformed, [] { nn::Dropout bad(1.5); }), "expected 0 to 1"));
  std::vector<float> first, second;
  {
    const nn::TrainingScope random(key(3, 4));
    first = values(dropout(x)), second = values(dropout(x));
  }
  CHECK(first != second);
  double sum = 0;
  for (const float value : first) {
    sum += value;
    CHECK((value == 0 || value == 1 / 0.75f));
  }
  CHECK(sum / 10'000 == Approx(1).margin(0.03));
  const nn::TrainingScope again(key(3, 4));
  CHECK(values(dropout(x)) == first);
  CHECK(values(dropout(x)) == second);
  const nn::TrainingScope next_step(key(3, 5));
  CHECK(values(dropout(x)) != first);
}

TEST_CASE("a recomputed body draws the same numbers, in the same precision, and updates once") {
  const auto run = [](bool recompute) {
    const auto parameters = Parameters::trainable(1);
    const nn::Linear linear(parameters / "fc", 6, 8, true);
    const nn::Dropout dropout(0.5);
    const nn::BatchNorm1d norm(parameters / "norm", 8);
    const Tensor x = autograd::variable(Array::from<float>(values(ones({4, 6})), {4, 6}), "x");
    const auto body = [&](std::span<const Tensor> in) {
      return dropout(norm(dropout(ops::tanh(linear(dropout(in[0]))))));
    };
    const Tensor wanted[] = {x, linear.weight, linear.bias};
    Tensor y;
    {
      const nn::TrainingScope step(key(1, 2));
      const graph::AutocastScope low(DType::kBF16);
      y = recompute ? nn::checkpoint(body, {&x, 1}) : body({&x, 1});
      y = ops::mul(y, dropout(ones(y.shape())));
      CHECK(step.updates().size() == 3);
    }
    std::vector<Tensor> results = autograd::gradients({&y, 1}, {}, wanted);
    results.push_back(y);
    std::vector<std::vector<float>> all;
    for (const Tensor& result : results) all.push_back(values(result));
    return all;
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("recomputation moves no statistics, also where every operation is computed at once") {
  const graph::EagerScope eager;
  const auto parameters = Parameters::trainable(1);
  const nn::BatchNorm1d norm(parameters, 3);
  const nn::TrainingScope step(key(1, 0));
  const Tensor x = autograd::variable(Array::from<float>(values(ones({4, 3})), {4, 3}), "x");
  const auto body = [&](std::span<const Tensor> in) { return norm(in[0]); };
  const Tensor y = nn::checkpoint(body, {&x, 1});
  autograd::gradients({&y, 1}, {}, {&x, 1});
  CHECK(parameters.state_dict().at("num_batches_tracked").as<int64_t>()[0] == 1);
}

TEST_CASE("batch norm moves its statistics in training only, and names them as PyTorch") {
  const auto parameters = Parameters::trainable(1);
  nn::BatchNorm1d norm(parameters, 3);
  const nn::TrainingScope step(key(1, 0));
  norm.eval();
  norm(ones({4, 3}));
  CHECK(step.updates().empty());
  norm.train();
  for (int64_t batch = 1; batch <= 3; ++batch) {
    const nn::TrainingScope one(key(1, 0));
    norm(ones({4, 3}));
    REQUIRE(one.updates().size() == 3);
    for (const Tensor& update : one.updates()) update.eval();
    CHECK(parameters.state_dict().at("num_batches_tracked").as<int64_t>()[0] == batch);
  }
  std::vector<std::string> names;
  for (const auto& item : parameters.state_dict()) names.push_back(item.first);
  CHECK(names == std::vector<std::string>{"bias", "num_batches_tracked", "running_mean",
                                          "running_var", "weight"});
}

TEST_CASE("running statistics forget a large value as far as they are told to") {
  const auto parameters = Parameters::trainable(1);
  const nn::BatchNorm1d norm(parameters, 1, {.momentum = 1});
  for (const float scale : {0x1p20f, 0x1p-10f}) {
    const nn::TrainingScope step(key(1, 0));
    norm(graph::constant(std::vector<float>{scale, 3 * scale}, {2, 1}));
    for (const Tensor& update : step.updates()) update.eval();
  }
  CHECK(parameters.state_dict().at("running_mean").as<float>()[0] == 0x1p-9f);
  CHECK(parameters.state_dict().at("running_var").as<float>()[0] == 0x1p-19f);
}

TEST_CASE("recurrent layers drop between layers only while training, and start as PyTorch's") {
  const auto parameters = Parameters::trainable(1);
  nn::Lstm lstm(parameters, 5, 100, {.layers = 2, .dropout = 0.5});
  const Tensor x = ones({2, 3, 5});
  const nn::TrainingScope step(key(1, 0));
  CHECK(values(lstm(x)) != values(lstm(x)));
  lstm.eval();
  CHECK(values(lstm(x)) == values(lstm(x)));
  for (const auto& [name, parameter] : parameters.named_parameters()) {
    INFO(name);
    double squares = 0, largest = 0;
    for (const double value : values(parameter)) {
      squares += value * value;
      largest = std::max(largest, std::fabs(value));
    }
    const auto count = static_cast<double>(parameter.shape().elements());
    CHECK(largest <= 0.1);
    CHECK(std::sqrt(squares / count) == Approx(0.1 / std::sqrt(3.0)).epsilon(0.1));
  }
}
