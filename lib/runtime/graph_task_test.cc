// The task of real recipes: what a step does must not depend on threads, interruptions, the size of
// micro-batches or what else is asked of the task.
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "lib/base/testing.h"
#include "lib/io/atomic_file.h"
#include "lib/io/safetensors.h"
#include "lib/io/write_safetensors.h"
#include "lib/kernels/amx_emulation.h"
#include "lib/nn/parameters.h"
#include "lib/nn/rope.h"
#include "lib/runtime/bundled_recipes.h"
#include "lib/runtime/convert.h"
#include "lib/runtime/language_model.h"
#include "lib/runtime/least_loss.h"
#include "lib/runtime/session.h"
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

TEST_CASE("a tokenizer that does not fit the model is refused before training") {
  const std::string base = lumen::testing::temporary_directory(),
                    place = lumen::testing::temporary_directory();
  const Recipe small = text_recipe(kLlama);
  make_task(small, {.threads = 1})->export_model(base);
  std::ofstream(place + "/more.txt") << "0123456789 the quick brown fox jumps over the lazy dog\n";
  const std::string data =
      "[[data.train]]\npath = \"more.txt\"\n[data]\nmax_length = 8\n"
      "eval_fraction = 0\n[train]\nsteps = 1\nbatch_size = 2\n";
  make_task(read_recipe({"r.toml", place + "/",
                         std::string(kLlama) + "[tokenizer]\ntype = \"char\"\n" + data}),
            {.threads = 1})
      ->export_model(place);
  const std::string other =
      "[model]\npath = \"" + base + "\"\n[tokenizer]\npath = \"" + place + "/tokenizer.json\"\n";
  const std::string message = refusal(ErrorKind::kMismatch, [&] {
    make_task(read_recipe({"r.toml", place + "/", other + data}), {.threads = 1});
  });
  CHECK(contains(message, "they do not belong together"));
}

TEST_CASE("a GPT-2 with an output layer of its own trains and is opened") {
  const std::string place = lumen::testing::temporary_directory();
  const auto task = make_task(text_recipe(kGpt2, {"model.tie_embeddings=false"}), {.threads = 1});
  losses(*task, 3);
  const auto trained = copies(task->state().weights);
  const auto* head = trained.at("lm_head.weight").as<float>().data();
  CHECK(head[0] != trained.at("transformer.wte.weight").as<float>()[0]);
  task->export_model(place);
  CHECK(io::read_json(place + "/config.json")["tie_word_embeddings"] == false);
  const std::vector<int32_t> ids = {3, 1, 4};
  LoadOptions options;
  options.kv_type = DType::kF32;
  const auto logits = [&] {
    const Array all = LanguageModel::load(io::open_model(place), options)->logits(ids);
    return std::vector<float>(all.as<float>().begin(), all.as<float>().end());
  };
  const std::vector<float> before = logits();
  NamedArrays changed = io::read_safetensors(place + "/model.safetensors")->arrays();
  changed["lm_head.weight"] = nn::float32_copy(changed["transformer.wte.weight"]);
  for (auto& [name, array] : changed) array = nn::float32_copy(array);
  io::write_safetensors(place + "/model.safetensors", changed);
  CHECK(logits() != before);
}

TEST_CASE("start and end tokens are as the recipe says, in the result too") {
  const auto exported = [](const std::vector<std::string>& overrides) {
    const std::string place = lumen::testing::temporary_directory();
    make_task(text_recipe(kLlama, overrides), {.threads = 1})->export_model(place);
    return place;
  };
  const auto config = [](const std::string& place) {
    return io::read_json(place + "/tokenizer_config.json");
  };
  const std::string with = exported({"tokenizer.add_bos=true", "tokenizer.add_eos=false"});
  CHECK(config(with)["add_bos_token"] == true);
  CHECK(config(with)["add_eos_token"] == false);
  CHECK(text::load_tokenizer(with)->adds_bos());
  // What is not said would be Llama's own 1, 2 for transformers.
  for (const char* file : {"/config.json", "/generation_config.json"}) {
    const io::Json ids = io::read_json(exported({}) + file);
    CHECK(ids["bos_token_id"].is_null());
    CHECK(ids.contains("bos_token_id"));
    CHECK(io::read_json(with + file)["bos_token_id"].is_number());
  }
  // A tokenizer of others, with what it says itself and with the opposite.
  const auto fixed = [&](const std::string& from, const std::vector<std::string>& more) {
    std::vector<std::string> overrides = {"tokenizer.path=" + from};
    overrides.insert(overrides.end(), more.begin(), more.end());
    return exported(overrides);
  };
  CHECK(text::load_tokenizer(fixed(with, {}))->adds_bos());
  const std::string without = fixed(with, {"tokenizer.add_bos=false"});
  CHECK_FALSE(text::load_tokenizer(without)->adds_bos());
  CHECK(config(without)["add_bos_token"] == false);
  const auto again = text::load_tokenizer(fixed(without, {"tokenizer.add_bos=true"}));
  CHECK(again->adds_bos());
  CHECK(again->encode("cat").size() == 4);
  CHECK(
      contains(refusal(ErrorKind::kUsage, [&] { fixed(exported({}), {"tokenizer.add_bos=true"}); }),
               "names no bos_token"));
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
  CHECK(contains(make_task(recipe, {.threads = 1})->preview(1)[0], "[the cat] sat on"));
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
  }
}

// What follows [model] in a recipe that goes on with the model in `place`.
std::string lora_recipe(const std::string& place, const std::string& targets = "") {
  return "[model]\npath = \"" + place + "\"\n[lora]\nrank = 2\nalpha = 8\n" + targets +
         "[[data.train]]\npath = \"texts.jsonl\"\n[data]\nmax_length = 32\n[train]\nsteps = 2\n"
         "batch_size = 4\n";
}

TEST_CASE("LoRA in the last layers only: the adapter says in which, and is complete") {
  const std::string base = lumen::testing::temporary_directory(),
                    adapter = lumen::testing::temporary_directory();
  const Recipe first =
      text_recipe("[model]\ntype = \"llama\"\nlayers = 3\ndim = 32\nheads = 2\ncontext = 32\n");
  make_task(first, {.threads = 1})->export_model(base);
  const Recipe recipe =
      read_recipe({"l.toml", first.directory, lora_recipe(base, "")}, {"lora.layers=2"});
  make_task(recipe, {.threads = 1})->export_model(adapter);
  io::Json config = io::read_json(adapter + "/adapter_config.json");
  CHECK(config["layers_to_transform"] == io::Json::array({1, 2}));
  CHECK(config["base_model_name_or_path"] == base);
  LoadOptions options;
  options.lora = adapter;
  CHECK(LanguageModel::load(io::open_model(base), options)->vocab() > 0);
  // A run goes on with the base that it began with.
  const auto base_of = [&] { return make_task(recipe, {.threads = 1})->summary().base_sha256; };
  const std::string original = base_of();
  CHECK(base_of() == original);
  const std::string second = lumen::testing::temporary_directory();
  make_task(read_recipe({"o.toml", first.directory, to_toml(first)}, {"seed=7"}), {.threads = 1})
      ->export_model(second);
  std::filesystem::copy_file(second + "/model.safetensors", base + "/model.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  CHECK(base_of() != original);
  // A base beside the recipe is named so that it is found from elsewhere.
  const std::string beside = first.directory + "lora-base";
  std::filesystem::create_directory(beside);
  make_task(first, {.threads = 1})->export_model(beside);
  const std::string other = lumen::testing::temporary_directory();
  make_task(read_recipe({"l.toml", first.directory, lora_recipe("lora-base")}), {.threads = 1})
      ->export_model(other);
  CHECK(io::read_json(other + "/adapter_config.json")["base_model_name_or_path"] == beside);
  config.erase("layers_to_transform");
  io::write_file_atomically(adapter + "/adapter_config.json", config.dump());
  const std::string error = lumen::testing::refusal(
      ErrorKind::kMalformed, [&] { LanguageModel::load(io::open_model(base), options); });
  CHECK(lumen::testing::contains(error, "has no 'model.layers.0."));
}

TEST_CASE(
    "LoRA on GPT-2, whose weights lie [in, out]: adapter, merged model and bare names agree") {
  const std::string base = lumen::testing::temporary_directory();
  const Recipe first = text_recipe(kGpt2);
  make_task(first, {.threads = 1})->export_model(base);
  const auto read = [&](const std::string& more, const std::vector<std::string>& overrides) {
    return read_recipe({"l.toml", first.directory, lora_recipe(base, more)}, overrides);
  };
  const auto logits = [](const std::string& model, const std::string& lora) {
    LoadOptions options;
    options.lora = lora;
    options.kv_type = DType::kF32;
    const std::vector<int32_t> ids = {3, 1, 4, 1, 5};
    const Array all = LanguageModel::load(io::open_model(model), options)->logits(ids);
    return std::vector<float>(all.as<float>().begin(), all.as<float>().end());
  };
  const std::string adapter = lumen::testing::temporary_directory(),
                    merged = lumen::testing::temporary_directory();
  for (const bool merge : {false, true}) {
    const auto task = make_task(read("", merge ? std::vector<std::string>{"export.merge_lora=true"}
                                               : std::vector<std::string>{}),
                                {.threads = 1});
    losses(*task, 4);
    task->export_model(merge ? merged : adapter);
  }
  const io::Json config = io::read_json(adapter + "/adapter_config.json");
  CHECK(config["target_modules"] == io::Json({"c_attn", "c_fc", "c_proj"}));
  CHECK(config["fan_in_fan_out"] == true);
  CHECK_FALSE(config.contains("layers_to_transform"));
  const std::vector<float> with_adapter = logits(base, adapter), of_merged = logits(merged, ""),
                           before = logits(base, "");
  for (size_t i = 0; i < before.size(); ++i) CHECK(with_adapter[i] == Approx(of_merged[i]));
  CHECK_FALSE(with_adapter[0] == Approx(before[0]));

  RunOptions run;
  run.model = base;
  run.lora = adapter;
  const std::string own = "{{ messages[0]['content'] }}:";
  std::ofstream(adapter + "/chat_template.jinja") << own;
  CHECK(load_session(run).format.chat_template()->source() == own);
  run.lora.reset();
  CHECK(load_session(run).format.chat_template()->source() != own);

  NamedArrays bare;
  const std::string file = base + "/model.safetensors";
  for (const auto& [name, array] : io::read_safetensors(file)->arrays()) {
    bare[name.substr(std::string("transformer.").size())] = nn::float32_copy(array);
  }
  bare["h.0.attn.bias"] = Array::zeros(DType::kF32, {1, 1, 32, 32});  // a causal mask
  io::write_safetensors(file, bare);
  CHECK(logits(base, adapter) == with_adapter);

  CHECK(contains(refusal(ErrorKind::kMalformed,
                         [&] { make_task(read("targets = [\"q_proj\"]\n", {}), {.threads = 1}); }),
                 "called 'q_proj'; there are c_attn, c_fc, c_proj"));
}

// A recipe that goes on with all weights of `base` for a few steps.
Recipe whole_recipe(const std::string& base, const std::vector<std::string>& overrides = {}) {
  const std::string text = "[model]\npath = \"" + base +
                           "\"\n[[data.train]]\npath = \"texts.jsonl\"\n[data]\nmax_length = 32\n"
                           "on_too_long = \"split\"\n[train]\nsteps = 3\nbatch_size = 8\n"
                           "[optimizer]\nlr = 1e-2\nweight_decay = 0.5\n";
  return read_recipe({"w.toml", text_recipe(kLlama).directory, text}, overrides);
}

TEST_CASE("a model that is trained on keeps its end tokens and settings, and says its own type") {
  const std::string base = lumen::testing::temporary_directory(),
                    place = lumen::testing::temporary_directory();
  make_task(text_recipe(kLlama), {.threads = 1})->export_model(base);
  io::Json config = io::read_json(base + "/config.json");
  config["dtype"] = "bfloat16";
  config["torch_dtype"] = nullptr;
  config["eos_token_id"] = {5, 6};
  config["bos_token_id"] = 4;
  io::write_file_atomically(base + "/config.json", config.dump());
  const io::Json generation = {{"_from_model_config", true},
                               {"temperature", 0.5},
                               {"top_k", 3},
                               {"bos_token_id", 4},
                               {"eos_token_id", {5, 6}}};
  io::write_file_atomically(base + "/generation_config.json", generation.dump());
  const auto own = text::load_tokenizer(base)->special_ids().eos;
  REQUIRE(own);
  for (const char* dtype : {"f32", "f16"}) {
    make_task(whole_recipe(base, {str("export.dtype=", dtype)}), {.threads = 1})
        ->export_model(place);
    const io::Json result = io::read_json(place + "/config.json");
    CHECK(result["dtype"] == (std::string(dtype) == "f32" ? "float32" : "float16"));
    CHECK(result["torch_dtype"] == result["dtype"]);
    CHECK(result["eos_token_id"] == io::Json({5, 6}));
    const io::Json kept = io::read_json(place + "/generation_config.json");
    CHECK(kept["temperature"] == 0.5);
    CHECK(kept["top_k"] == 3);
    CHECK(kept["bos_token_id"] == 4);
    CHECK(kept["eos_token_id"] == io::Json({5, 6, *own}));
    CHECK_FALSE(kept.contains("_from_model_config"));
  }
  // With another tokenizer they would be other tokens.
  make_task(whole_recipe(base, {"tokenizer.path=" + base + "/tokenizer.json"}), {.threads = 1})
      ->export_model(place);
  CHECK(io::read_json(place + "/config.json")["eos_token_id"] == *own);
  CHECK_FALSE(io::read_json(place + "/generation_config.json").contains("top_k"));
}

TEST_CASE("what only GGUF says of positions and windows stands in config.json of the result") {
  const std::string base = lumen::testing::temporary_directory(),
                    place = lumen::testing::temporary_directory();
  make_task(text_recipe(kLlama, {"tokenizer.type=byte_bpe", "tokenizer.vocab_size=300"}),
            {.threads = 1})
      ->export_model(base);
  io::Json config = io::read_json(base + "/config.json");
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 16}};
  config["model_type"] = "mistral";
  config["sliding_window"] = 3;
  io::write_file_atomically(base + "/config.json", config.dump());
  ConvertOptions convert_options;
  convert_options.model = base;
  convert_options.output = base + "/model.gguf";
  convert_options.type = "f32";
  REQUIRE(convert(convert_options) == 0);
  const auto logits = [](const std::string& model) {
    LoadOptions options;
    options.kv_type = DType::kF32;
    const std::vector<int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6};
    const Array all = LanguageModel::load(io::open_model(model), options)->logits(ids);
    return std::vector<float>(all.as<float>().begin(), all.as<float>().end());
  };
  const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](float x, float y) { return x == Approx(y).margin(1e-4); });
  };
  CHECK(same(logits(base + "/model.gguf"), logits(base)));
  for (const bool merge : {false, true}) {
    const auto task =
        make_task(merge ? read_recipe({"l.toml", text_recipe(kLlama).directory,
                                       lora_recipe(base + "/model.gguf", "")},
                                      {"export.merge_lora=true", "data.on_too_long=split"})
                        : whole_recipe(base + "/model.gguf"),
                  {.threads = 1});
    losses(*task, 3);
    task->export_model(place);
    const io::Json result = io::read_json(place + "/config.json");
    CHECK(result["rope_scaling"] == config["rope_scaling"]);
    CHECK(result["model_type"] == "mistral");
    CHECK(result["sliding_window"] == 3);
    const NamedArrays tensors = io::read_safetensors(place + "/model.safetensors")->arrays();
    CHECK_FALSE(tensors.contains("rope_freqs.weight"));
    // The tensor itself is not trained, nor made smaller by the weight decay.
    const auto weights = task->state().weights;
    if (const auto divisors = weights.find("rope_freqs.weight"); divisors != weights.end()) {
      CHECK(divisors->second.as<float>()[0] == nn::rope_divisors(config, 16)[0]);
    }
  }
}

TEST_CASE("LoRA on a recurrent network says what can have an addition") {
  const std::string base = lumen::testing::temporary_directory();
  const Recipe first = text_recipe(kLstm);
  make_task(first, {.threads = 1})->export_model(base);
  const auto error = [&](const std::string& targets, ErrorKind kind) {
    return refusal(kind, [&] {
      make_task(read_recipe({"l.toml", first.directory, lora_recipe(base, targets)}),
                {.threads = 1});
    });
  };
  CHECK(contains(error("", ErrorKind::kUnsupported),
                 "this lstm has no linear layer but its output (lora.targets = [\"lm_head\"])"));
  CHECK(contains(error("targets = [\"rnn\"]\n", ErrorKind::kMalformed),
                 "called 'rnn'; there are lm_head"));
  CHECK(error("targets = [\"lm_head\"]\n", ErrorKind::kMalformed) == "accepted");
}

TEST_CASE("what only data or model show to be wrong is an error at its key") {
  const std::string place = lumen::testing::temporary_directory();
  std::ofstream(place + "/t.csv") << "x,n,r,word\n1,3,0.5,a\n2,4,1.5,b\n3,5,2.5,a\n4,3,3.5,b\n";
  const std::string table =
      "[model]\ntype = \"mlp\"\nhidden = [4]\n[[data.train]]\npath = \"t.csv\"\n[train]\nsteps = "
      "1\nbatch_size = 2\n[data]\neval_fraction = 0\nlabel = ";
  const auto make = [&](const std::string& text, const std::vector<std::string>& overrides = {}) {
    return make_task(read_recipe({"r.toml", place + "/", text}, overrides), {.threads = 1});
  };
  const auto error = [&](const std::string& text, const std::vector<std::string>& overrides = {},
                         ErrorKind kind = ErrorKind::kMalformed) {
    return refusal(kind, [&] { make(text, overrides); });
  };
  CHECK(contains(error("task = \"classify\"\n" + table + "\"r\"\n"),
                 "r.toml:1:8: task: classify needs classes, and the label has numbers"));
  CHECK(contains(error("task = \"regress\"\n" + table + "\"word\"\n"),
                 "r.toml:1:8: task: regress needs numbers, and the label has classes"));
  CHECK(contains(error(table + "\"word\"\n[optimizer]\nno_decay = [\"1d\", \"nosuch\"]\n"),
                 "optimizer.no_decay: 'nosuch' is of no parameter"));
  CHECK(contains(error(table + "\"r\"\n", {"task=classify"}, ErrorKind::kUsage),
                 "--set task: classify needs classes"));
  CHECK(contains(error(table + "\"r\"\n[checkpoint]\nmetric = \"eval_accuracy\"\n"),
                 ": checkpoint.metric: 'eval_accuracy' is not measured: the label has numbers"));
  CHECK(contains(error(table + "\"word\"\nlast_batch = \"drop\"\n", {"train.batch_size=5"}),
                 "r.toml:12:14: data.last_batch: drop leaves no batch: batch_size is 5, and there "
                 "are 4 samples"));
  const std::string language = std::string(kLlama) +
                               "[tokenizer]\ntype = \"char\"\n[[data.train]]\npath = "
                               "\"rows.jsonl\"\n[train]\nsteps = 1\n";
  std::ofstream(place + "/rows.jsonl") << "[{\"text\": \"an array of all rows\"}]\n";
  CHECK(
      contains(error(language), "rows.jsonl: line 1, column 1: found an array of 1, expected an"));
  std::ofstream(place + "/rows.jsonl") << "\n\n";
  CHECK(contains(error(language), "rows.jsonl: has no text to train a tokenizer on"));
  std::ofstream(place + "/rows.jsonl") << "{\"text\": \"one two\"}\n";
  const std::vector<std::string> few = {"tokenizer.type=bpe", "tokenizer.vocab_size=262"};
  CHECK(contains(error(language, few, ErrorKind::kUsage),
                 "--set tokenizer.vocab_size: vocab_size = 262 is too small for the characters of "
                 "the text; "));
  std::ofstream(place + "/long.txt") << "one text\n<end>\nanother\n<end>\na third\n";
  std::string windows = language;
  windows.replace(windows.find("rows.jsonl"), 10, "long.txt");
  for (const std::string key : {"pack = true", "on_too_long = \"split\""}) {
    const std::string name = "data." + key.substr(0, key.find(' '));
    CHECK(contains(error(windows + "[data]\n" + key + "\n"), ": " + name + ": has no effect on"));
    CHECK(error(windows + "[data]\nseparator = \"<end>\"\n" + key + "\n") == "accepted");
  }
  const std::vector<std::string> with_template = {"tokenizer.chat_template=t.jinja"};
  std::ofstream(place + "/t.jinja") << "{{ x(";
  CHECK(contains(error(language, with_template), place + "/t.jinja:1: "));
  std::ofstream(place + "/t.jinja") << "";
  CHECK(contains(error(language, with_template), place + "/t.jinja: the chat template is empty"));
  std::ofstream(place + "/rows.jsonl", std::ios::app) << "{bad\n";
  const std::vector<std::string> notices =
      make(language, {"data.on_bad_row=skip", "data.eval_fraction=0"})->summary().notices;
  REQUIRE(notices.size() == 1);
  CHECK(notices[0].starts_with("skipped: " + place + "/rows.jsonl: line 2, column 2: "));
  // Integers are what the task says; without one the label decides, and a printed recipe keeps
  // that.
  const auto kind = [&](const std::string& text) {
    const std::string printed = to_toml(read_recipe({"r.toml", place + "/", text}));
    return make(printed)->summary().batch.find("a number as label") == std::string::npos
               ? "classes"
               : "numbers";
  };
  CHECK(kind("task = \"regress\"\n" + table + "\"n\"\n") == std::string("numbers"));
  CHECK(kind(table + "\"n\"\n") == std::string("classes"));
  CHECK(kind(table + "\"r\"\n") == std::string("numbers"));

  const std::string group = table + "\"n\"\n[[optimizer.groups]]\nmatch = \"zzz*\"\n";
  CHECK(
      contains(error(group), "r.toml:13:9: optimizer.groups[0].match: 'zzz*' is of no parameter"));

  make(table + "\"n\"\n")->export_model(place);
  const std::string onward = lora_recipe(place);
  CHECK(contains(error(onward), "r.toml:2:8: model.path: " + place + " is a classifier"));
  CHECK(
      contains(error(onward, {"data.train.path=t.csv", "data.train.format=csv"}, ErrorKind::kUsage),
               "to go on with a classifier give model.type and model.weights"));

  // Learnt positions end.
  make_task(text_recipe(kGpt2), {.threads = 1})->export_model(place);
  const std::string directory = text_recipe(kGpt2).directory;
  const auto rows = [&](const std::string& length) {
    return make_task(
        read_recipe({"r.toml", directory,
                     "[model]\npath = \"" + place +
                         "\"\n[[data.train]]\npath = \"texts.jsonl\"\n[train]\nsteps = "
                         "1\nbatch_size = 2\n[data]\n" +
                         length}),
        {.threads = 1});
  };
  CHECK(std::isfinite(rows("")->step(1e-3).loss));
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { rows("max_length = 33\n"); }),
                 ": data.max_length: rows of 33 tokens do not fit into the 32 positions"));
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
