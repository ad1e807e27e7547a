#include "lib/runtime/training/recipe.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "lib/base/testing.h"
#include "lib/runtime/training/bundled_recipes.h"
#include "lib/runtime/training/recipe_keys.h"

namespace lumen::runtime {
namespace {

using lumen::testing::contains;
using lumen::testing::refusal;

const std::string kMinimal =
    "[model]\ntype = \"mlp\"\n[[data.train]]\nformat = \"digits\"\n[train]\nsteps = 10\n";
const std::string kLlamaRecipe =
    "[model]\ntype = \"llama\"\ndim = 64\nheads = 4\n[tokenizer]\ntype = \"char\"\n"
    "[[data.train]]\npath = \"a.txt\"\n[train]\nepochs = 2\n";

Recipe read(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return read_recipe({"dir/r.toml", "dir/", text}, overrides);
}

std::string error_of(const std::string& text, const std::vector<std::string>& overrides = {},
                     ErrorKind kind = ErrorKind::kMalformed) {
  return refusal(kind, [&] { read(text, overrides); });
}

TEST_CASE("a name that would lead out of runs/ is refused") {
  for (const char* name : {"../up", "/tmp/x", ".", "a/b"}) {
    CHECK(contains(error_of(str("name = \"", name, "\"\n", kMinimal)),
                   str("name = ", quoted(name), " cannot be a directory in runs/")));
  }
  CHECK(read(str("name = \"a/b\"\noutput_dir = \"out\"\n", kMinimal)).output_dir == "out");
  CHECK(error_of(str("output_dir = \"a\\u0000b\"\n", kMinimal)) ==
        "dir/r.toml:1:14: output_dir: no path has the character U+0000");
}

TEST_CASE("a recipe of a few lines is complete") {
  const Recipe recipe = read(kMinimal);
  CHECK(recipe.name == "r");
  CHECK(recipe.task == "classify");
  CHECK(recipe.output_dir == "runs/r");
  CHECK(recipe.model.hidden == std::vector<int64_t>{128});
  CHECK(recipe.model.activation == "relu");
  CHECK(recipe.train.steps == 10);
  CHECK_FALSE(recipe.train.epochs);
  CHECK(recipe.train.micro_batch == 32);
  CHECK(recipe.optimizer.weight_decay == 0.01);
  CHECK(read(kMinimal, {"schedule.type=one_cycle"}).schedule.warmup == 0.3);
  const Recipe llama = read(kLlamaRecipe);
  CHECK(llama.task == "lm");
  CHECK(llama.model.kv_heads == 4);
  CHECK(llama.model.head_dim == 16);
  CHECK(llama.model.ffn == 192);
  CHECK(llama.data.train[0].format == "text");
  CHECK(llama.data.max_length == 256);
  CHECK(llama.data.mask == std::vector<std::string>{"none"});
}

TEST_CASE("unknown keys are refused with place and suggestion") {
  CHECK(error_of(kMinimal + "batchsize = 3\n") ==
        "dir/r.toml:7:1: unknown key 'batchsize' in [train]; did you mean batch_size?");
  CHECK(contains(error_of(kMinimal + "lr = 3\n"), "dir/r.toml:7:1: "));
  CHECK(contains(error_of(kMinimal + "weight_decay = 3\n"), "belongs to [optimizer]"));
  CHECK(contains(error_of(kMinimal + "[optimiser]\nlr = 1\n"), "did you mean optimizer?"));
  CHECK(contains(error_of("sed = 3\n" + kMinimal), "dir/r.toml:1:1: unknown key 'sed'"));
  CHECK(contains(error_of(kMinimal + "[[data.trian]]\npath = 1\n"), "did you mean train?"));
  CHECK(contains(
      error_of(kMinimal + "[eval.early_stop]\npatince = 1\n"),
      "dir/r.toml:8:1: unknown key 'patince' in [eval.early_stop]; did you mean patience?"));
  CHECK(contains(error_of(kMinimal + "\"\\u001b[31m\" = 1\n"), "unknown key"));
  CHECK(contains(error_of(kMinimal + "[EVAL]\nevery = 1\n"), "did you mean eval?"));
  // A key of another table is meant, however near one of this table is.
  CHECK(contains(error_of(kMinimal + "[data]\npath = \"x\"\n"),
                 "unknown key 'path' in [data]; path belongs to [model], [tokenizer], "
                 "[[data.train]], [[data.eval]]"));
  CHECK(contains(error_of(kMinimal + "every = 1\n"),
                 "every belongs to [eval], [checkpoint], [log], [log.samples]"));
  CHECK(contains(error_of(kMinimal + "[early_stop]\npatience = 1\n"),
                 "early_stop belongs to [eval]"));
}

// Every key: a value of a wrong type, and values beyond its range, are refused where they stand.
TEST_CASE("every key refuses a wrong type and a value out of range, with its place") {
  Recipe any;
  any.data.train.resize(1);
  any.data.eval.resize(1);
  any.optimizer.groups.resize(1);
  int keys = 0;
  for (const RecipeTable& table : recipe_tables(any)) {
    const std::string name = table.name.substr(0, table.name.find('['));
    const std::string open =
        name.empty() ? "" : (table.repeated ? "[[" + name + "]]\n" : "[" + name + "]\n");
    for (const RecipeKey& key : table.keys) {
      ++keys;
      CAPTURE(table.name, key.name);
      CHECK_FALSE(key.help.empty());
      std::vector<std::string> bad = {key.type == KeyType::kText ? "5" : "\"abc\"", "[[1]]"};
      if (key.type != KeyType::kText) bad.push_back("nan");
      if (key.type == KeyType::kInteger) bad.insert(bad.end(), {"1.5", "true"});
      if (!key.limits.choices.empty()) bad.push_back("\"nonsense\"");
      if (std::isfinite(key.limits.min)) bad.push_back(key.limits.above_min ? "0" : "-1");
      if (std::isfinite(key.limits.max)) bad.push_back("1e300");
      for (const std::string& value : bad) {
        CAPTURE(value);
        const std::string error = error_of(open + key.name + " = " + value + "\n");
        const std::string line = open.empty() ? "1" : "2";
        CHECK(error.starts_with("dir/r.toml:" + line + ":"));
        CHECK(contains(error, key.name));
        CHECK(contains(error, "expected"));
      }
    }
  }
  CHECK(keys > 100);
}

TEST_CASE("contradictions are refused and say what would work") {
  CHECK(
      error_of(kMinimal + "epochs = 3\n").starts_with("dir/r.toml:6:9: train.steps: epochs and "));
  CHECK(
      contains(error_of(kMinimal + "batch_size = 64\nmicro_batch = 12\n"),
               "dir/r.toml:8:15: train.micro_batch: micro_batch = 12 does not divide batch_size = "
               "64; 1, 2, 4, 8, 16, 32 or 64 would"));
  CHECK(contains(error_of("[model]\ntype = \"mlp\"\n[[data.train]]\npath = \"cats-and-dogs\"\n"
                          "[train]\nsteps = 10\n"),
                 "pictures in a directory per class are \"images\""));
  const std::pair<const char*, const char*> cases[] = {
      {"[model]\ntype = \"mlp\"\nheads = 4\n", "model.heads is not used by type 'mlp'"},
      {"[model]\ntype = \"mlp\"\npath = \"x\"\n", "type and path are both given"},
      {"[optimizer]\ntype = \"adamw\"\nmomentum = 0.9\n", "not used by type 'adamw'"},
      {"[optimizer]\ntype = \"sgd\"\nnesterov = true\n", "nesterov needs a momentum"},
      {"[schedule]\ntype = \"step\"\n", "step needs schedule.step_size"},
      {"[schedule]\ntype = \"cosine\"\nmin_lr = 1.0\n", "is above optimizer.lr"},
      {"[schedule]\nwarmup = 11\n", "is longer than the run of 10"},
      {"[lora]\nrank = 8\n", "give model.path"},
      {"[lora]\nalpha = 8\n", "lora.alpha needs lora.rank"},
      {"[tokenizer]\ntype = \"char\"\n", "has no text"},
      {"[data]\npack = true\n", "not used by format 'digits'"},
      {"task = \"lm\"\n", "needs a language model"},
      {"[[data.eval]]\npath = \"a.parquet\"\n", "export them to JSON Lines or CSV"},
      {"[data]\neval_fraction = 0.0\n[eval.early_stop]\npatience = 3\n", "nothing to evaluate"},
      {"[export]\nmerge_lora = true\n", "no LoRA"},
      {"[checkpoint]\nkeep_best = 0\n[export]\nweights = \"best\"\n", "best needs"},
      {"[checkpoint]\nevery = 0\n[export]\nweights = \"best\"\n", "best needs checkpoints"},
      {"[[optimizer.groups]]\nlr_factor = 2.0\n", "match is missing"},
      {"[checkpoint]\nmetric = \"eval_perplexity\"\n",
       "'eval_perplexity' is not measured; the task classify has eval_loss, eval_accuracy"},
      {"[eval]\nearly_stop = {patience = 2, metric = \"loss\"}\n", "'loss' is not measured"},
      {"[tokenizer]\npath = \"x\"\nspecial_tokens = [\"<a>\"]\n",
       "tokenizer.special_tokens needs a tokenizer.type"},
  };
  for (const auto& [extra, message] : cases) {
    CAPTURE(extra);
    std::string base = kMinimal;
    const std::string text = extra;
    if (text.starts_with("[model]")) base = base.substr(base.find("[[data"));
    const std::string error = error_of(text.starts_with("task") ? text + base : base + text);
    CHECK(contains(error, message));
    CHECK(error.starts_with("dir/r.toml:"));
  }
  CHECK(contains(error_of("[model]\ntype = \"mlp\"\n[train]\nsteps = 1\n"), "[[data.train]]"));
  const std::string text = "[train]\nsteps = 1\n[[data.train]]\npath = ";
  CHECK(error_of(text + "\"x.txt\"\n[tokenizer]\ntype = \"char\"\n[model]\ntype = \"gpt2\"\nbias = "
                        "false\n")
            .starts_with("dir/r.toml:9:8: model.bias: "));
  CHECK(error_of(text + "\"x.bin\"\n[model]\ntype = \"gpt2\"\n[tokenizer]\nadd_eos = true\n")
            .starts_with("dir/r.toml:8:11: tokenizer.add_eos: "));
  CHECK(contains(error_of("[model]\ntype = \"mlp\"\n[[data.train]]\nformat = \"digits\"\n"),
                 "one of epochs, steps, tokens and time"));
  const auto llama = [](const std::string& override_text) {
    return error_of(kLlamaRecipe, {override_text}, ErrorKind::kUsage);
  };
  CHECK(llama("model.heads=5") ==
        "--set model.heads: heads = 5 does not divide dim = 64; 1, 2, 4, 8, 16, 32 or "
        "64 would");
  CHECK(contains(llama("model.kv_heads=3"), "1, 2 or 4 would"));
  CHECK(contains(llama("model.rope_theta=1e-9"), "model.rope_theta: expected a number from 0.001"));
  CHECK(contains(llama("model.norm_eps=2"), "model.norm_eps: expected a number above 0 up to 1"));
  CHECK(contains(llama("model.dim=1048576"),
                 "model.dim: dim = 1048576 gives feed-forward layers of 2796224, the limit is "
                 "1048576; give model.ffn"));
  CHECK(contains(llama("data.max_length=300"), "model.context = 256"));
  CHECK(contains(
      error_of(kLlamaRecipe, {"tokenizer.type=bpe", "tokenizer.vocab_size=60"}, ErrorKind::kUsage),
      "vocab_size = 60; bpe needs at least 261"));
  CHECK(contains(llama("checkpoint.metric=eval_accuracy"),
                 "has eval_loss, eval_perplexity, eval_bits_per_byte"));
  const std::string lstm =
      "[model]\ntype = \"lstm\"\n[tokenizer]\ntype = \"char\"\n[[data.train]]\npath = "
      "\"a.jsonl\"\n[train]\nsteps = 1\n";
  CHECK(
      contains(error_of(lstm, {"data.pack=true"}, ErrorKind::kUsage), "only attention keeps them"));
  CHECK(contains(error_of(lstm, {"data.train.path=a.bin"}), "bin data are token ids already"));
  CHECK(contains(
      error_of(kLlamaRecipe, {"train.time=30m", "schedule.type=cosine"}, ErrorKind::kUsage),
      "number of steps is not known"));
}

TEST_CASE("--set overrides with the same checks") {
  CHECK(read(kMinimal, {"train.steps=20"}).train.steps == 20);
  CHECK(read(kMinimal, {"train.steps=1e3"}).train.steps == 1000);
  CHECK(read(kMinimal, {"optimizer.lr=3e-4", "seed=7"}).optimizer.lr == 3e-4);
  CHECK(read(kMinimal, {"model.hidden=[64, 32]"}).model.hidden == std::vector<int64_t>{64, 32});
  CHECK(read(kMinimal, {"model.hidden=64"}).model.hidden == std::vector<int64_t>{64});
  CHECK(read(kMinimal, {"name=a b"}).name == "a b");
  CHECK(read(kMinimal, {"name=\"a b\""}).name == "a b");
  CHECK(read(kMinimal, {"name=5"}).name == "5");
  CHECK(read(kMinimal, {"train.time=1.5h"}).train.time == 5400);
  CHECK(read(kMinimal, {"train.time=90"}).train.time == 90);
  CHECK(read(kMinimal, {"log.samples.prompts=[]"}).log.samples.prompts.empty());
  CHECK(error_of(kMinimal, {"eval.early_stop.metric=eval_loss"}, ErrorKind::kUsage) ==
        "--set eval.early_stop.metric needs eval.early_stop.patience");

  const Recipe epochs = read(kMinimal, {"train.epochs=0.5"});  // replaces steps
  CHECK(epochs.train.epochs == 0.5);
  CHECK_FALSE(epochs.train.steps);
  const Recipe files = read(kLlamaRecipe, {"data.train.path=b.jsonl", "data.train.format=jsonl"});
  CHECK(files.data.train[0].path == std::vector<std::string>{"b.jsonl"});
  const std::string one =
      "[model]\ntype = \"mlp\"\n[data.train]\npath = \"a.csv\"\n[train]\nsteps = 1\n";
  CHECK(read(one, {"data.train.path=b.csv"}).data.train[0].path[0] == "b.csv");
  const Recipe more = read(kLlamaRecipe, {"data.train[1].path=b.txt"});
  CHECK(more.data.train.size() == 2);
  // Keys of the recipe that go with its own type are dropped with the type.
  const std::string sgd = kMinimal + "[optimizer]\ntype = \"sgd\"\nmomentum = 0.9\n";
  CHECK_FALSE(read(sgd, {"optimizer.type=adamw"}).optimizer.momentum);
  CHECK(
      contains(error_of(sgd, {"optimizer.type=adamw", "optimizer.momentum=0.5"}, ErrorKind::kUsage),
               "--set optimizer.momentum is not used by type 'adamw'"));

  // A list of tables as a whole.
  const Recipe groups = read(kMinimal, {"optimizer.groups=[{match=\"x*\", lr_factor=2.0}]"});
  REQUIRE(groups.optimizer.groups.size() == 1);
  CHECK(groups.optimizer.groups[0].lr_factor == 2);
  CHECK(read(kLlamaRecipe, {"data.train=[{path=\"b.txt\"}, {path=\"c.txt\"}]"}).data.train.size() ==
        2);
  CHECK(read(kLlamaRecipe, {"data.train= [{path=\"b.txt\"}]"}).data.train.size() == 1);
  CHECK(
      error_of(kLlamaRecipe, {"data.train=b.txt"}, ErrorKind::kUsage) ==
      "--set data.train: expected tables, [{key = value, …}, …], found 'b.txt'; a key of theirs is "
      "set by --set data.train.KEY=VALUE");
  CHECK(contains(error_of(kMinimal, {"optimizer.groups=[{match=\"x\", lr=1}]"}, ErrorKind::kUsage),
                 "--set optimizer.groups[0].lr: "));

  CHECK(contains(error_of("[data]\ntrain = \"b.txt\"\n", {}),
                 "data.train: expected tables, found the string 'b.txt'; give the keys of each "
                 "below a line [[data.train]]"));

  const auto usage = [](const std::string& text) {
    return error_of(kMinimal, {text}, ErrorKind::kUsage);
  };
  CHECK(usage("train.step=3") ==
        "--set 'train.step': there is no such key; did you mean train.steps?");
  CHECK(contains(usage("lr=3"), "did you mean optimizer.lr?"));
  CHECK(contains(usage("train.seed=3"), "did you mean seed?"));
  CHECK(contains(usage("data.mask_prompt=true"), "did you mean data.mask?"));
  CHECK(usage("train.steps=x").starts_with("--set train.steps: "));
  CHECK(contains(usage("train.steps=0"), "expected a whole number from 1"));
  CHECK(contains(usage("optimizer.groups=3"), "--set optimizer.groups: expected tables, [{key ="));
  CHECK(usage("train.steps") == "--set 'train.steps': expected table.key=value");
  CHECK(contains(usage("optimizer.type=adaam"), "expected one of sgd, adam"));
  CHECK(contains(usage("data.train[5].path=x"), "only 1 of them"));
  CHECK(contains(usage("train.steps=1\nb=2"), "one line"));
  CHECK(usage("model={type=\"mlp\"}") ==
        "--set 'model': is a table; expected one of its keys, such as model.type");
  CHECK(contains(usage("eval.early_stop={patience=3}"), "such as eval.early_stop.metric"));
  CHECK(contains(usage("optimizer.groups=[{lr_factor=1}]"), "match is missing"));
  CHECK(contains(usage("data.train=[]"), "[[data.train]] is missing"));
  for (const char* odd : {"data.train[0.format=csv", "data.train[].format=csv",
                          "data.train]0[.format=csv", "data.train[0]x.format=csv"}) {
    CHECK(contains(usage(odd), ": there is no such key; one of a list is written data.train[0]"));
  }
  CHECK(contains(usage("name=\"a\\u0000b\""), "no path has the character U+0000"));
  CHECK(usage("data.shuffle=yes") == "--set data.shuffle: expected true or false, found 'yes'");
  CHECK(contains(usage("train.steps="), "expected a whole number from 1 to 1e+15, found nothing"));
  CHECK(contains(usage("name=a\xFF"), "name: byte 2 is not UTF-8, at '\\xff'"));
  CHECK(read_recipe({"dir/a\xFF.toml", "dir", kMinimal}).name == "a\uFFFD");
}

TEST_CASE("digits are drawn: a file or data set given for them is read, or refused") {
  const Recipe table = read(kMinimal, {"data.train.path=t.csv"});
  CHECK(table.data.train[0].format == "csv");
  CHECK(read(kMinimal, {"data.train.path=t.tsv.gz"}).data.train[0].format == "csv");
  CHECK(table.data.train[0].path == std::vector<std::string>{"t.csv"});
  CHECK_FALSE(read(kMinimal, {"data.train.dataset=mnist"}).data.train[0].format);
  CHECK(read(kMinimal, {"data.train.path=builtin:digits"}).data.train[0].format == "digits");
  const std::string both =
      "[model]\ntype = \"mlp\"\n[[data.train]]\nformat = \"digits\"\npath = \"t.csv\"\n"
      "[train]\nsteps = 10\n";
  CHECK(contains(error_of(both), "r.toml:4:10: data.train[0].format: digits are drawn, so path"));
  CHECK(contains(error_of(kMinimal, {"data.eval[0].path=t.csv"}, ErrorKind::kUsage),
                 "data.eval[0].path: digits are drawn, so path would not be read; leave it out"));
}

// The format that a data set or the ending of a path tells counts as one that is given.
TEST_CASE("keys of another format are refused, however the format is told") {
  const auto error = [](const std::string& source, const std::string& keys) {
    return error_of("[model]\ntype = \"mlp\"\n[[data.train]]\n" + source +
                    "\n[train]\nsteps = 1\n[data]\n" + keys);
  };
  CHECK(error("path = \"t.csv\"", "pack = true\n") ==
        "dir/r.toml:8:1: data.pack is not used by format 'csv'; it goes with text, lines, jsonl, "
        "faq");
  CHECK(contains(error("path = \"b.txt.gz\"", "label = \"x\"\n"), "not used by format 'text'"));
  CHECK(contains(error("dataset = \"iris\"", "augment = true\n"), "not used by format 'csv'"));
  CHECK(contains(error("dataset = \"mnist\"", "mask = \"prompt\"\n"), "by format 'mnist'"));
  // Drawn digits may stand in for MNIST.
  CHECK(read(kMinimal, {"data.train.dataset=mnist", "data.digits_train=5"}).data.digits_train == 5);
  CHECK(read(kMinimal, {"data.train.dataset=iris"}).task == std::nullopt);  // the label decides
  CHECK(error("dataset = \"shakespeare\"", "") ==
        "dir/r.toml:4:11: data.train[0].dataset: text data are not for the task classify; it takes "
        "mnist, cifar10, digits, images or csv");
}

TEST_CASE("data sets are known by name, and all of one format") {
  const auto error = [](const std::string& sources) {
    return error_of("[model]\ntype = \"mlp\"\n[train]\nsteps = 1\n[[data.train]]\n" + sources);
  };
  CHECK(contains(error("dataset = \"mnits\"\n"),
                 "dir/r.toml:6:11: data.train[0].dataset: no data set is called 'mnits' (did you "
                 "mean mnist?); there are mnist, "));
  CHECK(
      contains(error("dataset = \"iris\"\n[[data.eval]]\ndataset = \"names\"\n"),
               "dir/r.toml:8:11: data.eval[0].dataset: all data of a run have one format; this is "
               "lines, data.train[0] is csv"));
  CHECK(contains(error("dataset = \"iris\"\n[[data.eval]]\npath = \"e.txt\"\nformat=\"text\"\n"),
                 "data.eval[0].format: all data of a run have one format"));
  CHECK(contains(error("dataset = \"iris\"\nformat = \"mnist\"\n"),
                 "data.train[0].format: the data set iris is csv; leave format out"));
}

TEST_CASE("a mask of all roles and LoRA on random weights are refused") {
  const std::string chats =
      "[model]\npath = \"m\"\n[[data.train]]\npath = \"c.jsonl\"\n[train]\nsteps = 1\n";
  CHECK(error_of(chats + "[data]\nmask = [\"user\", \"assistant\", \"tool\", \"system\"]\n") ==
        "dir/r.toml:8:8: data.mask: all roles are named, so nothing would be learnt");
  CHECK(contains(error_of(chats + "[lora]\nrank = 2\n", {"model.init=random"}),
                 "lora.rank: LoRA adds to a trained model; model.init is random"));
}

TEST_CASE("a key that does nothing without another one is refused where that is off") {
  const std::pair<const char*, const char*> cases[] = {
      {"[eval.early_stop]\nmin_delta = 0.1\n", "8:1: eval.early_stop.min_delta needs "},
      {"[eval.early_stop]\nmetric = \"eval_accuracy\"\n", "needs eval.early_stop.patience"},
      {"[log.samples]\nevery = 3\n", "8:1: log.samples.every needs log.samples.prompts"},
      {"[data]\nflip = false\n", "8:1: data.flip needs data.augment"},
      {"[lora]\nalpha = 3\n", "8:1: lora.alpha needs lora.rank"}};
  for (const auto& [keys, why] : cases) {
    CAPTURE(keys);
    CHECK(contains(error_of(kMinimal + keys), why));
  }
  const std::string augmented = kMinimal + "[data]\naugment = true\nflip = false\n";
  CHECK_FALSE(read(augmented).data.flip);
  // What is turned off by --set is meant to be, with all that belongs to it.
  const Recipe plain = read(augmented, {"data.augment=false"});
  CHECK(plain.data.flip);
  CHECK_FALSE(contains(to_toml(plain), "flip = "));
  CHECK(contains(error_of(kMinimal, {"data.flip=false"}, ErrorKind::kUsage), "needs data.augment"));
}

TEST_CASE("a printed recipe reads back as the same") {
  const std::vector<std::string> many = {
      "[model]\ntype = \"lstm\"\nlayers = 2\n[tokenizer]\ntype = \"bpe\"\nspecial_tokens = "
      "[\"<|a|>\"]\n"
      "[[data.train]]\npath = [\"a.txt\", \"b*.txt\"]\n[[data.train]]\npath = "
      "\"c.txt\"\n[[data.eval]]\n"
      "path = \"e.txt\"\n[data]\nseparator = \"\\n\\n\"\n[train]\ntime = "
      "\"1h\"\n[[optimizer.groups]]\n"
      "match = \"*.bias\"\nweight_decay = 0.0\n[eval]\nevery = 5\nearly_stop = {patience = 3}\n",
      "[model]\npath = \"m\"\n[lora]\nrank = 4\n[[data.train]]\npath = \"c.jsonl\"\n[data]\nmask = "
      "[\"system\", \"user\"]\n[train]\ntokens = 1e6\n[schedule]\ntype = \"wsd\"\nwarmup = 0.1\n",
      "[model]\ntype = \"mlp\"\n[[data.train]]\ndataset = \"mnist\"\n[train]\nepochs = 1\n",
      kMinimal, kLlamaRecipe};
  for (const std::string& text : many) {
    CAPTURE(text);
    const Recipe recipe = read(text);
    const std::string printed = to_toml(recipe);
    CAPTURE(printed);
    const Recipe again = read_recipe({"other.toml", "", printed});
    CHECK(to_json(again) == to_json(recipe));
    CHECK(to_toml(again) == printed);
  }
}

TEST_CASE("every bundled recipe is valid, says what it trains, and survives printing") {
  for (const BundledRecipe& bundled : bundled_recipes()) {
    CAPTURE(bundled.name);
    const Recipe recipe = read_recipe(find_recipe(std::string(bundled.name)));
    CHECK(recipe.name == bundled.name);
    CHECK(bundled.purpose().size() > 10);
    CHECK(bundled.purpose().size() < 80);
    CHECK(contains(bundled.text, "Metric: "));
    CHECK(contains(bundled.text, "Data: "));
    CHECK(to_json(read_recipe({"x.toml", "", to_toml(recipe)})) == to_json(recipe));
  }
}

TEST_CASE("recipes are found by path or name") {
  const std::string directory = lumen::testing::temporary_directory();
  std::ofstream(directory + "/my.toml") << kMinimal;
  CHECK(find_recipe(directory + "/my.toml").directory == directory + "/");
  CHECK(refusal(ErrorKind::kMissing, [] { find_recipe("digits-mpl"); }) ==
        "'digits-mpl' is neither a file nor a bundled recipe; did you mean digits-mlp?");
  CHECK(refusal(ErrorKind::kMissing, [] { find_recipe("0123456789"); }) ==
        "'0123456789' is neither a file nor a bundled recipe; lumen-train --recipes lists them");
  refusal(ErrorKind::kMissing, [&] { find_recipe(directory + "/none.toml"); });
  refusal(ErrorKind::kMissing, [&] { find_recipe(directory + "/"); });
}

TEST_CASE("files of a recipe are beside it, in the working directory, or under LUMEN_DATA") {
  const std::string recipe_directory = lumen::testing::temporary_directory() + "/r/";
  const std::string data = lumen::testing::temporary_directory() + "/d";
  std::filesystem::create_directories(recipe_directory);
  std::filesystem::create_directories(data + "/sub");
  std::ofstream(recipe_directory + "a.txt") << "x";
  std::ofstream(data + "/sub/b.txt") << "x";
  Recipe recipe;
  recipe.directory = recipe_directory;
  ::setenv("LUMEN_DATA", data.c_str(), 1);
  CHECK(find_file(recipe, "k.path", "a.txt") == recipe_directory + "a.txt");
  CHECK(find_file(recipe, "k.path", "sub/*.txt") == data + "/sub/*.txt");
  CHECK(find_file(recipe, "k.path", "builtin:digits") == "builtin:digits");
  CHECK(find_file(recipe, "k.path", data + "/sub/b.txt") == data + "/sub/b.txt");
  CHECK(find_file(recipe, "k.path", data + "/sub/*.none") == data + "/sub/*.none");
  CHECK(refusal(ErrorKind::kMissing, [&] { find_file(recipe, "k.path", "/x/y"); }) ==
        "k.path: there is no '/x/y'");
  CHECK(
      contains(refusal(ErrorKind::kMissing, [&] { find_file(recipe, "k.path", "c.txt"); }), data));
  ::unsetenv("LUMEN_DATA");
}

TEST_CASE("what makes a checkpoint useless is named, what may change is not") {
  const io::Json before = to_json(read(kLlamaRecipe));
  CHECK(incompatible_keys(before, read(kLlamaRecipe)).empty());
  CHECK(incompatible_keys(before, read(kLlamaRecipe, {"train.epochs=9", "name=x", "log.every=7",
                                                      "checkpoint.keep_last=1", "eval.every=3"}))
            .empty());
  CHECK(incompatible_keys(before, read(kLlamaRecipe, {"model.layers=8"})) ==
        std::vector<std::string>{"model.layers is 6 there and 8 here"});
  CHECK(incompatible_keys(before, read(kLlamaRecipe, {"optimizer.type=sgd"})).size() > 1);
  const Recipe grouped = read(kLlamaRecipe, {"optimizer.groups=[{match=\"*\", lr_factor=2}]"});
  CHECK(incompatible_keys(before, grouped).size() == 2);
  CHECK(incompatible_keys(to_json(grouped), read(kLlamaRecipe)) ==
        std::vector<std::string>{"optimizer.groups has 1 there and 0 here"});
}

TEST_CASE("the schema has every key") {
  const io::Json schema = recipe_schema();
  const io::Json& train = schema["properties"]["train"];
  CHECK(train["additionalProperties"] == false);
  CHECK(train["properties"]["batch_size"]["type"] == "integer");
  CHECK(train["properties"]["batch_size"]["minimum"] == 1);
  CHECK(train["properties"]["batch_size"]["default"] == 32);
  CHECK(train["properties"]["precision"]["enum"].size() == 4);
  // A list of tables, or one table.
  const io::Json& sources = schema["properties"]["data"]["properties"]["train"]["anyOf"];
  CHECK(sources[0]["items"]["properties"].contains("path"));
  CHECK(sources[1]["properties"].contains("path"));
  CHECK(
      schema["properties"]["eval"]["properties"]["early_stop"]["properties"].contains("patience"));
  const io::Json& optimizer = schema["properties"]["optimizer"]["properties"];
  CHECK(optimizer["groups"]["anyOf"][0]["type"] == "array");
  CHECK(optimizer["betas"]["minItems"] == 2);  // two numbers, so not one without brackets
  CHECK_FALSE(optimizer["betas"].contains("anyOf"));
  CHECK(optimizer["no_decay"].contains("anyOf"));
  CHECK(train["properties"]["time"].contains("pattern"));
  CHECK(schema["properties"]["data"]["properties"].contains("pack"));
  CHECK(schema["properties"].contains("seed"));
  // What reading refuses does not pass.
  const io::Json& resume = schema["properties"]["checkpoint"]["properties"]["resume"];
  CHECK(resume["minLength"] == 1);
  CHECK_FALSE(schema["properties"]["name"].contains("minLength"));
  const std::string message =
      refusal(ErrorKind::kUsage, [] { read(kLlamaRecipe, {"checkpoint.resume=\"\""}); });
  CHECK(contains(message, "resume: expected a text in quotes that is not empty"));
}

TEST_CASE("the man page has every table and key, with type and default") {
  const std::string page = recipe_man_page();
  CHECK(page.starts_with(".TH lumen\\-train.toml 5 "));
  Recipe recipe;
  recipe.data.train.resize(1);
  for (const RecipeTable& table : recipe_tables(recipe)) {
    for (const RecipeKey& key : table.keys) {
      INFO(table.name << "." << key.name);
      CHECK(contains(page, "\n.TP\n.B " + key.name + "\n"));
    }
  }
  CHECK(contains(page, ".SH \"[[data.train]]\"\n"));
  CHECK(contains(page, ".SH \"[train]\"\n"));
  CHECK(contains(page, "Takes a whole number from 1"));
  CHECK(contains(page, "; default 32"));
  CHECK(contains(page, "; for type mlp, rnn, lstm, gru"));
  for (size_t at = page.find('\n'); at + 1 < page.size(); at = page.find('\n', at + 1)) {
    // A line that begins with a point is a request: a word of ours must not be taken for one.
    if (page[at + 1] != '.') continue;
    const std::string request = page.substr(at + 1, page.find_first_of(" \n", at + 1) - at - 1);
    CHECK((request == ".SH" || request == ".TP" || request == ".B" || request == ".BR" ||
           request == ".nf" || request == ".fi"));
  }
}

}  // namespace
}  // namespace lumen::runtime
