#include "lib/runtime/training/recipe_check.h"

#include <algorithm>

#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/data/find_dataset.h"
#include "lib/runtime/conversion/gguf_file_type.h"
#include "lib/runtime/training/gguf_result.h"

namespace lumen::runtime {
namespace {

constexpr const char* kDigits = "builtin:digits";

template <typename T>
void set_default(std::optional<T>& variable, T value) {
  if (!variable) variable = std::move(value);
}

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> choices) {
  return std::find(choices.begin(), choices.end(), text) != choices.end();
}

// "1, 2, 4 or 8": the divisors of n, the largest twenty.
std::string divisors(int64_t n) {
  std::vector<std::string> found;
  for (int64_t d = n; d >= 1 && found.size() < 20; --d) {
    if (n % d == 0) found.push_back(str(d));
  }
  std::reverse(found.begin(), found.end());
  const std::string last = found.back();
  found.pop_back();
  return found.empty() ? last : join(found, ", ") + " or " + last;
}

// The format that the ending of a file tells, or "".
std::string format_of(std::string path) {
  if (path.ends_with(".gz")) path.resize(path.size() - 3);
  if (path.ends_with(".jsonl") || path.ends_with(".json")) return "jsonl";
  if (path.ends_with(".csv") || path.ends_with(".tsv")) return "csv";
  if (path.ends_with(".bin")) return "bin";
  if (path.ends_with(".txt") || path.ends_with(".md")) return "text";
  if (path == kDigits) return "digits";
  if (path == "builtin:chat") return "jsonl";
  if (path == "builtin:lumen-tiny") return "faq";
  if (path == "builtin:names") return "lines";
  if (path == "builtin:stories") return "text";
  return "";
}

// What `complain` is told of a data set that there is none of.
std::string unknown_dataset(const std::string& name) {
  const std::vector<std::string> names = data::dataset_names();
  const std::string near = nearest(name, names);
  return str("no data set is called ", quoted(name),
             near.empty() ? "" : str(" (did you mean ", near, "?)"), "; there are ",
             join(names, ", "));
}

// `common`: the formats that all sources so far may have.
void complete_sources(std::vector<DataSource>& sources, const std::string& table,
                      std::vector<std::string>& common, Complain complain) {
  for (size_t i = 0; i < sources.size(); ++i) {
    DataSource& source = sources[i];
    const std::string here = str(table, "[", i, "]");
    const bool drawn = source.format == "digits" && source.path.empty();
    const bool own_format = source.format.has_value();  // else that of the data before
    if (source.dataset && !source.path.empty()) {
      complain(here + ".path",
               "dataset and path are both given; one of them says where the data are");
    }
    if (!source.dataset && source.path.empty() && !drawn) {
      complain(here, "the data need a path or a dataset");
    }
    if (source.dataset && data::dataset_formats(*source.dataset).empty()) {
      complain(here + ".dataset", unknown_dataset(*source.dataset));
    }
    if (!source.format && !source.dataset) {
      const std::string format = common.empty() ? format_of(source.path.front()) : common.front();
      if (source.path.front().ends_with(".parquet")) {
        complain(here + ".path", "Parquet files are not read; export them to JSON Lines or CSV");
      }
      if (format.empty()) {
        complain(here,
                 "format is missing, and the ending of path does not tell: pictures in a directory "
                 "per class are \"images\"; man lumen-train.toml lists all formats");
      }
      source.format = format;
    }
    const bool reads = !source.path.empty() && source.path != std::vector<std::string>{kDigits};
    if (source.format == "digits" && (source.dataset || reads)) {
      complain(here + (own_format ? ".format" : ".path"),
               str("digits are drawn, so ", source.dataset ? "dataset" : "path",
                   " would not be read; leave ", own_format ? "one of them" : "it", " out"));
    }
    const std::string key = here + (source.format ? ".format" : ".dataset");
    std::vector<std::string> formats = possible_formats(source);
    if (source.dataset && source.format) {
      const auto own = data::dataset_formats(*source.dataset).front();
      const std::string_view name = data::kFormatNames[static_cast<size_t>(own)];
      if (*source.format != name) {
        complain(key, str("the data set ", *source.dataset, " is ", name, "; leave format out"));
      }
    }
    if (!common.empty()) {
      std::erase_if(formats, [&](const std::string& format) {
        return std::find(common.begin(), common.end(), format) == common.end();
      });
      if (formats.empty()) {
        complain(key, str("all data of a run have one format; this is ",
                          possible_formats(source).front(), ", data.train[0] is ", common.front()));
      }
    }
    common = formats;
  }
}

void complete_data_sources(Recipe& r, Complain complain) {
  DataRecipe& d = r.data;
  if (d.train.empty()) {
    complain("data.train", "[[data.train]] is missing: name a path or a dataset");
  }
  std::vector<std::string> formats;
  complete_sources(d.train, "data.train", formats, complain);
  complete_sources(d.eval, "data.eval", formats, complain);
  if (!d.eval.empty() && d.eval_fraction.value_or(0) > 0) {
    complain("data.eval_fraction",
             "[[data.eval]] is given too; evaluation data come from one or the other");
  }
  const std::string& label = d.label;
  if (!label.empty() &&
      std::find(d.drop_columns.begin(), d.drop_columns.end(), label) != d.drop_columns.end()) {
    complain("data.drop_columns", str(quoted(label), " is the label, which is not dropped"));
  }
  for (const std::string& mask : d.mask) {
    if (d.mask.size() > 1 && is_one_of(mask, {"none", "prompt"})) {
      complain("data.mask", str(mask, " stands alone; a list names roles"));
    }
  }
  constexpr const char* kRoles[] = {"system", "user", "assistant", "tool"};
  if (std::all_of(std::begin(kRoles), std::end(kRoles), [&](const char* role) {
        return std::find(d.mask.begin(), d.mask.end(), role) != d.mask.end();
      })) {
    complain("data.mask", "all roles are named, so nothing would be learnt");
  }
  if (!d.mean.empty() != !d.std.empty() || d.mean.size() != d.std.size()) {
    complain(d.mean.empty() ? "data.std" : "data.mean",
             "mean and std belong together, one number each per channel");
  }
}

// The format of the data: of a data set its own, not that of its substitute.
std::string format_of_data(const Recipe& r) {
  return possible_formats(r.data.train.front()).front();
}

// What a new network for images or tables does; absent: the label of a table decides.
std::optional<std::string> vision_task(const Recipe& r) {
  const bool table = format_of_data(r) == "csv";
  if (!table || *r.model.type != "mlp" || r.data.label_kind == "classes") return "classify";
  if (r.data.label_kind == "number") return "regress";
  return std::nullopt;
}

// For messages.
std::string task_name(const Recipe& r) {
  return r.task.value_or("classify or regress");
}

void complete_task(Recipe& r, Complain complain) {
  const ModelRecipe& m = r.model;
  if (m.type && m.path) {
    complain("model.path", "type and path are both given; a new network or an existing one");
  }
  if (!m.type && !m.path) complain("model", "[model] needs a type (mlp, llama, …) or a path");
  if (m.path && m.weights) {
    complain("model.weights", "with path the weights are those of the model");
  }
  if (m.type && r.given.count("model.init")) {
    if (m.init == "pretrained" && !m.path) {
      complain("model.init", "pretrained needs a model.path; a new network has random weights");
    }
  }
  const bool vision = m.type && is_one_of(*m.type, {"mlp", "lenet", "resnet9"});
  const std::string format = format_of_data(r);
  const bool language = is_one_of(format, {"text", "lines", "jsonl", "faq", "bin"});
  if (!r.task) r.task = vision ? vision_task(r) : m.path ? "sft" : "lm";
  const bool wants_language = r.task == "lm" || r.task == "sft";
  if (wants_language && vision) {
    complain("task", str(*r.task, " needs a language model; model.type is ", *m.type));
  }
  if (!wants_language && !vision) {
    complain("task", str(task_name(r), " needs model.type mlp, lenet or resnet9, not ",
                         m.path ? "a model.path" : *m.type));
  }
  if (r.task == "regress" && *m.type != "mlp") {
    complain("task", str("regress needs model.type mlp, not ", *m.type));
  }
  if (language != wants_language) {
    complain(r.data.train.front().format ? "data.train[0].format" : "data.train[0].dataset",
             str(format, " data are not for the task ", task_name(r),
                 wants_language ? "; it takes text, lines, jsonl, faq or bin"
                                : "; it takes mnist, cifar10, digits, images or csv",
                 m.path ? "; to go on with a classifier give model.type and model.weights" : ""));
  }
}

void complete_model(Recipe& r, Complain complain) {
  ModelRecipe& m = r.model;
  if (!m.type) return;
  const std::string& type = *m.type;
  m.init = "random";
  if (is_one_of(type, {"mlp", "lenet"})) set_default<std::string>(m.activation, "relu");
  if (type == "rnn") {
    set_default<std::string>(m.activation, "tanh");
    if (!is_one_of(*m.activation, {"tanh", "relu"})) {
      complain("model.activation", str("an rnn has tanh or relu, not ", *m.activation));
    }
  }
  set_default(m.dropout, 0.0);
  if (type == "mlp" && m.hidden.empty()) m.hidden = {128};
  if (type == "resnet9") set_default<int64_t>(m.channels, 64);
  if (is_one_of(type, {"rnn", "lstm", "gru"})) {
    if (m.hidden.empty()) m.hidden = {256};
    if (m.hidden.size() != 1) {
      complain("model.hidden", str(type, " has one width for all layers; layers = ",
                                   m.hidden.size(), " gives their number"));
    }
    set_default<int64_t>(m.layers, 1);
    set_default(m.embedding, m.hidden[0]);
    set_default(m.tie_embeddings, false);
    if (*m.tie_embeddings && *m.embedding != m.hidden[0]) {
      complain("model.tie_embeddings", str("the embedding (", *m.embedding,
                                           ") must be as wide as "
                                           "hidden (",
                                           m.hidden[0], ") to be the output layer"));
    }
  }
  if (!is_one_of(type, {"gpt2", "llama"})) return;
  set_default<int64_t>(m.layers, 6);
  set_default<int64_t>(m.dim, 384);
  set_default<int64_t>(m.context, 256);
  set_default(m.norm_eps, 1e-5);
  set_default(m.tie_embeddings, true);
  const bool llama = type == "llama";
  const bool own_head_dim = llama && m.head_dim.has_value();
  if (!m.heads) m.heads = own_head_dim || *m.dim % 6 != 0 ? 1 : 6;
  if (!own_head_dim && *m.dim % *m.heads != 0) {
    complain("model.heads", str("heads = ", *m.heads, " does not divide dim = ", *m.dim, "; ",
                                divisors(*m.dim), " would"));
  }
  if (llama) {
    set_default(m.kv_heads, *m.heads);
    if (*m.heads % *m.kv_heads != 0) {
      complain("model.kv_heads", str("kv_heads = ", *m.kv_heads, " does not divide heads = ",
                                     *m.heads, "; ", divisors(*m.heads), " would"));
    }
    set_default(m.head_dim, *m.dim / *m.heads);
    if (*m.head_dim % 2 != 0) {
      complain(own_head_dim ? "model.head_dim" : "model.heads",
               str("a head of width ", *m.head_dim, " has no pairs to rotate; it must be even"));
    }
    set_default(m.ffn, (*m.dim * 8 / 3 + 31) / 32 * 32);
    set_default(m.rope_theta, 10000.0);
  } else {
    set_default(m.ffn, *m.dim * 4);
    set_default(m.bias, true);
    if (!*m.bias) complain("model.bias", "a gpt2 has biases everywhere; llama has none");
  }
  if (*m.ffn > limits::kDim) {
    complain("model.dim", str("dim = ", *m.dim, " gives feed-forward layers of ", *m.ffn,
                              ", the limit is ", limits::kDim, "; give model.ffn"));
  }
}

void complete_language(Recipe& r, Complain complain) {
  TokenizerRecipe& k = r.tokenizer;
  const bool language = r.task == "lm" || r.task == "sft";
  const std::string format = format_of_data(r);
  if (!language) {
    for (const auto& [key, place] : r.given) {
      if (key.starts_with("tokenizer."))
        complain(key, str("the task ", task_name(r), " has no text"));
    }
    if (!r.log.samples.prompts.empty()) {
      complain("log.samples.prompts", str("the task ", task_name(r), " writes no text"));
    }
    return;
  }
  if (r.data.pack && r.model.type && is_one_of(*r.model.type, {"rnn", "lstm", "gru"})) {
    complain("data.pack", str("a ", *r.model.type,
                              " carries its state from one document of a row "
                              "to the next; only attention keeps them apart"));
  }
  if (k.path && k.type) {
    complain("tokenizer.type",
             "type and path are both given; a trained tokenizer or an existing one");
  }
  if (k.type && r.model.path) {
    complain("tokenizer.type", "a model that exists has its tokenizer; a new one would not fit");
  }
  if (!k.path && !k.type && r.model.type && format != "bin") {
    complain("tokenizer", "[tokenizer] needs a type to train (char, bpe, …) or a path");
  }
  if (k.type && format == "bin") {
    complain("tokenizer.type", "bin data are token ids already; tokenizer.path names their own");
  }
  if (k.type && *k.type != "char") {
    set_default<int64_t>(k.vocab_size, 4096);
    // Every byte has a token, besides the end of a text and sentencepiece's three.
    const int64_t least = *k.type == "byte_bpe" ? 257 : 261;
    if (*k.vocab_size < least) {
      complain("tokenizer.vocab_size",
               str("vocab_size = ", *k.vocab_size, "; ", *k.type, " needs at least ", least));
    }
  }
  for (const auto& [key, given] : {std::pair("tokenizer.add_bos", k.add_bos.has_value()),
                                   std::pair("tokenizer.add_eos", k.add_eos.has_value())}) {
    if (given && format == "bin") complain(key, "bin data are token ids already");
  }
  if (r.data.mask.empty()) r.data.mask = {r.task == "sft" ? "prompt" : "none"};
  set_default<int64_t>(r.data.max_length, r.model.context.value_or(r.model.path ? 512 : 128));
  if (r.model.context && *r.data.max_length > *r.model.context) {
    complain("data.max_length", str("rows of ", *r.data.max_length,
                                    " tokens do not fit into model.context = ", *r.model.context));
  }
}

void complete_train(Recipe& r, Complain complain) {
  TrainRecipe& t = r.train;
  const std::pair<const char*, bool> budgets[] = {{"epochs", t.epochs.has_value()},
                                                  {"steps", t.steps.has_value()},
                                                  {"tokens", t.tokens.has_value()},
                                                  {"time", t.time.has_value()}};
  std::string first;
  for (const auto& [name, given] : budgets) {
    if (!given) continue;
    if (!first.empty()) {
      complain(str("train.", name), str(first, " and ", name,
                                        " are both given; exactly one of epochs, steps, tokens "
                                        "and time says how long to train"));
    }
    first = name;
  }
  if (first.empty()) {
    complain("train", "[train] needs one of epochs, steps, tokens and time");
  }
  if (t.tokens && r.task != "lm" && r.task != "sft") {
    complain("train.tokens",
             str("the task ", task_name(r), " has no tokens; use epochs, steps or time"));
  }
  if (r.task == "regress" && t.label_smoothing > 0) {
    complain("train.label_smoothing", "the task regress has numbers, no classes to spread it over");
  }
  set_default(t.micro_batch, t.batch_size);
  if (t.batch_size % *t.micro_batch != 0) {
    complain("train.micro_batch",
             str("micro_batch = ", *t.micro_batch, " does not divide batch_size = ", t.batch_size,
                 "; ", divisors(t.batch_size), " would"));
  }
}

void complete_optimizer(Recipe& r, Complain complain) {
  OptimizerRecipe& o = r.optimizer;
  const std::string& type = o.type;
  if (is_one_of(type, {"adam", "adamw", "lion", "muon"}) && o.betas.empty()) {
    o.betas = type == "lion" ? std::vector{0.9, 0.99} : std::vector{0.9, 0.999};
  }
  if (is_one_of(type, {"adam", "adamw", "rmsprop", "muon"})) set_default(o.eps, 1e-8);
  if (type == "adagrad") set_default(o.eps, 1e-10);
  set_default(o.weight_decay, type == "adamw" ? 0.01 : 0.0);
  if (is_one_of(type, {"sgd", "rmsprop"})) set_default(o.momentum, 0.0);
  if (type == "muon") set_default(o.momentum, 0.95);
  if (type == "sgd") set_default(o.dampening, 0.0);
  if (is_one_of(type, {"sgd", "muon"})) set_default(o.nesterov, type == "muon");
  if (type == "rmsprop") set_default(o.alpha, 0.99);
  if (is_one_of(type, {"adam", "adamw"})) set_default(o.amsgrad, false);
  if (type == "sgd" && *o.nesterov && (*o.momentum == 0 || *o.dampening != 0)) {
    complain("optimizer.nesterov", "nesterov needs a momentum and no dampening");
  }
  for (size_t i = 0; i < o.groups.size(); ++i) {
    if (o.groups[i].match.empty()) {
      complain(str("optimizer.groups[", i, "]"), "match is missing: a pattern on parameter names");
    }
  }
}

void complete_schedule(Recipe& r, Complain complain) {
  ScheduleRecipe& s = r.schedule;
  const std::string& type = s.type;
  const auto need = [&](const char* key, bool given, const char* what) {
    if (!given) complain("schedule.type", str(type, " needs schedule.", key, ": ", what));
  };
  need("step_size", type != "step" || s.step_size, "the steps between two drops");
  need("milestones", type != "multistep" || !s.milestones.empty(), "the steps of the drops");
  if (!std::is_sorted(s.milestones.begin(), s.milestones.end())) {
    complain("schedule.milestones", "the steps must rise");
  }
  if (is_one_of(type, {"step", "multistep", "exponential", "polynomial", "linear", "cosine",
                       "cosine_restarts", "inverse_sqrt", "wsd", "plateau"})) {
    set_default(s.min_lr, 0.0);
    if (*s.min_lr > r.optimizer.lr) {
      complain("schedule.min_lr",
               str("min_lr = ", *s.min_lr, " is above optimizer.lr = ", r.optimizer.lr));
    }
  }
  if (is_one_of(type, {"step", "multistep"})) set_default(s.gamma, 0.1);
  if (type == "exponential") set_default(s.gamma, 0.999);
  if (type == "polynomial") set_default(s.power, 1.0);
  if (type == "cosine_restarts") set_default(s.period_factor, 1.0);
  if (type == "one_cycle") {
    if (s.warmup == 0) s.warmup = 0.3;
    set_default(s.div_factor, 25.0);
    set_default(s.final_div_factor, 10000.0);
  }
  if (type == "wsd") {
    set_default(s.decay_fraction, 0.1);
    set_default<std::string>(s.decay, "cosine");
  }
  if (type == "plateau") {
    set_default(s.factor, 0.1);
    set_default<int64_t>(s.patience, 10);
    set_default(s.threshold, 1e-4);
    set_default<int64_t>(s.cooldown, 0);
  }
  if (r.train.steps && s.warmup >= 1 && s.warmup > static_cast<double>(*r.train.steps)) {
    complain("schedule.warmup", str("a warm-up of ", s.warmup, " steps is longer than the run of ",
                                    *r.train.steps, "; below 1 it is a share of the run"));
  }
  const bool needs_end = is_one_of(type, {"polynomial", "linear", "cosine", "one_cycle", "wsd"}) ||
                         (type == "cosine_restarts" && !s.period) || (s.warmup > 0 && s.warmup < 1);
  if (r.train.time && needs_end) {
    complain(s.warmup > 0 && s.warmup < 1 ? "schedule.warmup" : "schedule.type",
             "with train.time the number of steps is not known, which this needs; give epochs, "
             "steps or tokens, or take another schedule");
  }
}

// Token ids alone do not say how many bytes they are.
std::vector<std::string> text_metrics(const Recipe& r) {
  std::vector<std::string> names = {"eval_loss", "eval_perplexity"};
  if (format_of_data(r) != "bin") names.emplace_back("eval_bits_per_byte");
  return names;
}

void complete_metrics(const Recipe& r, Complain complain) {
  const std::vector<std::string> measured =
      r.task == "classify" || !r.task ? std::vector<std::string>{"eval_loss", "eval_accuracy"}
      : r.task == "regress"           ? std::vector<std::string>{"eval_loss"}
                                      : text_metrics(r);
  const std::pair<const char*, const std::string&> watched[] = {
      {"checkpoint.metric", r.checkpoint.metric},
      {"eval.early_stop.metric", r.eval.early_stop.metric}};
  for (const auto& [key, metric] : watched) {
    if (std::find(measured.begin(), measured.end(), metric) != measured.end()) continue;
    complain(key, str(quoted(metric), " is not measured; the task ", task_name(r), " has ",
                      join(measured, ", ")));
  }
}

void check_lora_init(const LoraRecipe& lora, Complain complain) {
  if (lora.init_iterations && lora.init != "pissa") {
    complain("lora.init_iterations", str("belongs to lora.init = pissa, which is ", lora.init));
  }
  if (lora.adapter && lora.init != LoraRecipe().init) {
    complain("lora.init", "additions start as in lora.adapter; leave one of the keys out");
  }
  if (lora.init != "orthogonal") return;
  constexpr const char* kOdd = "is odd, and orthogonal additions are halves of a whole";
  if (lora.rank.value_or(0) % 2 != 0) complain("lora.rank", kOdd);
  for (size_t i = 0; i < lora.groups.size(); ++i) {
    if (lora.groups[i].rank.value_or(0) % 2 == 0) continue;
    complain(str("lora.groups[", i, "].rank"), kOdd);
  }
}

void complete_export(Recipe& r, Complain complain) {
  ExportRecipe& e = r.exported;
  if (e.weights == "best" && r.checkpoint.keep_best == 0) {
    complain("export.weights", "best needs checkpoint.keep_best of at least 1");
  }
  if (e.weights == "best" && r.checkpoint.every == 0) {
    complain("export.weights", "best needs checkpoints; checkpoint.every is 0");
  }
  if (e.merge_lora && !r.lora.rank) {
    complain("export.merge_lora", "there is no LoRA to merge; give lora.rank");
  }
  if (std::find(e.format.begin(), e.format.end(), "hf") == e.format.end()) {
    complain("export.format",
             R"(the Hugging Face directory is always written; say ["hf", "gguf"])");
  }
  if (!wants_gguf(r)) {
    if (e.quant) complain("export.quant", "is of a GGUF file; export.format does not name gguf");
    return;
  }
  if (r.task != "lm" && r.task != "sft") {
    complain("export.format", str("GGUF is for language models; the task is ", task_name(r)));
  }
  if (r.model.type && is_one_of(*r.model.type, {"rnn", "lstm", "gru"})) {
    complain("export.format", str("GGUF has no name for a ", *r.model.type));
  }
  if (r.model.type && format_of_data(r) == "bin" && !r.tokenizer.path) {
    complain("export.format",
             "a GGUF file has a tokenizer; name that of the data in tokenizer.path");
  }
  set_default<std::string>(e.quant, "f16");
  if (makes_adapter(r) && is_quantized(gguf_file_type(*e.quant).matrices)) {
    complain("export.quant", "an adapter takes f32, f16 or bf16; or say export.merge_lora = true");
  }
}

void complete_rest(Recipe& r, Complain complain) {
  if (r.lora.rank && (!r.model.path || r.model.init != "pretrained")) {
    complain("lora.rank", str("LoRA adds to a trained model; ",
                              r.model.path ? "model.init is random" : "give model.path"));
  }
  const std::vector<std::string>& targets = r.lora.targets;
  if (targets.size() > 1 &&
      std::find(targets.begin(), targets.end(), LoraRecipe::kAllLinear) != targets.end()) {
    complain("lora.targets", "all-linear, which means all of them, stands alone");
  }
  if (!r.lora.groups.empty() && !r.lora.rank) {
    complain("lora.groups", "there is no LoRA; give lora.rank");
  }
  check_lora_init(r.lora, complain);
  for (size_t i = 0; i < r.lora.groups.size(); ++i) {
    if (r.lora.groups[i].match.empty()) {
      complain(str("lora.groups[", i, "]"), "match is missing: a pattern on paths of layers");
    }
  }
  if (r.data.eval.empty() && r.data.eval_fraction == 0.0) check_without_evaluation(r, complain);
  complete_export(r, complain);
  for (const auto& [key, text] :
       {std::pair("name", r.name), std::pair("output_dir", r.output_dir)}) {
    if (text.find('\0') != text.npos) complain(key, "no path has the character U+0000");
  }
  if (r.output_dir.empty()) {
    if (r.name.find('/') != std::string::npos || r.name.starts_with('.')) {
      complain("name", str("name = ", quoted(r.name), " cannot be a directory in runs/; give a ",
                           "name without / that does not begin with a dot, or output_dir"));
    }
    r.output_dir = "runs/" + r.name;
  }
}

}  // namespace

std::vector<std::string> possible_formats(const DataSource& source) {
  std::vector<std::string> names;
  if (source.format) {
    names = {*source.format};
  } else if (source.dataset) {
    for (const data::Format format : data::dataset_formats(*source.dataset)) {
      names.emplace_back(data::kFormatNames[static_cast<size_t>(format)]);
    }
  } else if (!source.path.empty()) {
    if (std::string format = format_of(source.path.front()); !format.empty()) names = {format};
  }
  return names;
}

void check_without_evaluation(const Recipe& r, Complain complain) {
  const std::pair<const char*, bool> followers[] = {
      {"eval.early_stop.patience", r.eval.early_stop.patience > 0},
      {"schedule.type", r.schedule.type == "plateau"},
      {"export.weights", r.exported.weights == "best"}};
  for (const auto& [key, follows] : followers) {
    if (!follows) continue;
    complain(key,
             "follows evaluations, and there is nothing to evaluate on; see [[data.eval]] and "
             "data.eval_fraction");
  }
}

void complete(Recipe& recipe, Complain complain) {
  complete_data_sources(recipe, complain);
  complete_task(recipe, complain);
  complete_model(recipe, complain);
  complete_language(recipe, complain);
  complete_train(recipe, complain);
  complete_optimizer(recipe, complain);
  complete_schedule(recipe, complain);
  complete_metrics(recipe, complain);
  complete_rest(recipe, complain);
}

}  // namespace lumen::runtime
