// A recipe: everything that decides a training run, read from TOML.
//
// The structs below are the tables of the file and their members its keys, with the defaults that
// --print-config shows; types, ranges, help and which key goes with which type are declared once in
// recipe_tables.cc. What is optional here has, after reading, a value wherever it applies: defaults
// that depend on other keys are filled in. Where it says "absent:", it may stay without one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/error.h"
#include "lib/io/json.h"

namespace lumen::runtime {

// [model]: a network made from its type, or an existing model to go on from. Exactly one of both.
struct ModelRecipe {
  std::optional<std::string> type;        // mlp, lenet, resnet9, rnn, lstm, gru, gpt2, llama
  std::optional<std::string> path;        // directory, GGUF file, org/name, builtin:lumen-tiny
  std::string init = "pretrained";        // with path: its weights, or "random" ones of its shape
  std::optional<std::string> weights;     // safetensors with the first weights; absent: random
  std::vector<int64_t> hidden;            // mlp: one per hidden layer; rnn, lstm, gru: one number
  std::optional<std::string> activation;  // mlp, lenet, rnn: relu, gelu, silu, tanh, sigmoid
  std::optional<double> dropout;
  std::optional<int64_t> channels;   // resnet9: of its first convolution
  std::optional<int64_t> embedding;  // rnn, lstm, gru: width of the token vectors
  std::optional<int64_t> layers, dim, heads, kv_heads, head_dim, ffn, context;
  std::optional<double> rope_theta, norm_eps;
  std::optional<bool> bias;  // gpt2: of linear layers and norms
  std::optional<bool> tie_embeddings;
};

// [tokenizer]: an existing one or one to train. With model.path the default is the model's own.
struct TokenizerRecipe {
  std::optional<std::string> path;  // tokenizer.json, .model, or a directory
  std::optional<std::string> type;  // trained: char, bpe, unigram (sentencepiece), byte_bpe
  std::optional<int64_t> vocab_size;
  std::vector<std::string> files;            // to train on; empty: the training data
  std::vector<std::string> special_tokens;   // added whole: "<|user|>"
  std::optional<std::string> chat_template;  // a Jinja file; absent: the tokenizer's own, or ChatML
  std::optional<bool> add_bos, add_eos;      // absent: as the tokenizer says
};

// [[data.train]] and [[data.eval]]: one or more of each; all have the same format.
struct DataSource {
  std::optional<std::string> dataset;  // a known one, under LUMEN_DATA or built in: "mnist"
  std::vector<std::string> path;       // files, directories, patterns, "builtin:…"
  std::optional<std::string> format;   // mnist, cifar10, digits, images, csv, text, lines, jsonl,
                                       // faq, bin; of a data set it is known
};

// [data]: how the data become batches.
struct DataRecipe {
  std::vector<DataSource> train, eval;
  std::optional<double> eval_fraction;  // absent: what the data come with, else 0.1
  int64_t max_samples = 0;              // of either split; 0: all
  bool shuffle = true;
  bool prefetch = true;
  std::string last_batch = "auto";    // auto, drop, pad, keep
  std::string on_bad_row = "stop";    // stop, skip
  std::optional<int64_t> max_length;  // most tokens per row
  bool pack = false;
  std::string separator;              // text: between documents; "": one long text
  std::string on_too_long = "error";  // error, truncate, skip, split
  std::vector<std::string> mask;      // not learnt: {"none"}, {"prompt"}, or roles
  int64_t image_size = 0;             // 0: the format's own
  int64_t channels = 0;               // 1, 3; 0: the format's own
  bool augment = false;
  int64_t crop_padding = 4;
  bool flip = true;
  int64_t digits_train = 10'000, digits_eval = 2'000;
  std::vector<double> mean, std;        // per channel; empty: measured
  bool header = true;                   // csv: the first row names the columns
  std::string label;                    // column; "": the last
  std::string label_kind = "auto";      // auto, classes, number
  std::string text_columns = "onehot";  // onehot, drop
  std::vector<std::string> drop_columns;
  bool standardize = true;
};

// [train]. Exactly one of epochs, steps, tokens, time has a value.
struct TrainRecipe {
  std::optional<double> epochs;  // may be a fraction
  std::optional<int64_t> steps;
  std::optional<double> tokens;  // targets that count
  std::optional<double> time;    // seconds
  int64_t batch_size = 32;       // samples per step, all micro-batches together
  std::optional<int64_t> micro_batch;
  std::string precision = "f32";  // f32, highest (exact products), bf16, f16
  double grad_clip = 1.0;         // L2 norm; 0: off
  double grad_clip_value = 0;     // each element; 0: off
  double label_smoothing = 0;
  std::optional<double> router_aux_loss_coef;  // absent: as the model's config says
  bool activation_checkpointing = false;       // recompute instead of keeping
  double skip_outlier_sigma =
      0;                      // skip steps whose gradient norm is that many deviations off; 0: none
  int64_t max_nonfinite = 3;  // steps in a row without a finite loss before the run ends
};

// [[optimizer.groups]]: parameters treated differently; the first pattern that matches counts.
struct OptimizerGroup {
  std::string match;  // pattern on the parameter's name, * and ?
  double lr_factor = 1;
  std::optional<double> weight_decay;  // absent: the optimizer's
};

// [optimizer].
struct OptimizerRecipe {
  std::string type = "adamw";  // sgd, adam, adamw, rmsprop, adagrad, lion, adafactor, muon
  double lr = 1e-3;
  std::vector<double> betas;  // two
  std::optional<double> eps, momentum, dampening, alpha;
  std::optional<double> weight_decay;
  std::vector<std::string> no_decay;  // patterns on names; "1d": all vectors (biases, norms)
  std::optional<bool> nesterov, amsgrad;
  std::vector<OptimizerGroup> groups;
};

// [schedule] of the learning rate.
struct ScheduleRecipe {
  std::string type = "constant";  // step, multistep, exponential, polynomial, linear, cosine,
                                  // cosine_restarts, inverse_sqrt, one_cycle, wsd, plateau
  double warmup = 0;              // steps, or, below 1, the share of the run
  std::optional<double> min_lr;
  std::optional<int64_t> step_size;
  std::vector<int64_t> milestones;
  std::optional<double> gamma, power;
  std::optional<int64_t> period;
  std::optional<double> period_factor, div_factor, final_div_factor, decay_fraction;
  std::optional<std::string> decay;  // wsd: cosine, linear, 1-sqrt
  std::optional<int64_t> timescale;  // inverse_sqrt; absent: the warm-up
  std::optional<double> factor, threshold;
  std::optional<int64_t> patience, cooldown;
};

// [[lora.groups]]: layers with a rank and an alpha of their own; the first pattern that matches
// counts.
struct LoraGroup {
  std::string match;            // pattern on the layer's path, * and ?
  std::optional<int64_t> rank;  // absent: as all
  std::optional<double> alpha;
};

// [lora]: low-rank adapters on a frozen model (model.path).
struct LoraRecipe {
  std::optional<int64_t> rank;  // absent: no LoRA, everything is trained
  double alpha = 16;
  double dropout = 0;
  std::vector<std::string> targets;  // none, or kAllLinear: as nn::LoraOptions
  std::vector<std::string> exclude;
  int64_t layers = 0;                        // the last so many; 0: all
  bool rslora = false;                       // scale alpha/√rank instead of alpha/rank
  bool dora = false;                         // and the lengths of the rows (Liu et al. 2024)
  std::string init = "uniform";              // uniform, gaussian, orthogonal, random, pissa, olora
  std::optional<int64_t> init_iterations;    // pissa; absent: until it is exact
  std::string bias = "none";                 // of the model, trained too: none, all, lora_only
  std::vector<std::string> modules_to_save;  // trained whole, by the end of their path
  std::optional<std::string> adapter;        // to go on from
  std::vector<LoraGroup> groups;

  static constexpr const char* kAllLinear = "all-linear";  // PEFT's word
};

// [eval], with [eval.early_stop].
struct EvalRecipe {
  std::optional<int64_t> every;  // steps; absent: once an epoch. Always once at the end.
  int64_t max_batches = 0;       // 0: all
  struct EarlyStop {
    std::string metric = "eval_loss";
    int64_t patience = 0;  // evaluations without an improvement; 0: off
    double min_delta = 0;
  } early_stop;
};

// [checkpoint].
struct CheckpointRecipe {
  std::optional<int64_t> every;  // steps; absent: once an epoch, 0: never. Always once at the end.
  int64_t keep_last = 2;
  int64_t keep_best = 1;             // 0: none because of its metric
  std::string metric = "eval_loss";  // what "best" means
  std::string resume = "never";      // never, auto, or a checkpoint's path
};

// [log], with [log.samples].
struct LogRecipe {
  int64_t every = 1;  // steps per row of metrics.jsonl
  bool csv = true, tensorboard = true, svg = true;
  struct Samples {
    std::vector<std::string> prompts;
    std::optional<int64_t> every;  // steps; absent: at each evaluation
    int64_t max_tokens = 100;
  } samples;
};

// [export]: what lies at the top of the output directory.
struct ExportRecipe {
  std::string weights = "last";              // last, best
  std::string dtype = "f32";                 // f32, f16, bf16
  bool merge_lora = false;                   // a whole model instead of an adapter
  std::vector<std::string> format = {"hf"};  // and "gguf"
  std::optional<std::string> quant;          // of the GGUF file's matrices, as lumen-convert --type
};

// Where a key was given: "my.toml:3:8", or "--set" for a wrong use of that.
struct RecipePlace {
  std::string text;
  ErrorKind kind = ErrorKind::kMalformed;  // of a message about it
};

struct Recipe {
  int64_t version = 1;
  std::string name;  // default: the file's name
  // classify, regress, lm, sft; default: from the model. Absent: the label of a table decides
  // between the first two.
  std::optional<std::string> task;
  int64_t seed = 42;
  std::string output_dir;  // default: runs/NAME

  ModelRecipe model;
  TokenizerRecipe tokenizer;
  DataRecipe data;
  TrainRecipe train;
  OptimizerRecipe optimizer;
  ScheduleRecipe schedule;
  LoraRecipe lora;
  EvalRecipe eval;
  CheckpointRecipe checkpoint;
  LogRecipe log;
  ExportRecipe exported;  // [export]

  // Not keys: where relative paths begin (the recipe's directory; "" of a bundled one), and which
  // keys were given, as "model.layers".
  std::string directory;
  std::map<std::string, RecipePlace> given;
};

// Whether the result is an adapter alone, not a whole model.
inline bool makes_adapter(const Recipe& recipe) {
  return recipe.lora.rank && !recipe.exported.merge_lora;
}

// Throws Error "PLACE: KEY: MESSAGE", or without a place if the key was not given: for what only
// the data or the model show to be wrong.
[[noreturn]] void fail_at_key(const Recipe& recipe, const std::string& key,
                              const std::string& message);

// A recipe's text and where it comes from.
struct RecipeText {
  std::string place;      // for messages: the file's path, or the bundled name
  std::string directory;  // of the file
  std::string text;
};

// `name` is a path, or the name of a bundled recipe. Throws Error(kMissing) with the nearest name.
RecipeText find_recipe(const std::string& name);

// Reads and checks a recipe; `overrides` are "table.key=value" in TOML, quotes around text may be
// left out. One of epochs, steps, tokens, time replaces the one of the file, and of a type that was
// overridden the keys in the file that go with another type are dropped.
//
// Throws Error "PLACE:LINE:COLUMN: …" (kMalformed) or "--set a.b: …" (kUsage) for unknown tables
// and keys, values of a wrong type or out of range, and combinations that make no sense.
Recipe read_recipe(const RecipeText& source, const std::vector<std::string>& overrides = {});

// All keys with the values they have; without those that have none. Tables in the order above.
io::Json to_json(const Recipe& recipe);

// The same as TOML with the help of each key; read_recipe of it gives the same recipe.
std::string to_toml(const Recipe& recipe);

// What decides what a step computes, {"train.batch_size": 32, …}: all keys but those that may
// change from one start of a run to the next.
io::Json step_settings(const Recipe& recipe);

// JSON Schema (draft 2020-12) of recipes, for editors.
io::Json recipe_schema();

// The man page lumen-train.toml(5): every table and key with what it takes and its default.
std::string recipe_man_page();

// The path that `path`, the value of `key` ("tokenizer.path"), means: itself if absolute or built
// in, else in the recipe's directory, the working directory or the one of LUMEN_DATA, the first
// where it (up to its first wildcard) exists. Throws Error(kMissing) naming key and places.
std::string find_file(const Recipe& recipe, const std::string& key, const std::string& path);

// What model.path means: the built-in model for "builtin:lumen-tiny", a file or directory beside
// the recipe (find_file), or what io::find_model finds. Throws Error(kMissing).
std::string find_base_model(const Recipe& recipe);

// What the result says of model.path: the file or directory beside the recipe, which others do not
// look into for it; a name, or a path from the working directory, as it is.
std::string base_model_name(const Recipe& recipe);

// The files and directories that a recipe names besides its data, as find_file and find_base_model
// have them.
std::vector<std::string> named_files(const Recipe& recipe);

// Differences that make a checkpoint of a run with recipe `before` (as of to_json) useless for
// `after`: "model.layers is 6 there and 8 here", …. Keys that may change are left out: budgets,
// logging, checkpoints, evaluation, export, names and paths.
std::vector<std::string> incompatible_keys(const io::Json& before, const Recipe& after);

}  // namespace lumen::runtime
