#include "lib/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "lib/base/testing.h"
#include "lib/io/json.h"
#include "lib/io/safetensors.h"

using namespace lumen;
using optim::NamedParameter;
using optim::OptimizerConfig;
using testing::contains;
using testing::refusal;

namespace {

const std::string kNames[] = {"fc.weight", "conv.weight", "fc.bias"};

struct Golden {
  io::Json document = io::read_json(testing::source_path("testdata/goldens/optim.json"));
  NamedArrays arrays =
      io::read_safetensors(testing::source_path("testdata/goldens/optim.safetensors"))->arrays();

  std::vector<NamedParameter> start() const {
    std::vector<NamedParameter> parameters;
    for (const std::string& name : kNames) {
      const Array& from = arrays.at("start/" + name);
      parameters.push_back({name, Array::from<float>(from.as<float>(), from.shape())});
    }
    return parameters;
  }
  std::vector<Array> gradients(int64_t t) const {
    std::vector<Array> result;
    for (const std::string& name : kNames) {
      const Array& all = arrays.at("gradients/" + name);
      const int64_t size = all.elements() / all.shape()[0];
      Shape shape;
      for (int axis = 1; axis < all.shape().rank(); ++axis) shape.push_back(all.shape()[axis]);
      result.push_back(Array::from<float>(all.as<float>().subspan(t * size, size), shape));
    }
    return result;
  }
};

const Golden& golden() {
  static const Golden value;
  return value;
}

OptimizerConfig config_of(const io::Json& json) {
  OptimizerConfig c;
  for (const auto& item : json.items()) {
    const std::string& key = item.key();
    const io::Json& value = item.value();
    if (key == "type") c.type = value;
    if (key == "maximize") c.maximize = value;
    if (key == "weight_decay") c.weight_decay = value;
    if (key == "betas") c.betas = value.get<std::vector<double>>();
    if (key == "eps") c.eps = value.get<double>();
    if (key == "momentum") c.momentum = value.get<double>();
    if (key == "dampening") c.dampening = value.get<double>();
    if (key == "nesterov") c.nesterov = value.get<bool>();
    if (key == "amsgrad") c.amsgrad = value.get<bool>();
    if (key == "alpha") c.alpha = value.get<double>();
    if (key == "centered") c.centered = value.get<bool>();
    if (key == "lr_decay") c.lr_decay = value.get<double>();
    if (key == "initial_accumulator") c.initial_accumulator = value.get<double>();
    if (key == "beta2_decay") c.beta2_decay = value.get<double>();
    if (key == "clip_threshold") c.clip_threshold = value.get<double>();
    if (key == "scale_eps") c.scale_eps = value.get<double>();
    if (key == "newton_schulz_steps") c.newton_schulz_steps = value.get<int64_t>();
    if (key == "adjust_lr") c.adjust_lr = value.get<std::string>();
    if (key == "no_decay") c.no_decay = value.get<std::vector<std::string>>();
    if (key != "groups") continue;
    for (const io::Json& group : value) {
      c.groups.push_back({group["match"], group["lr_factor"], group["weight_decay"].get<double>()});
    }
  }
  return c;
}

// max |got − want| / max |want|.
double relative_error(const Array& got, const Array& want) {
  double difference = 0, largest = 0;
  const auto a = got.as<float>();
  const auto b = want.as<double>();
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < b.size(); ++i) {
    difference = std::max(difference, std::fabs(a[i] - b[i]));
    largest = std::max(largest, std::fabs(b[i]));
  }
  return difference / largest;
}

double rate(double base, int64_t t, int64_t steps) {
  return base * (1 - 0.5 * static_cast<double>(t) / static_cast<double>(steps));
}

std::vector<float> values(const Array& array) {
  const auto span = array.as<float>();
  return {span.begin(), span.end()};
}

}  // namespace

TEST_CASE("fifty steps of every optimizer follow PyTorch in float64") {
  ThreadPool pool(2);
  const io::Json& document = golden().document;
  const int64_t steps = document["steps"];
  std::vector<std::string> seen;
  for (const io::Json& item : document["optimizers"]) {
    const std::string label = item["label"];
    const OptimizerConfig config = config_of(item["config"]);
    seen.push_back(config.type);
    auto parameters = golden().start();
    const auto optimizer = optim::make_optimizer(config, parameters);
    for (int64_t t = 0; t < steps; ++t) {
      optimizer->step(pool, golden().gradients(t), rate(item["lr"], t, steps), item["scale"]);
      for (const NamedParameter& p : parameters) {
        auto want = golden().arrays.find(str(label, "/", t + 1, "/", p.name));
        if (want == golden().arrays.end()) continue;
        INFO(label << " step " << t + 1 << " " << p.name);
        CHECK(relative_error(p.value, want->second) < 1e-6);
      }
    }
  }
  for (const std::string& type : optim::optimizer_types()) {
    INFO(type << " has no golden");
    CHECK(std::ranges::find(seen, type) != seen.end());
  }
}

TEST_CASE("an optimizer goes on from its state with the same bits, on any number of threads") {
  ThreadPool one(1), three(3);
  for (const io::Json& item : golden().document["optimizers"]) {
    INFO(item["label"]);
    const OptimizerConfig config = config_of(item["config"]);
    auto straight = golden().start();
    const auto optimizer = optim::make_optimizer(config, straight);
    for (int64_t t = 0; t < 10; ++t) optimizer->step(one, golden().gradients(t), 0.01);

    auto before = golden().start();
    const auto first = optim::make_optimizer(config, before);
    for (int64_t t = 0; t < 5; ++t) first->step(three, golden().gradients(t), 0.01);
    const auto second = optim::make_optimizer(config, before);
    second->load_state(first->state());
    for (int64_t t = 5; t < 10; ++t) second->step(three, golden().gradients(t), 0.01);
    for (size_t i = 0; i < straight.size(); ++i) {
      CHECK(values(straight[i].value) == values(before[i].value));
    }
    CHECK(second->state()["step"].as<int64_t>()[0] == 10);
  }
}

TEST_CASE("a state that does not fit is refused and changes nothing") {
  ThreadPool pool(1);
  auto parameters = golden().start();
  const auto optimizer = optim::make_optimizer({.type = "adam"}, parameters);
  optimizer->step(pool, golden().gradients(0), 0.01);
  NamedArrays state = optimizer->state();
  const auto before = values(state["fc.bias.exp_avg"]);
  state["fc.bias.exp_avg"] = Array::zeros(DType::kF32, {9});
  state["fc.weight.exp_avg"] = Array::zeros(DType::kF32, {6, 8});
  state["extra"] = Array::zeros(DType::kF32, {1});
  state.erase("step");
  const std::string message = refusal(ErrorKind::kMismatch, [&] { optimizer->load_state(state); });
  CHECK(contains(message, "missing: 'step'"));
  CHECK(contains(message, "unexpected: 'extra'"));
  CHECK(contains(message, "'fc.weight.exp_avg' [6, 8] instead of [8, 6]"));
  CHECK(values(optimizer->state()["fc.bias.exp_avg"]) == before);
  const auto sgd = optim::make_optimizer({.type = "sgd"}, golden().start());
  CHECK(contains(refusal(ErrorKind::kMismatch, [&] { sgd->load_state(optimizer->state()); }),
                 "unexpected"));
  NamedArrays integers = optimizer->state();
  integers["fc.bias.exp_avg"] = Array::zeros(DType::kI32, {9});
  CHECK(contains(refusal(ErrorKind::kMismatch, [&] { optimizer->load_state(integers); }),
                 "has type i32, expected f32"));
}

TEST_CASE("mistakes in an optimizer's configuration are named") {
  auto message = [](const OptimizerConfig& config) {
    return refusal(ErrorKind::kMalformed, [&] { optim::make_optimizer(config, golden().start()); });
  };
  CHECK(contains(message({.type = "adamv"}), "nearest: adam"));
  CHECK(contains(message({.type = "adam", .momentum = 0.9}),
                 "adam has no option momentum; it has: betas, eps, amsgrad"));
  CHECK(contains(message({.type = "adam", .betas = {0.9}}), "1 numbers, expected 2"));
  CHECK(contains(message({.type = "adam", .betas = {0.9, 1}}), "beta is 1"));
  CHECK(contains(message({.weight_decay = -1}), "weight_decay is -1, expected 0 or more"));
  CHECK(contains(message({.type = "sgd", .nesterov = true}), "nesterov needs a momentum"));
  CHECK(contains(message({.type = "muon", .adjust_lr = "x"}), "expected original"));
  CHECK(contains(message({.groups = {{"layer.*", 1, {}}}}), "'layer.*' is of no parameter"));
}

TEST_CASE("parameters and gradients that do not fit are named") {
  auto message = [](auto&& body) { return refusal(ErrorKind::kMalformed, body); };
  const Array vector = Array::zeros(DType::kF32, {2});
  const Array half = Array::zeros(DType::kF16, {2}), three = Array::zeros(DType::kF32, {3});
  CHECK(contains(message([&] {
                   optim::make_optimizer({}, {{"w", half}});
                 }),
                 "'w' has type f16, expected f32"));
  CHECK(contains(message([&] {
                   optim::make_optimizer({}, {{"w", Array()}});
                 }),
                 "'w' has no value"));
  CHECK(contains(message([&] {
                   optim::make_optimizer({}, {{"w", vector}, {"w", three}});
                 }),
                 "two parameters are named 'w'"));
  const auto optimizer = optim::make_optimizer({}, {{"w", vector}});
  ThreadPool pool(1);
  auto step = [&](const std::vector<Array>& gradients) {
    return message([&] { optimizer->step(pool, gradients, 0.1); });
  };
  CHECK(contains(step({}), "0 gradients for 1 parameters"));
  CHECK(contains(step({three}), "of 'w' is f32 [3], expected f32 [2]"));
  CHECK(contains(step({half}), "of 'w' is f16 [2], expected f32 [2]"));
  CHECK(contains(step({Array()}), "of 'w' is missing, expected f32 [2]"));
  CHECK(optimizer->state().at("step").as<int64_t>()[0] == 0);
}

TEST_CASE("a mean that keeps nothing of a large gradient is the new one exactly") {
  const std::map<std::string, OptimizerConfig> configs = {
      {"w.row_var", {.type = "adafactor", .beta2_decay = 0}},
      {"w.col_var", {.type = "adafactor", .beta2_decay = 0}},
      {"b.variance", {.type = "adafactor", .beta2_decay = 0}},
      {"w.momentum_buffer", {.type = "muon", .momentum = 0}}};
  ThreadPool pool(1);
  for (const auto& [name, config] : configs) {
    INFO(name);
    const auto optimizer = optim::make_optimizer(
        config, {{"w", Array::zeros(DType::kF32, {1, 1})}, {"b", Array::zeros(DType::kF32, {1})}});
    for (const float g : {0x1p40f, 0x1p-30f}) {
      const Array matrix = Array::from<float>(std::span(&g, 1), {1, 1});
      const Array vector = Array::from<float>(std::span(&g, 1), {1});
      optimizer->step(pool, std::vector{matrix, vector}, 0.1);
    }
    const bool square = name != "w.momentum_buffer";
    CHECK(optimizer->state().at(name).as<float>()[0] == (square ? 0x1p-60f : 0x1p-30f));
  }
}

TEST_CASE("muon leaves tables to AdamW") {
  std::vector<NamedParameter> parameters = {
      {"model.embed_tokens.weight", Array::zeros(DType::kF32, {4, 3})},
      {"model.layers.0.q_proj.weight", Array::zeros(DType::kF32, {4, 3})}};
  const auto state = optim::make_optimizer({.type = "muon"}, parameters)->state();
  CHECK(state.count("model.embed_tokens.weight.exp_avg") == 1);
  CHECK(state.count("model.layers.0.q_proj.weight.momentum_buffer") == 1);
}
