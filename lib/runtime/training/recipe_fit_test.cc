// What only its data or its model show to be wrong with a recipe.
#include "lib/runtime/training/recipe_fit.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "lib/base/limits.h"
#include "lib/io/mapped_file.h"
#include "lib/runtime/training/text_recipes.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;
using testing::kGpt2;
using testing::kLlama;
using testing::kLstm;
using testing::lora_recipe;
using testing::text_recipe;

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
  CHECK(contains(error(table + "\"r\"\n", {"train.label_smoothing=0.1"}, ErrorKind::kUsage),
                 "--set train.label_smoothing: the label has numbers, no classes to spread it"));
  CHECK(contains(error(table + "\"r\"\ndrop_columns = [\"x\", \"r\"]\n"),
                 "r.toml:12:16: data.drop_columns: 'r' is the label"));
  const std::string digits =
      "[model]\ntype = \"mlp\"\n[[data.train]]\nformat = \"digits\"\n[train]\nsteps = 1\n[data]\n";
  CHECK(error(digits + "channels = 2\n") ==
        "r.toml:8:12: data.channels: 2, expected 1 (grey) or 3 (colours)");
  CHECK(error(digits + "image_size = 3\n") ==
        "r.toml:8:14: data.image_size: 3, expected 8 to 256 for digits");
  CHECK(error(digits + "image_size = 12\n", {"model.type=lenet"}, ErrorKind::kUsage) ==
        "--set model.type: lenet needs images [channels, height, width] of at least 16×16; found "
        "[1, 12, 12]");
  CHECK(error(digits + "std = [1, 1]\nmean = [0, 0]\n") ==
        "r.toml:9:8: data.mean: 2 numbers, the images have 1 channel");
  CHECK(contains(error(table + "\"r\"\n", {"data.train.path=none.csv"}, ErrorKind::kMissing),
                 "--set data.train[0].path: there is no 'none.csv' in "));
  CHECK(error(table + "\"r\"\n", {"model.weights="}, ErrorKind::kMissing) ==
        "--set model.weights: is empty, expected a path");
  CHECK(contains(error("[model]\ntype = \"mlp\"\n[train]\nsteps = 1\n[[data.train]]\npath = "
                       "\"none.csv\"\n",
                       {}, ErrorKind::kMissing),
                 "r.toml:6:8: data.train[0].path: there is no 'none.csv' in "));
  CHECK(error(table + "\"r\"\n", {"data.train.path=/no/where.csv"}, ErrorKind::kMissing) ==
        "--set data.train[0].path: there is no '/no/where.csv'");
  CHECK(contains(error("[model]\npath = \"/no/where\"\n[train]\nsteps = 1\n[[data.train]]\npath = "
                       "\"builtin:chat\"\n",
                       {}, ErrorKind::kMissing),
                 "r.toml:2:8: model.path: /no/where: no such file"));
  CHECK(error("[model]\npath = \"\"\n[train]\nsteps = 1\n[[data.train]]\npath = "
              "\"builtin:chat\"\n",
              {}, ErrorKind::kMissing) == "r.toml:2:8: model.path: is empty, expected a path");
  CHECK(contains(error(table + "\"word\"\n[optimizer]\nno_decay = [\"1d\", \"nosuch\"]\n"),
                 "optimizer.no_decay: 'nosuch' is of no parameter"));
  CHECK(contains(error(table + "\"r\"\n", {"task=classify"}, ErrorKind::kUsage),
                 "--set task: classify needs classes"));
  CHECK(contains(error(table + "\"r\"\n[checkpoint]\nmetric = \"eval_accuracy\"\n"),
                 ": checkpoint.metric: 'eval_accuracy' is not measured: the label has numbers"));
  CHECK(contains(error(table + "\"word\"\nlast_batch = \"drop\"\n", {"train.batch_size=5"}),
                 "r.toml:12:14: data.last_batch: drop leaves no batch: batch_size is 5, and there "
                 "are 4 samples"));
  std::ofstream(place + "/one.csv") << "x,r\n1,0.5\n";  // of which no part is kept
  const std::vector<std::pair<std::string, std::string>> followers = {
      {"eval.early_stop.patience", "eval.early_stop.patience=2"},
      {"schedule.type", "schedule.type=plateau"},
      {"export.weights", "export.weights=best"}};
  for (const auto& [key, follows] : followers) {
    const std::vector<std::string> few = {"data.train.path=one.csv", "data.eval_fraction=0.1",
                                          follows};
    CHECK(contains(error(table + "\"r\"\n", few, ErrorKind::kUsage),
                   "--set " + key + ": follows evaluations, and there is nothing to evaluate on"));
  }
  const std::string language = std::string(kLlama) +
                               "[tokenizer]\ntype = \"char\"\n[[data.train]]\npath = "
                               "\"rows.jsonl\"\n[train]\nsteps = 1\n";
  std::ofstream(place + "/rows.jsonl") << "[{\"text\": \"an array of all rows\"}]\n";
  CHECK(contains(error(language),
                 "rows.jsonl: line 1, column 1: found the beginning of an array, expected an"));
  std::ofstream(place + "/rows.jsonl") << "\n\n";
  CHECK(contains(error(language), "rows.jsonl: has no text to train a tokenizer on"));
  std::ofstream(place + "/rows.jsonl") << "{\"text\": \"one two\"}\n";
  const std::vector<std::string> small = {"tokenizer.type=bpe", "tokenizer.vocab_size=262"};
  CHECK(contains(error(language, small, ErrorKind::kUsage),
                 "--set tokenizer.vocab_size: vocab_size = 262 is too small for the characters of "
                 "the text; "));
  const auto told = make(language, {"tokenizer.type=bpe", "tokenizer.vocab_size=5000"});
  REQUIRE(told->summary().notices.size() == 1);
  CHECK(contains(told->summary().notices[0],
                 "tokenizer.vocab_size is 5000, but the texts give only "));
  CHECK(error(language + "[data]\nmask = \"prompt\"\n",
              {"tokenizer.special_tokens=[\"<|im_start|>\", \"<|im_end|>\", \"x\"]"}) ==
        "accepted");
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

TEST_CASE("LoRA on the output does not go with LoRA on the last blocks only") {
  const std::string base = lumen::testing::temporary_directory();
  const Recipe first = text_recipe(kLlama, {"model.layers=2", "model.tie_embeddings=false"});
  make_task(first, {.threads = 1})->export_model(base);
  const std::string targets = "targets = [\"q_proj\", \"lm_head\"]\n";
  const auto make = [&](const std::string& lora) {
    make_task(read_recipe({"l.toml", first.directory, lora_recipe(base, lora)}), {.threads = 1});
  };
  make(targets);
  CHECK(contains(refusal(ErrorKind::kMalformed, [&] { make(targets + "layers = 1\n"); }),
                 ": lora.layers: the last 1 blocks have no 'lm_head', which lora.targets names"));
}

// What a run on `rows` with a chat template tells beforehand of the ends of answers.
std::vector<std::string> told_of(const std::string& chat_template, const std::string& rows,
                                 std::vector<std::string> overrides = {},
                                 const std::string& special_tokens = "") {
  const std::string place = lumen::testing::temporary_directory();
  std::ofstream(place + "/rows.jsonl") << rows;
  std::ofstream(place + "/t.jinja") << chat_template;
  const std::string text = str(kLlama, "[tokenizer]\ntype = \"char\"\nspecial_tokens = [",
                               special_tokens, "]\n[[data.train]]\npath = \"rows.jsonl\"\n[data]\n",
                               "max_length = 4096\neval_fraction = 0\n[train]\nsteps = 1\n");
  overrides.emplace_back("model.context=4096");
  if (!chat_template.empty()) overrides.emplace_back("tokenizer.chat_template=t.jinja");
  auto told = make_task(read_recipe({"r.toml", place + "/", text}, overrides), {.threads = 1})
                  ->summary()
                  .notices;
  std::erase_if(told, [](const std::string& one) { return !contains(one, "learn to stop"); });
  return told;
}

constexpr const char* kOneTurn = R"({"messages": [{"role": "user", "content": "Hi"},
                                     {"role": "assistant", "content": "Yo"}]})";

std::string lines_of(std::string json) {
  std::replace(json.begin(), json.end(), '\n', ' ');
  return json + "\n" + json + "\n";
}

TEST_CASE("a chat template that does not end the last turn is told of, with what to set") {
  const std::string one = lines_of(kOneTurn);
  const std::string two = lines_of(R"({"messages": [{"role": "user", "content": "Hi"},
      {"role": "assistant", "content": "Yo"}, {"role": "user", "content": "Hi"},
      {"role": "assistant", "content": "Ho"}]})");
  const std::string open =
      "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
      "{% if add_generation_prompt %}assistant: {% endif %}";
  const auto told = told_of(open, one);
  REQUIRE(told.size() == 1);
  CHECK(
      told[0].ends_with("/t.jinja: does not end the last turn with a token that ends texts, so "
                        "that the model does not learn to stop there; set tokenizer.add_eos = "
                        "true"));
  CHECK(told_of(open, one, {"tokenizer.add_eos=true"}).empty());
  CHECK(told_of(open, one, {"tokenizer.add_eos=false"}).empty());  // as it was asked for
  CHECK(told_of(open, one, {"data.mask=[\"none\"]"}).size() == 1);
  CHECK(told_of("", one).empty());  // ChatML
  CHECK(told_of("{% for m in messages %}{{ m.role }}: {{ m.content }}"
                "{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}\n{% endfor %}",
                one)
            .empty());
  const std::string between =
      "{% for m in messages %}{{ m.role }}: {{ m.content }}"
      "{% if not loop.last %}<|im_end|>{% endif %}{% endfor %}";
  CHECK(told_of(between, one).size() == 1);
  CHECK(told_of(between, two).size() == 1);
  // The last turn is the user's: of ends only the one before tells, and that little.
  const std::string asks = lines_of(R"({"messages": [{"role": "user", "content": "Hi"},
      {"role": "assistant", "content": "Yo"}, {"role": "user", "content": "Hi"}]})");
  const std::vector<std::string> answers = {"data.mask=[\"prompt\"]"};
  CHECK(told_of("", asks, answers).empty());
  CHECK(told_of(open, asks, answers).size() == 1);
  CHECK(told_of(between, asks, answers).empty());
  CHECK(told_of(between, asks + one, answers).size() == 1);
  CHECK(told_of(open, "{\"text\": \"Hi\"}\n{\"text\": \"Yo\"}\n").empty());
  CHECK(told_of(open, "{\"prompt\": \"Hi\", \"completion\": \"Yo\"}\n").empty());
}

TEST_CASE("the chat templates of published models end the last turn, but for a few") {
  LUMEN_SHARED_DATA(root, "chat-templates/jinja");
  // Their texts end with nothing, or the next turn's beginning is what ends an answer.
  const std::set<std::string> open = {"cz-falcon-instruct", "ik-Apertus-8B-Instruct", "ik-GLM-4.6"};
  for (const auto& file : std::filesystem::directory_iterator(root)) {
    const std::string name = file.path().stem().string();
    if (name.ends_with("tool_use")) continue;  // which asks for tools
    INFO(name);
    std::string source = io::read_file(file.path().string(), limits::kTemplateBytes);
    const std::string own = "<｜end▁of▁sentence｜>";
    for (size_t at = source.find(own); at != source.npos; at = source.find(own)) {
      source.replace(at, own.size(), "<|im_end|>");  // what the tokenizer here has for it
    }
    const std::string specials =
        name.find("gpt-oss") != name.npos
            ? R"("<|return|>", "<|call|>", "<|channel|>", "<|message|>", "<|start|>", "<|end|>")"
            : R"("<|eot_id|>", "<|end|>", "<end_of_turn>", "</s>", "<|eom_id|>", )"
              R"("<|end_of_text|>", "<|end_of_turn|>", "<|endoftext|>")";
    const auto told = told_of(source, lines_of(kOneTurn), {"tokenizer.add_bos=true"}, specials);
    CHECK(told.size() == open.count(name));
  }
}

}  // namespace
}  // namespace lumen::runtime
