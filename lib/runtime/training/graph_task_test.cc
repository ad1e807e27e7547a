// The task of real recipes: what a step does must not depend on threads, interruptions, the size of
// micro-batches or what else is asked of the task.
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "lib/kernels/tiles/amx_emulation.h"
#include "lib/nn/training_scope.h"
#include "lib/ops/loss.h"
#include "lib/runtime/training/bundled_recipes.h"
#include "lib/runtime/training/least_loss.h"
#include "lib/runtime/training/network.h"
#include "lib/runtime/training/text_recipes.h"
#include "lib/runtime/training/train_task.h"
#include "models/model.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;
using testing::kGpt2;
using testing::kLlama;
using testing::kLstm;
using testing::losses;
using testing::text_recipe;

Recipe digits_recipe() {
  return read_recipe(find_recipe("digits-lenet"),
                     {"data.digits_train=72", "data.digits_eval=16", "train.batch_size=16"});
}

std::map<std::string, Array> copies(const std::map<std::string, Array>& arrays) {
  std::map<std::string, Array> result;
  for (const auto& [name, array] : arrays) {
    Array copy = Array::zeros(array.dtype(), array.shape());
    std::copy_n(array.data(), array.bytes(), copy.mutable_data());
    result[name] = copy;
  }
  return result;
}

// All of a state, as bytes.
std::string bytes_of(const TaskState& state) {
  std::string all = state.json.dump();
  for (const auto* arrays : {&state.weights, &state.optimizer}) {
    for (const auto& [name, array] : *arrays) {
      all += name;
      all.append(reinterpret_cast<const char*>(array.data()), array.bytes());
    }
  }
  return all;
}

TEST_CASE("the loss of a network is that of its logits, capped or not") {
  const std::vector<int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6}, next = {1, 4, 1, 5, 9, 2, 6, 5};
  const auto ints = [](const std::vector<int32_t>& x) {
    return graph::constant(Array::from<int32_t>(x, {1, static_cast<int64_t>(x.size())}));
  };
  for (const io::Json& config : models::find_model_def({{"model_type", "gemma2"}}).tiny_configs()) {
    INFO(config.dump());
    const auto parameters = nn::Parameters::random(5);
    const auto network = make_network(config, parameters, {});
    const double got = network->loss_sum({{"tokens", ints(ids)}, {"targets", ints(next)}}).item();
    const models::CausalLm& model = *network->language_model();
    const int32_t zero = 0;
    const graph::Tensor position = graph::constant(Array::from<int32_t>(std::span(&zero, 1), {1}));
    const graph::Tensor logits = model.logits(model.hidden(ints(ids), position, nullptr));
    const graph::Tensor rows = graph::reshape(logits, {8, model.vocab_size()});
    const graph::Tensor want = ops::cross_entropy(rows, graph::reshape(ints(next), {8}),
                                                  {.reduction = ops::Reduction::kSum});
    CHECK(got == Approx(want.item()).epsilon(1e-6));
  }
}

TEST_CASE("the loss that balances experts counts in training, as the recipe or the config says") {
  const auto ints = [](const std::vector<int32_t>& x) {
    return graph::constant(Array::from<int32_t>(x, {1, 6}));
  };
  const Fields fields = {{"tokens", ints({3, 1, 4, 1, 5, 0})},
                         {"targets", ints({-100, 4, 1, 5, 9, -100})},
                         {"positions", ints({0, 1, 2, 3, 4, 0})},
                         {"segments", ints({0, 0, 0, 0, 0, data::kPadding})}};
  constexpr int kTargets = 4;
  const graph::Tensor key = ints({0, 0, 0, 0, 0, 0});
  io::Json config = models::find_model_def({{"model_type", "mixtral"}}).tiny_configs()[0];
  const auto parameters = nn::Parameters::trainable(uint64_t{5});
  const auto loss = [&](const NetworkOptions& options, bool training = true) {
    const auto network = make_network(config, parameters, options);
    std::optional<nn::TrainingScope> scope;
    if (training) scope.emplace(key);
    return network->loss_sum(fields).item();
  };
  const double plain = loss({}, false);
  CHECK(loss({}) == Approx(plain).epsilon(1e-6));
  const double balance = (loss({.router_aux_loss_coef = 1}) - plain) / kTargets;
  CHECK(balance > 1.9);  // 2 of 3 experts are used: 2 if they are equally
  CHECK(balance < 3);
  CHECK(loss({.router_aux_loss_coef = 1}, false) == plain);
  config["router_aux_loss_coef"] = 0.5;  // says nothing alone
  CHECK(loss({}) == Approx(plain).epsilon(1e-6));
  config["output_router_logits"] = true;
  CHECK(loss({}) == Approx(plain + 0.5 * balance * kTargets).epsilon(1e-6));
  CHECK(loss({.router_aux_loss_coef = 0}) == Approx(plain).epsilon(1e-6));
  CHECK(loss({.router_aux_loss_coef = 3}) == Approx(plain + 3 * balance * kTargets).epsilon(1e-6));
  config.erase("router_aux_loss_coef");
  CHECK(loss({}) == Approx(plain + 0.001 * balance * kTargets).epsilon(1e-6));

  const std::string error = refusal(ErrorKind::kUsage, [] {
    make_task(text_recipe(kLlama, {"train.router_aux_loss_coef=0.1"}), {.threads = 1});
  });
  CHECK(contains(error, "--set train.router_aux_loss_coef: the model is no mixture of experts"));
  make_task(text_recipe(kLlama, {"train.router_aux_loss_coef=0"}), {.threads = 1});
}

TEST_CASE("steps have the same bits for any number of threads, and after going on from a state") {
  const std::vector<Recipe> recipes = {text_recipe(kLlama), text_recipe(kLlama, {"data.pack=true"}),
                                       text_recipe(kGpt2, {"train.micro_batch=4"}),
                                       text_recipe(kLstm), digits_recipe()};
  for (const Recipe& recipe : recipes) {
    CAPTURE(to_toml(recipe));
    const auto whole = make_task(recipe, {.threads = 2});
    const std::vector<double> all = losses(*whole, 8);
    const std::string result = bytes_of(whole->state());

    const auto alone = make_task(recipe, {.threads = 1});
    CHECK(losses(*alone, 8) == all);
    CHECK(bytes_of(alone->state()) == result);

    const auto first = make_task(recipe, {.threads = 1});
    losses(*first, 3);
    const TaskState state = first->state();
    const auto second = make_task(recipe, {.threads = 2});
    second->restore({copies(state.weights), copies(state.optimizer), state.json});
    second->evaluate();  // changes nothing
    CHECK(losses(*second, 5) == std::vector<double>(all.begin() + 3, all.end()));
    CHECK(bytes_of(second->state()) == result);
  }
}

TEST_CASE("a run goes on after more micro-batches than 32 bits count") {
  const Recipe recipe = text_recipe(kGpt2, {});
  const auto run_from = [&](int64_t micro_steps) {
    const auto task = make_task(recipe, {.threads = 1});
    TaskState state = task->state();
    state.json["micro_steps"] = micro_steps;
    task->restore({copies(state.weights), copies(state.optimizer), state.json});
    losses(*task, 1);
    return task->state().json.at("micro_steps").get<int64_t>();
  };
  const int64_t per_step = run_from(0);
  for (const int64_t from : {(int64_t{1} << 31) - 1, (int64_t{1} << 32) + 5}) {
    CAPTURE(from);
    CHECK(run_from(from) == from + per_step);
  }
}

TEST_CASE("what is not finite after a step is found, and which samples it read") {
  Recipe recipe = digits_recipe();
  recipe.train.micro_batch = 8;
  const auto task = make_task(recipe, {.threads = 1});
  CHECK(task->find_nonfinite().samples.empty());
  REQUIRE(task->step(1e-3).finite);
  NonfinitePlace place = task->find_nonfinite();
  CHECK(place.weight.empty());
  CHECK(place.gradient.empty());
  auto [name, weight] = *task->state().weights.begin();  // shares the task's memory
  weight.as_mutable<float>()[0] = NAN;
  REQUIRE(!task->step(1e-3).finite);
  const std::vector<int64_t> before = place.samples;
  place = task->find_nonfinite();
  CHECK(place.weight == name);
  CHECK(!place.gradient.empty());
  std::set<int64_t> samples(before.begin(), before.end());
  samples.insert(place.samples.begin(), place.samples.end());
  CHECK(samples.size() == 32);  // of an epoch: each once
  CHECK(*samples.begin() >= 0);
  CHECK(*samples.rbegin() < 72);
}

TEST_CASE("the scale of losses in float16 does not grow with what a step sums up") {
  for (const char* batch : {"train.batch_size=1", "train.batch_size=1024"}) {
    const auto task = make_task(
        text_recipe(kLlama, {batch, "train.precision=f16", "data.last_batch=pad"}), {.threads = 2});
    for (int i = 0; i < 3; ++i) CHECK(task->step(1e-3).updated);
  }
}

TEST_CASE("a state of another type than the task's is refused") {
  const auto task = make_task(digits_recipe(), {.threads = 1});
  TaskState state = task->state();
  const std::string name = state.weights.begin()->first;
  state.weights[name] = Array::zeros(DType::kF16, state.weights[name].shape());
  const std::string error =
      lumen::testing::refusal(ErrorKind::kMismatch, [&] { task->restore(state); });
  CHECK(lumen::testing::contains(error, "f16 in the checkpoint"));
}

TEST_CASE("recomputed activations drop what was dropped") {
  const auto result = [](const std::vector<std::string>& overrides) {
    const auto task = make_task(text_recipe(kGpt2, overrides), {.threads = 2});
    losses(*task, 3);
    return bytes_of(task->state());
  };
  const std::string kept = result({});
  CHECK(result({"train.activation_checkpointing=true"}) == kept);
  CHECK(result({"model.dropout=0"}) != kept);
}

TEST_CASE("micro-batches add up to the batch, also where an epoch ends within one") {
  for (const char* rule : {"auto", "drop", "pad", "keep"}) {
    const auto run = [&](const char* micro) {
      const auto task = make_task(text_recipe(kLlama, {std::string("train.micro_batch=") + micro,
                                                       std::string("data.last_batch=") + rule}),
                                  {.threads = 2});
      const bool drops = rule == std::string("auto") || rule == std::string("drop");
      CHECK(task->summary().steps_per_epoch == (drops ? 4 : 5));
      CHECK(task->summary().left_out_samples == (drops ? 4 : 0));
      return losses(*task, 12);
    };
    const std::vector<double> whole = run("8");
    for (const char* micro : {"1", "2", "4"}) {
      CAPTURE(rule, micro);
      const std::vector<double> parts = run(micro);
      for (size_t i = 0; i < whole.size(); ++i) {
        CHECK(parts[i] == Approx(whole[i]).epsilon(1e-4));
      }
    }
  }
}

TEST_CASE("samples that only fill a batch count in no loss") {
  const std::string directory = lumen::testing::temporary_directory();
  std::ofstream table(directory + "/t.csv");
  table << "a,b,y\n";
  for (int i = 0; i < 23; ++i) table << i << "," << i * i % 7 << "," << 0.5 * i << "\n";
  table.close();
  std::filesystem::copy_file(directory + "/t.csv", directory + "/e.csv");
  const std::string text =
      "[model]\ntype = \"mlp\"\nhidden = 4\n[[data.train]]\npath = \"t.csv\"\n[[data.eval]]\npath "
      "= "
      "\"e.csv\"\n[data]\nlast_batch = \"pad\"\nshuffle = false\n[train]\nsteps = 9\n";
  for (const char* kind : {"number", "classes"}) {
    CAPTURE(kind);
    // The first step of a batch of 32 sees all 23 rows and nine of them again.
    const auto task_of = [&](int64_t batch) {
      return make_task(
          read_recipe({"r.toml", directory + "/", text},
                      {str("train.batch_size=", batch), str("data.label_kind=", kind)}),
          {.threads = 1});
    };
    const auto padded = task_of(32), exact = task_of(23);
    for (const auto& [name, value] : exact->evaluate()) {
      CHECK(padded->evaluate()[name] == Approx(value).epsilon(1e-6));
    }
    const StepResult a = padded->step(1e-2), b = exact->step(1e-2);
    CHECK(a.loss == Approx(b.loss).epsilon(1e-6));
    CHECK(a.grad_norm == Approx(b.grad_norm).epsilon(1e-5));
    CHECK(padded->step(1e-2).loss == Approx(exact->step(1e-2).loss).epsilon(1e-5));
  }
}

TEST_CASE("label smoothing is of training, evaluations measure the targets") {
  const Recipe text = text_recipe(kLlama), digits = digits_recipe();
  for (const Recipe* plain : {&text, &digits}) {
    Recipe smooth = *plain;
    smooth.train.label_smoothing = 0.2;
    const auto without = make_task(*plain, {.threads = 1}),
               with = make_task(smooth, {.threads = 1});
    CHECK(with->step(0).loss != Approx(without->step(0).loss).epsilon(1e-5));
    for (const auto& [name, value] : without->evaluate()) {
      CAPTURE(name);
      CHECK(with->evaluate()[name] == Approx(value).epsilon(1e-6));
    }
  }
}

TEST_CASE("packed documents count as much as documents alone") {
  const auto loss = [](const char* model, const std::vector<std::string>& overrides) {
    return make_task(text_recipe(model, overrides), {.threads = 2})->evaluate()["eval_loss"];
  };
  for (const char* model : {kLlama, kGpt2}) {
    const double alone = loss(model, {"data.eval_fraction=0.5"});
    CHECK(loss(model, {"data.eval_fraction=0.5", "data.pack=true"}) == Approx(alone).epsilon(1e-6));
  }
}

TEST_CASE("a sample depends on its prompt alone, and ends where the context does") {
  for (const char* model : {kLlama, kGpt2, kLstm}) {
    CAPTURE(model);
    const auto task = make_task(text_recipe(model), {.threads = 1});
    losses(*task, 3);
    const std::string before = bytes_of(task->state());
    const auto alone = task->sample({"cat"}, 100);
    const auto among = task->sample({"the dog", "a", "cat", "the", "cat"}, 100);
    REQUIRE(among.size() == 5);
    CHECK(among[2] == alone[0]);
    CHECK(among[4] == alone[0]);
    CHECK(among[0].starts_with("the dog"));
    CHECK(bytes_of(task->state()) == before);
  }
}

TEST_CASE("prompts that are not continued are named with what stands in the way") {
  const std::vector<std::string> prompts = {
      "log.samples.prompts=['the', 'the cat sat on a mat and saw the cat', 'a7']"};
  const auto task = make_task(text_recipe(kLlama, prompts), {.threads = 1});
  CHECK(task->summary().notices ==
        std::vector<std::string>{
            "log.samples.prompts: 'the cat sat on a mat and saw the cat' is not continued: it has "
            "52 tokens, a row holds 32",  // with what a chat puts around it
            "log.samples.prompts: 'a7' is not continued: the vocabulary has no token for '7'"});
}

TEST_CASE("token ids take a tokenizer that fits them along") {
  const std::string place = lumen::testing::temporary_directory();
  const auto task = make_task(text_recipe(kLlama), {.threads = 1});
  task->export_model(place);
  std::ofstream(place + "/ids.bin") << std::string(400, '\1');
  const auto recipe = [&](const std::string& more) {
    return read_recipe({"r.toml", place + "/",
                        std::string(kLlama) + more +
                            "[[data.train]]\npath = \"ids.bin\"\n"
                            "[data]\nmax_length = 8\n[train]\nsteps = 1\nbatch_size = 2\n"});
  };
  const std::string named = "[tokenizer]\npath = \".\"\n";
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { make_task(recipe(named), {.threads = 1}); }),
                 "the vocabulary has "));
  std::string ids;
  for (int i = 0; i < 200; ++i) ids += std::string(1, static_cast<char>(3 + i % 5)) + '\0';
  std::ofstream(place + "/ids.bin") << ids;
  const auto fits = make_task(recipe(named), {.threads = 1});
  CHECK(fits->summary().shapes.front().shape[0] == task->summary().shapes.front().shape[0]);
  CHECK(fits->preview(1)[0].find("cat") == std::string::npos);
  CHECK(contains(make_task(recipe(""), {.threads = 1})->preview(1)[0], "4 5 6 7"));

  // Without one they are those of the model that is gone on with.
  for (const char* name : {"/tokenizer.json", "/tokenizer_config.json"}) {
    std::filesystem::remove(place + name);
  }
  const auto onward = [&] {
    const std::string text = "[model]\npath = \"" + place +
                             "\"\n[[data.train]]\npath = \"ids.bin\"\n[data]\nmax_length = 8\n"
                             "[train]\nsteps = 1\nbatch_size = 2\n";
    return make_task(read_recipe({"r.toml", place + "/", text}), {.threads = 1});
  };
  CHECK(onward()->step(1e-3).finite);
  std::ofstream(place + "/ids.bin") << std::string(400, '\1');
  CHECK(contains(refusal(ErrorKind::kMalformed, onward),
                 "ids.bin: token 1 (byte 0) is 257, the vocabulary has "));
}

TEST_CASE("a preview shows the last token of every document that is learnt") {
  const auto shown = [](const std::vector<std::string>& overrides) {
    return make_task(text_recipe(kLlama, overrides), {.threads = 1})->preview(1)[0];
  };
  const auto count = [](const std::string& text) {
    int64_t found = 0;
    for (size_t at = 0; (at = text.find("<|im_end|>", at)) != text.npos; ++at) ++found;
    return found;
  };
  CHECK(count(shown({})) == 1);
  CHECK(count(shown({"data.pack=true"})) >= 2);
}

TEST_CASE("a preview keeps the space between what is masked and what is learnt") {
  const std::string place = lumen::testing::temporary_directory();
  std::ofstream(place + "/d.jsonl") << "{\"prompt\": \"the cat\", \"completion\": \" sat on\"}\n";
  std::ofstream words(place + "/words.txt");
  for (int i = 0; i < 9; ++i)
    words << "the cat sat on the mat, the dog sat on the cat " << i << "\n";
  words.close();
  const std::string text = std::string(kLlama) +
                           "[tokenizer]\ntype = \"bpe\"\nvocab_size = 290\nfiles = \"words.txt\"\n"
                           "[[data.train]]\npath = \"d.jsonl\"\n[data]\nmask = \"prompt\"\n"
                           "eval_fraction = 0.0\nmax_length = 20\n[train]\nsteps = 1\n";
  const Recipe recipe = read_recipe({"r.toml", place + "/", text});
  CHECK(contains(make_task(recipe, {.threads = 1})->preview(1)[0], "⟦the cat⟧ sat on"));
}

TEST_CASE("a summary tells the tokens of a step and all that is kept for it") {
  for (const char* rule : {"drop", "pad", "keep"}) {
    CAPTURE(rule);
    const auto make = [&](const char* micro) {
      return make_task(text_recipe(kLlama, {str("data.last_batch=", rule), micro}), {.threads = 1});
    };
    const auto task = make("train.micro_batch=8");
    const TaskSummary summary = task->summary();
    double tokens = 0;
    const int64_t epochs = 10;  // other samples are left out in each
    for (int64_t i = 0; i < epochs * summary.steps_per_epoch; ++i) tokens += task->step(0).tokens;
    const double mean = tokens / static_cast<double>(epochs * summary.steps_per_epoch);
    CHECK(summary.tokens_per_step == Approx(mean).epsilon(0.02));

    // Gradients of micro-batches are added up beside the plan that makes them.
    const auto single = make_task(text_recipe(kLlama, {"train.batch_size=1"}), {.threads = 1});
    CHECK(make("train.micro_batch=1")->summary().arena_bytes ==
          single->summary().arena_bytes + summary.parameter_bytes);

    // An evaluation keeps fewer activations than a step, and no gradients.
    CHECK(task->evaluation_bytes() > 0);
    CHECK(task->evaluation_bytes() < summary.arena_bytes);
  }
}

TEST_CASE("a batch of names is learnt as far as it can be: their beginnings stay open") {
  const Recipe recipe = read_recipe(find_recipe("names-gru"), {"train.batch_size=4"});
  const auto task = make_task(recipe, {.threads = 1, .overfit_batch = true});
  task->step(1e-3);
  const double least = task->least_loss();
  CHECK(least > 0.05);
  CHECK(least < std::log(4.0));
  data::Batch batch;
  const std::vector<int32_t> tokens = {7, 1, 2, 7, 1, 3}, targets = {1, 2, -100, 1, 3, -100};
  batch.fields["tokens"] = Array::from<int32_t>(tokens, {2, 3});
  batch.fields["targets"] = Array::from<int32_t>(targets, {2, 3});
  CHECK(least_loss(batch) == Approx(std::log(2.0) / 2));
  const std::vector<int32_t> segments = {0, 1, 1, 0, 0, 0};
  batch.fields["segments"] = Array::from<int32_t>(segments, {2, 3});
  CHECK(least_loss(batch) == Approx(0));
}

// Data that a recipe names and the machine lacks have a substitute; what else a recipe says must go
// with it.
TEST_CASE("every bundled recipe makes a step without a download, and continues its prompts") {
  ::unsetenv("LUMEN_DATA");
  for (const BundledRecipe& bundled : bundled_recipes()) {
    CAPTURE(bundled.name);
    std::vector<std::string> overrides = {"train.batch_size=2", "train.micro_batch=1"};
    // The built-in model is beside the tools, not beside the tests.
    if (bundled.name == "sft-lora") {
      overrides.push_back("model.path=" +
                          lumen::testing::source_path("testdata/builtin/lumen-tiny.gguf"));
    }
    const Recipe recipe = read_recipe(find_recipe(std::string(bundled.name)), overrides);
    const auto task = make_task(recipe, {.threads = 2});
    const TaskSummary summary = task->summary();
    for (const std::string& notice : summary.notices) CHECK(contains(notice, "set LUMEN_DATA"));
    CHECK_FALSE(contains(summary.batch, " of 1 documents"));
    CHECK(std::isfinite(task->step(1e-3).loss));
    const std::vector<std::string>& prompts = recipe.log.samples.prompts;
    const std::vector<std::string> samples = task->sample(prompts, 8);
    REQUIRE(samples.size() == prompts.size());
    for (size_t i = 0; i < prompts.size(); ++i) CHECK(samples[i].size() > prompts[i].size());
  }
}

TEST_CASE("products of a step use tiles where there are any, but not with precision \"highest\"") {
  static std::atomic<int64_t> products;
  const kernels::TileUnit counting = {kernels::EmulatedTiles::enter, kernels::EmulatedTiles::leave,
                                      [](const kernels::TileStrips& strips) {
                                        ++products;
                                        kernels::kEmulatedTileUnit.multiply(strips);
                                      }};
  const kernels::TileUnitScope scope(&counting);
  for (const std::string precision : {"f32", "highest"}) {
    const Recipe recipe = read_recipe(find_recipe("digits-mlp"),
                                      {"train.precision=" + precision, "data.digits_train=64",
                                       "data.digits_eval=64", "train.batch_size=32"});
    const auto task = make_task(recipe, {.threads = 2});
    products = 0;
    CHECK(std::isfinite(task->step(1e-3).loss));
    CHECK((products > 0) == (precision == "f32"));
    products = 0;
    task->evaluate();
    CHECK((products > 0) == (precision == "f32"));
  }
}

}  // namespace
}  // namespace lumen::runtime
