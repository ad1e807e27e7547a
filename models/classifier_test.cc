// One test for every classifier: walks the registry.
#include "models/classifier.h"

#include "lib/autograd/autograd.h"
#include "lib/base/error.h"
#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/nn/training_scope.h"
#include "lib/ops/loss.h"

using namespace lumen;
using graph::Tensor;

namespace {

Tensor random_images(const io::Json& config, int64_t batch, uint64_t seed) {
  Shape shape = {batch};
  for (int64_t extent : models::input_shape(config)) shape.push_back(extent);
  Array array = Array::zeros(DType::kF32, shape);
  Philox random(seed);
  for (float& x : array.as_mutable<float>()) x = static_cast<float>(random.normal());
  return graph::constant(array);
}

template <typename Body>
void for_every_classifier(Body body) {
  for (const models::ClassifierDef* def : models::classifier_list()) {
    for (const io::Json& config : def->tiny_configs()) {
      INFO(def->name << " " << config.dump());
      const auto parameters = nn::Parameters::trainable(3);
      const auto model = models::make_classifier(config, parameters);
      CHECK(parameters.check().empty());
      body(config, *model, parameters);
    }
  }
}

}  // namespace

TEST_CASE("every classifier gives one row per sample, whatever else is in the batch") {
  for_every_classifier(
      [](const io::Json& config, const models::Classifier& model, const nn::Parameters&) {
        const Tensor x = random_images(config, 4, 1);
        const Tensor both = model.logits(x);
        CHECK(both.shape() == Shape({4, models::num_labels(config)}));
        const Tensor one = model.logits(graph::contiguous(graph::slice(x, 0, 1, 2)));
        const auto all = both.eval().as<float>();
        const auto single = one.eval().as<float>();
        for (size_t i = 0; i < single.size(); ++i) {
          CHECK(single[i] == Approx(all[single.size() + i]).margin(1e-5));
        }
      });
}

TEST_CASE("20 steps of gradient descent lower the loss of every classifier") {
  for_every_classifier([](const io::Json& config, const models::Classifier& model,
                          const nn::Parameters& parameters) {
    const Tensor x = random_images(config, 6, 2);
    std::vector<int32_t> labels;
    for (int i = 0; i < 6; ++i) labels.push_back(i % static_cast<int>(models::num_labels(config)));
    const Tensor y = graph::constant(Array::from<int32_t>(labels, {6}));
    const int32_t key[] = {1, 0};
    const nn::TrainingScope training(graph::constant(Array::from<int32_t>(key, {2})));
    double first = 0, last = 0;
    for (int step = 0; step < 20; ++step) {
      const Tensor loss = ops::cross_entropy(model.logits(x), y);
      autograd::backward(loss);
      last = loss.item();
      if (step == 0) first = last;
      for (const auto& [name, tensor] : parameters.named_parameters()) {
        Array value = tensor.node()->value;
        const Array gradient = autograd::grad(tensor).eval();
        const auto to = value.as_mutable<float>();
        const auto g = gradient.as<float>();
        for (size_t i = 0; i < to.size(); ++i) to[i] -= 0.1f * g[i];
        autograd::zero_grad(tensor);
      }
    }
    CHECK(last < 0.95 * first);
  });
}

TEST_CASE("an input that a classifier cannot take is named") {
  const auto parameters = nn::Parameters::trainable(1);
  const io::Json config = {{"model_type", "lenet"}, {"input_shape", {10}}, {"num_labels", 2}};
  CHECK(testing::contains(
      testing::refusal(ErrorKind::kMalformed, [&] { models::make_classifier(config, parameters); }),
      "lenet needs images [channels, height, width] of at least 16×16; found [10]"));
}

TEST_CASE("an activation means the same in a classifier as everywhere") {
  const auto parameters = nn::Parameters::trainable(4);
  io::Json config = {
      {"model_type", "mlp"}, {"input_shape", {5}}, {"num_labels", 3}, {"hidden_sizes", {7}}};
  config["hidden_act"] = "gelu";
  const Tensor x = random_images(config, 2, 5);
  const auto got = models::make_classifier(config, parameters)->logits(x).eval();
  const auto& all = parameters.named();
  const Tensor hidden = ops::gelu(ops::linear(x, all.at("fc1.weight"), all.at("fc1.bias")));
  const auto want = ops::linear(hidden, all.at("fc2.weight"), all.at("fc2.bias")).eval();
  for (size_t i = 0; i < 6; ++i) {
    CHECK(got.as<float>()[i] == Approx(want.as<float>()[i]).epsilon(1e-6));
  }
  config["hidden_act"] = "gel";
  CHECK(testing::contains(testing::refusal(ErrorKind::kUnsupported,
                                           [&] { models::make_classifier(config, parameters); }),
                          "nearest: gelu"));
}
