#include "lib/runtime/training/lora_training.h"

// PEFT's goldens, and what becomes of an adapter that is trained on.
#include <filesystem>

#include "lib/base/relative_error.h"
#include "lib/io/atomic_file.h"
#include "lib/io/safetensors.h"
#include "lib/io/write_safetensors.h"
#include "lib/optim/optimizer.h"
#include "lib/runtime/generation/language_model.h"
#include "lib/runtime/training/network.h"
#include "lib/runtime/training/text_recipes.h"
#include "lib/runtime/training/training_step.h"
#include "models/model.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;
using lumen::testing::relative_error;
using testing::kGpt2;
using testing::kLlama;
using testing::lora_recipe;
using testing::losses;
using testing::text_recipe;

// What is below `prefix` in the goldens.
NamedArrays below(const NamedArrays& arrays, const std::string& prefix) {
  NamedArrays found;
  for (const auto& [name, array] : arrays) {
    if (name.starts_with(prefix)) found[name.substr(prefix.size())] = array;
  }
  REQUIRE_FALSE(found.empty());
  return found;
}

// A directory with a model or an adapter.
std::string written(const NamedArrays& arrays, const char* weights, const char* file,
                    const io::Json& config) {
  const std::string place = lumen::testing::temporary_directory();
  io::write_safetensors(str(place, "/", weights), arrays);
  io::write_file_atomically(str(place, "/", file), config.dump());
  return place;
}

// The settings of a recipe that trains on with the adapter of this config.
std::vector<std::string> settings_of(const io::Json& config) {
  std::vector<std::string> settings = {str("lora.alpha=", config["lora_alpha"].dump()),
                                       str("lora.rank=", config["r"].dump()),
                                       str("lora.rslora=", config["use_rslora"].dump()),
                                       str("lora.dora=", config["use_dora"].dump())};
  if (config["modules_to_save"].is_array()) {
    settings.emplace_back("lora.modules_to_save=[\"lm_head\", \"norm\"]");
  }
  return settings;
}

// One step after the other of the model in `base` with the adapter in `start`.
class Training {
 public:
  Training(const std::string& base, const std::vector<std::string>& settings)
      : files_(io::open_model(base)) {
    const Recipe recipe =
        read_recipe({"l.toml", text_recipe(kLlama).directory, lora_recipe(base)}, settings);
    nn::LoraOptions options;
    parameters_ = frozen_with_additions(recipe, files_.config, files_.tensors, options);
    network_ = make_network(files_.config, parameters_, {});
    models::check_tensors(parameters_);
    std::vector<optim::NamedParameter> named;
    for (const auto& [name, tensor] : parameters_.named()) {
      if (!tensor.requires_grad()) continue;
      trained_.push_back({name, tensor});
      named.push_back({name, tensor.node()->value});
    }
    optimizer_ = optim::make_optimizer({.type = "adamw", .weight_decay = 0.01}, std::move(named));
  }

  // The mean loss, and what PEFT calls each gradient of it.
  double step(const Array& tokens, NamedArrays* gradients = nullptr) {
    const graph::PoolScope scope(pool_);
    const int64_t rows = tokens.shape()[0], length = tokens.shape()[1] - 1;
    const graph::Tensor all = graph::constant(tokens);
    data::Batch batch;
    batch.fields["tokens"] = graph::slice(all, 1, 0, length).eval();
    batch.fields["targets"] = graph::slice(all, 1, 1, length + 1).eval();
    if (!step_) step_.emplace(*network_, trained_, batch, StepOptions{});
    step_->run(pool_, batch, 0, 0);
    const double mean = 1.0 / static_cast<double>(rows * length);
    for (size_t i = 0; i < trained_.size() && gradients != nullptr; ++i) {
      const graph::Tensor g = graph::constant(step_->gradients()[i]);
      (*gradients)["base_model.model." + trained_[i].name] = ops::mul(g, mean).eval();
    }
    optimizer_->step(pool_, step_->gradients(), 1e-2, mean);
    return step_->loss_sum() * mean;
  }

  NamedArrays trained() const {
    NamedArrays result;
    for (const TrainedParameter& p : trained_) {
      result["base_model.model." + p.name] = p.tensor.node()->value;
    }
    return result;
  }

 private:
  ThreadPool pool_{2};
  io::ModelFiles files_;
  nn::Parameters parameters_ = nn::Parameters::from_checkpoint({});
  std::unique_ptr<Network> network_;
  std::vector<TrainedParameter> trained_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<TrainingStep> step_;
};

double largest_error(const NamedArrays& got, const NamedArrays& want) {
  double largest = 0;
  REQUIRE(got.size() == want.size());
  for (const auto& [name, array] : want) {
    INFO(name);
    REQUIRE(got.contains(name));
    const double error = relative_error(got.at(name).as<float>(), array.as<float>());
    CHECK(error < 2e-4);
    largest = std::max(largest, error);
  }
  return largest;
}

TEST_CASE("steps with additions, with magnitudes or not, and whole modules are PEFT's") {
  const auto path = [](const char* end) {
    return lumen::testing::source_path(str("testdata/goldens/lora_training.", end));
  };
  const io::Json goldens = io::read_json(path("json"));
  const NamedArrays arrays = io::read_safetensors(path("safetensors"))->arrays();
  for (const auto& [name, golden] : goldens["cases"].items()) {
    INFO(name);
    const std::string model = golden["model"];
    const std::string base = written(below(arrays, model + "/weight/"), "model.safetensors",
                                     "config.json", goldens["models"][model]);
    const std::string start = written(below(arrays, name + "/start/"), "adapter_model.safetensors",
                                      "adapter_config.json", golden["config"]);
    std::vector<std::string> settings = settings_of(golden["config"]);
    settings.push_back("lora.adapter=" + start);
    Training training(base, settings);
    NamedArrays gradients;
    for (size_t i = 0; i < golden["losses"].size(); ++i) {
      const double loss = training.step(arrays.at("tokens"), i == 0 ? &gradients : nullptr);
      CHECK(loss == Approx(golden["losses"][i].get<double>()).epsilon(2e-6));
    }
    CHECK(largest_error(gradients, below(arrays, name + "/gradient/")) < 1e-4);
    CHECK(largest_error(training.trained(), below(arrays, name + "/end/")) < 1e-4);
  }
}

// A model of a few steps.
std::string trained_model(const std::string& kind) {
  const std::string place = lumen::testing::temporary_directory();
  const auto task = make_task(text_recipe(kind), {.threads = 1});
  losses(*task, 3);
  task->export_model(place);
  return place;
}

Recipe recipe_of(const std::string& base, std::vector<std::string> settings) {
  settings.emplace_back("data.on_too_long=split");
  return read_recipe({"l.toml", text_recipe(kLlama).directory, lora_recipe(base)}, settings);
}

std::vector<float> logits_of(const std::string& model, const std::string& lora = "") {
  LoadOptions options;
  options.kv_type = DType::kF32;
  options.lora = lora;
  const int32_t tokens[] = {1, 5, 3, 7, 2, 9};
  const Array logits = LanguageModel::load(io::open_model(model), options)->logits(tokens);
  return {logits.as<float>().begin(), logits.as<float>().end()};
}

TEST_CASE("DoRA leaves the model as it is until it is trained, with dropout and without") {
  for (const char* kind : {kLlama, kGpt2}) {
    const std::string base = trained_model(kind);
    for (const char* dropout : {"lora.dropout=0", "lora.dropout=0.3"}) {
      const auto plain = make_task(recipe_of(base, {dropout}), {.threads = 1});
      const auto dora = make_task(recipe_of(base, {dropout, "lora.dora=true"}), {.threads = 1});
      const double first = plain->step(1e-2).loss;
      CHECK(dora->step(1e-2).loss == Approx(first).epsilon(1e-6));
      CHECK(dora->step(1e-2).loss != Approx(plain->step(1e-2).loss).epsilon(1e-6));
    }
  }
}

TEST_CASE("DoRA gives as an adapter what it gives merged, and goes on bit by bit") {
  for (const char* kind : {kLlama, kGpt2}) {
    INFO(kind);
    const std::string base = trained_model(kind);
    const std::string merged = lumen::testing::temporary_directory(),
                      adapter = lumen::testing::temporary_directory();
    const std::vector<std::string> dora = {"lora.dora=true", "lora.dropout=0.1"};
    const auto task = make_task(recipe_of(base, dora), {.threads = 1});
    losses(*task, 3);
    const TaskState state = task->state();
    const auto other = make_task(recipe_of(base, dora), {.threads = 2});
    other->restore(state);
    CHECK(losses(*other, 2) == losses(*task, 2));
    task->export_model(adapter);
    const auto whole =
        make_task(recipe_of(base, {"lora.dora=true", "export.merge_lora=true"}), {.threads = 1});
    whole->restore(task->state());
    whole->export_model(merged);
    const std::vector<float> with = logits_of(base, adapter);
    CHECK(relative_error(with, logits_of(merged)) < 2e-6);
    CHECK(relative_error(with, logits_of(base)) > 1e-3);
    CHECK(io::read_json(adapter + "/adapter_config.json")["use_dora"] == true);
  }
}

TEST_CASE("a head that is the embedding has an addition of its own") {
  for (const char* kind : {kLlama, kGpt2}) {
    INFO(kind);
    const std::string base = trained_model(kind), adapter = lumen::testing::temporary_directory(),
                      merged = lumen::testing::temporary_directory();
    const auto task = make_task(recipe_of(base, {"lora.targets=lm_head"}), {.threads = 1});
    losses(*task, 3);
    task->export_model(adapter);
    const auto whole = make_task(
        recipe_of(base, {"lora.targets=lm_head", "export.merge_lora=true"}), {.threads = 1});
    whole->restore(task->state());
    whole->export_model(merged);
    const std::vector<float> with = logits_of(base, adapter);
    CHECK(relative_error(with, logits_of(merged)) < 2e-6);
    CHECK(relative_error(with, logits_of(base)) > 1e-3);
    const auto again = make_task(recipe_of(base, {"lora.adapter=" + adapter}), {.threads = 1});
    const std::string second = lumen::testing::temporary_directory();
    again->export_model(second);
    CHECK(logits_of(base, second) == with);
  }
}

TEST_CASE("an adapter is trained on, and what the recipe says otherwise is refused") {
  const std::string base = trained_model(kLlama), first = lumen::testing::temporary_directory(),
                    second = lumen::testing::temporary_directory();
  const std::vector<std::string> settings = {
      "lora.dora=true", "lora.modules_to_save=[\"norm\", \"lm_head\"]",
      "lora.exclude=[\"o_proj\", \"up_proj\"]",
      "lora.groups=[{match = \"*down_proj\", rank = 3, alpha = 5}]"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = {"lora.adapter=" + first};
    all.insert(all.end(), more.begin(), more.end());
    return recipe_of(base, all);
  };
  const auto task = make_task(recipe_of(base, settings), {.threads = 1});
  losses(*task, 3);
  task->export_model(first);
  const io::Json config = io::read_json(first + "/adapter_config.json");
  CHECK(config["rank_pattern"] == io::Json({{"down_proj", 3}}));
  CHECK(config["alpha_pattern"]["down_proj"] == Approx(5));
  CHECK(config["modules_to_save"] == io::Json({"lm_head", "model.norm"}));
  const std::vector<float> before = logits_of(base, first);
  // Nothing is lost on the way there and back.
  const auto again =
      make_task(with({"lora.dora=true", "lora.modules_to_save=[\"model.norm\", \"lm_head\"]"}),
                {.threads = 1});
  again->export_model(second);
  CHECK(logits_of(base, second) == before);
  CHECK(io::read_json(second + "/adapter_config.json")["rank_pattern"]["down_proj"] == 3);

  const auto refused = [&](const std::vector<std::string>& more, ErrorKind kind) {
    return refusal(kind, [&] { make_task(with(more), {.threads = 1}); });
  };
  CHECK(contains(refused({}, ErrorKind::kMalformed),
                 "lora.dora: false, and the adapter is one of DoRA"));
  CHECK(contains(refused({"lora.rank=4"}, ErrorKind::kUsage),
                 "--set lora.rank: 4, and the adapter has the rank 2"));
  CHECK(contains(refused({"lora.alpha=2"}, ErrorKind::kUsage),
                 "--set lora.alpha: 2, and the adapter was trained with 8"));
  CHECK(contains(refused({"lora.dora=true"}, ErrorKind::kUsage),
                 "in the place of the model's own; name 'lm_head' in lora.modules_to_save"));
  CHECK(contains(refused({"lora.dora=true", "lora.modules_to_save=[\"norm\", \"lm_head\"]",
                          "lora.targets=up_proj"},
                         ErrorKind::kUsage),
                 "has an addition to 'model.layers.0.mlp.down_proj', which lora.targets, exclude"));
  CHECK(contains(
      refusal(ErrorKind::kMalformed, [&] { make_task(recipe_of(first, {}), {.threads = 1}); }),
      "is a LoRA adapter; name its base model '" + base + "' here, and in lora.adapter"));
  const auto unknown = [&](const std::string& setting) {
    return refusal(ErrorKind::kUsage,
                   [&] { make_task(recipe_of(base, {setting}), {.threads = 1}); });
  };
  CHECK(contains(unknown("lora.modules_to_save=embed_token"), "did you mean embed_tokens?"));
  CHECK(contains(unknown("lora.groups=[{match=\"*q_prj\", rank=3}]"),
                 "lora.groups[0].match: '*q_prj' is of no addition"));
  CHECK(contains(unknown("lora.exclude=qproj"), "is called 'qproj'; there are down_proj, "));
}

TEST_CASE("a checkpoint of before a key was known fits what does as by default") {
  const std::string text =
      "[model]\npath = \"x\"\n[train]\nsteps = 1\n[lora]\nrank = 8\n"
      "[[data.train]]\npath = \"a.jsonl\"\n";
  io::Json before = to_json(read_recipe({"l.toml", "", text}));
  for (const char* key : {"dora", "exclude", "adapter"}) before["lora"].erase(key);
  CHECK(incompatible_keys(before, read_recipe({"l.toml", "", text})).empty());
  CHECK(incompatible_keys(before, read_recipe({"l.toml", "", text}, {"lora.dora=true"})) ==
        std::vector<std::string>{"lora.dora is absent there and true here"});
  before["lora"].erase("rank");
  CHECK_FALSE(incompatible_keys(before, read_recipe({"l.toml", "", text})).empty());
}

TEST_CASE("what others call keys of recipes is told with ours") {
  const std::string base = "[model]\npath = \"x\"\n[train]\nsteps = 1\n[lora]\n";
  const auto told = [&](const std::string& line) {
    return refusal(ErrorKind::kMalformed, [&] { read_recipe({"l.toml", "", base + line}, {}); });
  };
  CHECK(contains(told("use_dora = true\n"),
                 "l.toml:6:1: unknown key 'use_dora' in [lora]; did you mean lora.dora?"));
  CHECK(contains(told("r = 8\n"), "did you mean lora.rank?"));
  CHECK(contains(told("loraplus_lr_ratio = 16\n"), "did you mean optimizer.groups?"));
  CHECK(contains(refusal(ErrorKind::kUsage,
                         [&] {
                           read_recipe({"l.toml", "", base}, {"train.learning_rate=1"});
                         }),
                 "did you mean optimizer.lr?"));
}

}  // namespace
}  // namespace lumen::runtime
