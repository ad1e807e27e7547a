// The task of real recipes: what a step does must not depend on threads, interruptions, the size of
// micro-batches or what else is asked of the task.
#include <atomic>
#include <cmath>
#include <fstream>

#include "lib/base/testing.h"
#include "lib/kernels/amx_emulation.h"
#include "lib/runtime/train_task.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;

constexpr const char* kLlama =
    "[model]\ntype = \"llama\"\nlayers = 1\ndim = 32\nheads = 2\ncontext = 32\n";
constexpr const char* kGpt2 =
    "[model]\ntype = \"gpt2\"\nlayers = 1\ndim = 32\nheads = 2\ncontext = 32\ndropout = 0.1\n";
constexpr const char* kLstm = "[model]\ntype = \"lstm\"\nhidden = 24\ndropout = 0.1\nlayers = 2\n";

// A recipe on 40 short texts of different lengths: 36 to train on, 4 and a half batches.
Recipe text_recipe(const std::string& model, const std::vector<std::string>& overrides = {}) {
  static const std::string directory = [] {
    const std::string place = lumen::testing::temporary_directory();
    std::ofstream file(place + "/texts.jsonl");
    const std::string words = "the cat sat on a mat and saw the dog run";
    for (size_t i = 0; i < 40; ++i) {
      file << "{\"text\": \"" << words.substr(i % 7, 5 + i * 13 % 24) << "\"}\n";
    }
    return place;
  }();
  const std::string rest =
      "[tokenizer]\ntype = \"char\"\n[[data.train]]\npath = \"texts.jsonl\"\n[data]\nmax_length = "
      "32\n[train]\nsteps = 9\nbatch_size = 8\n[optimizer]\nlr = 1e-2\n";
  return read_recipe({"r.toml", directory + "/", model + rest}, overrides);
}

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

std::vector<double> losses(TrainTask& task, int steps) {
  std::vector<double> result;
  for (int i = 0; i < steps; ++i) result.push_back(task.step(1e-2).loss);
  return result;
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
      CHECK(task->summary().steps_per_epoch ==
            (rule == std::string("auto") || rule == std::string("drop") ? 4 : 5));
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
