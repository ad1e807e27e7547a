#include "lib/runtime/training/lora_training.h"

// PEFT's goldens, and what becomes of an adapter that is trained on.
#include <filesystem>

#include "lib/base/relative_error.h"
#include "lib/io/atomic_file.h"
#include "lib/io/safetensors.h"
#include "lib/io/write_safetensors.h"
#include "lib/ops/ops.h"
#include "lib/optim/optimizer.h"
#include "lib/runtime/adapters/adapter_names.h"
#include "lib/runtime/adapters/lora.h"
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

// PEFT has a layer with an addition in another.
NamedArrays without_inner_layers(const NamedArrays& arrays) {
  NamedArrays result;
  for (const auto& [name, array] : arrays) {
    result[renamed_part(name, ".base_layer.", ".")] = array;
  }
  return result;
}

// The same with zeros for the biases of GPT-2's keys, which change nothing: Adam makes steps of
// what is rounded in their gradients.
NamedArrays without_key_biases(NamedArrays arrays) {
  for (auto& [name, array] : arrays) {
    if (!name.ends_with("c_attn.bias")) continue;
    array = nn::float32_copy(array);
    const size_t dim = static_cast<size_t>(array.elements()) / 3;
    std::ranges::fill(array.as_mutable<float>().subspan(dim, dim), 0.0f);
  }
  return arrays;
}

// B A − B₀ A₀ of each layer, by its path.
NamedArrays changes(const NamedArrays& start, const NamedArrays& end) {
  NamedArrays result;
  for (const std::string& path : paths_of_additions(end)) {
    const auto product = [&](const NamedArrays& of) {
      const auto part = [&](std::string_view name) {
        return graph::constant(of.at(str(path, ".", name)));
      };
      return ops::matmul(part(kLoraB), part(kLoraA));
    };
    result[path] = ops::sub(product(end), product(start)).eval();
  }
  return result;
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
  std::vector<std::string> settings = {
      str("lora.alpha=", config["lora_alpha"].dump()), str("lora.rank=", config["r"].dump()),
      str("lora.rslora=", config["use_rslora"].dump()),
      str("lora.dora=", config["use_dora"].dump()), str("lora.bias=", config["bias"].dump())};
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

  NamedArrays copy_of_trained() const {
    NamedArrays copies = trained();
    for (auto& [name, array] : copies) array = nn::float32_copy(array);
    return copies;
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

std::string golden_path(const char* end) {
  return lumen::testing::source_path(str("testdata/goldens/lora_training.", end));
}

TEST_CASE("steps with additions, with magnitudes or not, whole modules and biases are PEFT's") {
  const io::Json goldens = io::read_json(golden_path("json"));
  const NamedArrays arrays = io::read_safetensors(golden_path("safetensors"))->arrays();
  for (const auto& [name, golden] : goldens["cases"].items()) {
    if (golden["config"]["init_lora_weights"] != true) continue;
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
    const auto comparable = [&](const NamedArrays& of) {
      return without_key_biases(without_inner_layers(of));
    };
    const NamedArrays gradient = below(arrays, name + "/gradient/");
    const NamedArrays end = below(arrays, name + "/end/");
    CHECK(largest_error(comparable(gradients), comparable(gradient)) < 1e-4);
    CHECK(largest_error(comparable(training.trained()), comparable(end)) < 1e-4);
  }
}

// Singular vectors have no sign, so that only the products are PEFT's.
TEST_CASE("steps of additions that start as a part of the weight are PEFT's") {
  const io::Json goldens = io::read_json(golden_path("json"));
  const NamedArrays arrays = io::read_safetensors(golden_path("safetensors"))->arrays();
  for (const char* name : {"pissa", "pissa-conv1d", "olora"}) {
    INFO(name);
    const io::Json& golden = goldens["cases"][name];
    const std::string model = golden["model"];
    const std::string base = written(below(arrays, model + "/weight/"), "model.safetensors",
                                     "config.json", goldens["models"][model]);
    std::vector<std::string> settings = settings_of(golden["config"]);
    settings.push_back(str("lora.init=", golden["config"]["init_lora_weights"].dump()));
    settings.push_back(str("lora.targets=", golden["config"]["target_modules"].dump()));
    Training training(base, settings);
    const NamedArrays start = training.copy_of_trained();
    for (const io::Json& loss : golden["losses"]) {
      CHECK(training.step(arrays.at("tokens")) == Approx(loss.get<double>()).epsilon(2e-6));
    }
    const NamedArrays first = below(arrays, str(name, "/start/"));
    NamedArrays zeros;
    for (const auto& [of, array] : first) zeros[of] = Array::zeros(DType::kF32, array.shape());
    CHECK(largest_error(changes(zeros, start), changes(zeros, first)) < 1e-5);
    CHECK(largest_error(changes(start, training.trained()),
                        changes(first, below(arrays, str(name, "/end/")))) < 1e-3);
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
  if (!lora.empty()) options.lora = {lora};
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

TEST_CASE("additions start as the recipe says, and fit the model as it is") {
  for (const char* kind : {kLlama, kGpt2}) {
    const std::string base = trained_model(kind);
    const double before = make_task(recipe_of(base, {}), {.threads = 1})->step(0).loss;
    for (const char* init : {"gaussian", "orthogonal", "random", "pissa", "olora"}) {
      for (const char* dora : {"false", "true"}) {
        INFO(kind << init << dora);
        std::vector<std::string> settings = {str("lora.init=", init), str("lora.dora=", dora),
                                             "lora.rslora=true"};
        const auto task = make_task(recipe_of(base, settings), {.threads = 1});
        // Only random additions change the model.
        const double tolerance = init == std::string_view("random") ? 1 : 1e-5;
        CHECK(std::fabs(task->step(1e-2).loss - before) < tolerance);
        losses(*task, 2);
        const TaskState state = task->state();
        const auto other = make_task(recipe_of(base, settings), {.threads = 2});
        other->restore(state);
        CHECK(losses(*other, 2) == losses(*task, 2));
        const std::string adapter = lumen::testing::temporary_directory(),
                          merged = lumen::testing::temporary_directory();
        task->export_model(adapter);
        settings.emplace_back("export.merge_lora=true");
        const auto whole = make_task(recipe_of(base, settings), {.threads = 1});
        whole->restore(task->state());
        whole->export_model(merged);
        const std::vector<float> with = logits_of(base, adapter);
        CHECK(relative_error(with, logits_of(merged)) < 1e-5);
        CHECK(relative_error(with, logits_of(base)) > 1e-3);
        const bool is_part = std::string_view(init) == "pissa" || std::string_view(init) == "olora";
        const io::Json config = io::read_json(adapter + "/adapter_config.json");
        CHECK(config["r"] == (is_part ? 4 : 2));
        CHECK(config["lora_alpha"] == Approx(is_part ? 8 * std::sqrt(2) : 8));
      }
    }
  }
}

TEST_CASE("groups of additions that start as a part of the weight have ranks of their own") {
  const std::string base = trained_model(kLlama), adapter = lumen::testing::temporary_directory();
  const auto task = make_task(
      recipe_of(base,
                {"lora.init=pissa", "lora.groups=[{match = \"*down_proj\", rank = 3, alpha = 5}]"}),
      {.threads = 1});
  const double before = make_task(recipe_of(base, {}), {.threads = 1})->step(0).loss;
  CHECK(task->step(0).loss == Approx(before).epsilon(1e-5));
  task->export_model(adapter);
  const io::Json config = io::read_json(adapter + "/adapter_config.json");
  CHECK(config["rank_pattern"] == io::Json({{"down_proj", 6}}));
  CHECK(config["alpha_pattern"]["down_proj"] == Approx(10));
  CHECK(relative_error(logits_of(base, adapter), logits_of(base)) < 1e-5);
}

TEST_CASE("what a frozen part of additions is comes from the checkpoint") {
  const std::string base = trained_model(kLlama);
  const std::vector<std::string> pissa = {"lora.init=pissa"};
  const auto task = make_task(recipe_of(base, pissa), {.threads = 1});
  TaskState state = task->state();
  const std::string name = "model.layers.0.self_attn.q_proj.lora_B.start";
  Array changed = nn::float32_copy(state.weights.at(name));
  changed.as_mutable<float>()[0] += 1;
  state.weights[name] = changed;
  const double before = task->step(0).loss;
  task->restore(state);
  CHECK(task->step(0).loss != before);
  state.weights.erase(name);
  CHECK(contains(refusal(ErrorKind::kMismatch, [&] { task->restore(state); }),
                 "lora_B.start' [32, 2] is not in the checkpoint"));
}

TEST_CASE("biases are trained with additions, and saved as PEFT has them") {
  const std::string base = trained_model(kGpt2), adapter = lumen::testing::temporary_directory(),
                    merged = lumen::testing::temporary_directory(),
                    again = lumen::testing::temporary_directory();
  std::vector<std::string> settings = {"lora.bias=all", "lora.targets=c_attn"};
  const auto task = make_task(recipe_of(base, settings), {.threads = 1});
  losses(*task, 3);
  task->export_model(adapter);
  const std::string layer = "base_model.model.transformer.h.0.";
  NamedArrays saved = io::read_safetensors(adapter + "/adapter_model.safetensors")->arrays();
  for (const char* bias : {"attn.c_attn.base_layer.bias", "attn.c_proj.bias", "ln_1.bias"}) {
    CHECK(saved.contains(layer + bias));
  }
  const io::Json config = io::read_json(adapter + "/adapter_config.json");
  CHECK(config["bias"] == "all");
  CHECK_FALSE(config.contains("modules_to_save"));
  const std::vector<float> with = logits_of(base, adapter);
  settings.emplace_back("export.merge_lora=true");
  const auto whole = make_task(recipe_of(base, settings), {.threads = 1});
  whole->restore(task->state());
  whole->export_model(merged);
  CHECK(relative_error(with, logits_of(merged)) < 2e-6);
  // And back.
  const auto on_from = [&](const std::string& bias) {
    return make_task(recipe_of(base, {"lora.adapter=" + adapter, "lora.bias=" + bias}),
                     {.threads = 1});
  };
  on_from("all")->export_model(again);
  CHECK(logits_of(base, again) == with);
  CHECK(contains(refusal(ErrorKind::kUsage, [&] { on_from("none"); }),
                 "lora.bias: none, and the adapter has 'transformer.h.0.attn.c_attn.bias'"));
  CHECK(
      contains(refusal(ErrorKind::kUsage, [&] { on_from("lora_only"); }),
               "lora_only, and the adapter has 'transformer.h.0.attn.c_proj.bias' in the place of "
               "the model's own; say all"));
  const auto own =
      make_task(recipe_of(base, {"lora.bias=lora_only", "lora.targets=c_attn"}), {.threads = 1});
  own->export_model(again);
  saved = io::read_safetensors(again + "/adapter_model.safetensors")->arrays();
  CHECK(saved.contains(layer + "attn.c_attn.base_layer.bias"));
  CHECK(saved.size() == 3);
  const std::string without = trained_model(kLlama);
  for (const auto& [bias, said] :
       {std::pair("all", "lora.bias: all, and the model has none"),
        std::pair("lora_only", "lora.bias: lora_only, and no layer with an addition has one")}) {
    CHECK(contains(refusal(ErrorKind::kUsage,
                           [&, bias = bias] {
                             make_task(recipe_of(without, {str("lora.bias=", bias)}),
                                       {.threads = 1});
                           }),
                   said));
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

TEST_CASE("keys of [lora] that contradict each other are refused") {
  const std::string base =
      "[model]\npath = \"x\"\n[train]\nsteps = 1\n[[data.train]]\npath = \"a.jsonl\"\n"
      "[lora]\nrank = 4\n";
  const auto told = [&](const std::string& lines) {
    return refusal(ErrorKind::kMalformed, [&] { read_recipe({"l.toml", "", base + lines}, {}); });
  };
  CHECK(contains(
      told("init_iterations = 8\n"),
      "l.toml:9:19: lora.init_iterations: belongs to lora.init = pissa, which is uniform"));
  CHECK(contains(told("init = \"olora\"\nadapter = \"a\"\n"),
                 "l.toml:9:8: lora.init: additions start as in lora.adapter"));
  const std::string orthogonal = "init = \"orthogonal\"\n";
  CHECK(contains(told(orthogonal + "[[lora.groups]]\nmatch = \"*\"\nrank = 5\n"),
                 "lora.groups[0].rank: is odd, and orthogonal additions are"));
}

TEST_CASE("what others call keys of recipes is told with ours") {
  const std::string base = "[model]\npath = \"x\"\n[train]\nsteps = 1\n[lora]\n";
  const auto told = [&](const std::string& line) {
    return refusal(ErrorKind::kMalformed, [&] { read_recipe({"l.toml", "", base + line}, {}); });
  };
  CHECK(contains(told("use_dora = true\n"),
                 "l.toml:6:1: unknown key 'use_dora' in [lora]; did you mean lora.dora?"));
  CHECK(contains(told("r = 8\n"), "did you mean lora.rank?"));
  CHECK(contains(told("init_lora_weights = \"pissa\"\n"), "did you mean lora.init?"));
  CHECK(contains(told("loraplus_lr_ratio = 16\n"), "did you mean optimizer.groups?"));
  CHECK(contains(refusal(ErrorKind::kUsage,
                         [&] {
                           read_recipe({"l.toml", "", base}, {"train.learning_rate=1"});
                         }),
                 "did you mean optimizer.lr?"));
}

}  // namespace
}  // namespace lumen::runtime
