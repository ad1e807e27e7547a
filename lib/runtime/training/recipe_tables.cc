// The tables of a recipe and their keys.
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/data/find_dataset.h"
#include "lib/runtime/conversion/gguf_file_type.h"
#include "lib/runtime/training/recipe_check.h"
#include "lib/runtime/training/recipe_table.h"

namespace lumen::runtime {
namespace {

KeyLimits between(double min, double max) {
  return {.min = min, .max = max};
}
KeyLimits at_least(double min) {
  return {.min = min, .max = kMany};
}
KeyLimits positive() {
  return {.min = 0, .max = kMany, .above_min = true};
}
KeyLimits share() {  // [0, 1]
  return {.min = 0, .max = 1};
}
KeyLimits one_of(std::vector<std::string> choices) {
  return {.choices = std::move(choices)};
}
KeyLimits any() {
  return {};
}

const std::vector<std::string> kRecurrent = {"rnn", "lstm", "gru"};
const std::vector<std::string> kTransformers = {"gpt2", "llama"};

RecipeTable top_level(Recipe& r) {
  TableBuilder t("", "what is trained");
  t.key("version", r.version, between(1, 1), "version of this format");
  t.key("name", r.name, any(), "name of the run (the file's name)").may_change();
  t.key("task", r.task, one_of({"classify", "regress", "lm", "sft"}),
        "classes, numbers, text, or answers to prompts (from the model, or the label of a table)");
  t.key("seed", r.seed, between(0, kMany), "of weights, order of data, dropout and samples");
  t.key("output_dir", r.output_dir, any(), "where the result goes (runs/NAME)").may_change();
  return t.take();
}

RecipeTable model_table(ModelRecipe& m) {
  TableBuilder t("model", "the network: made from a type, or an existing one to go on from");
  t.select_by("type", m.type);
  t.key("type", m.type, one_of({"mlp", "lenet", "resnet9", "rnn", "lstm", "gru", "gpt2", "llama"}),
        "architecture of a new network");
  t.key("path", m.path, any(), "language model to go on from: directory, GGUF file or org/name");
  t.key("init", m.init, one_of({"pretrained", "random"}), "with path: its weights or new ones");
  t.key("weights", m.weights, any(),
        "safetensors file with the first weights, of a classifier too (random)");
  t.key("hidden", m.hidden,
        {.min = 1, .max = static_cast<double>(limits::kDim), .min_items = 1, .max_items = 64},
        "width of each hidden layer; of recurrent networks one number")
      .only_for({"mlp", "rnn", "lstm", "gru"});
  t.key("activation", m.activation, one_of({"relu", "gelu", "silu", "tanh", "sigmoid"}),
        "nonlinearity (relu; of rnn tanh)")
      .only_for({"mlp", "lenet", "rnn"});
  t.key("dropout", m.dropout, {.min = 0, .max = 0.99},
        "share of activations, in gpt2 of attention weights too, set to 0 (0)")
      .only_for({"mlp", "lenet", "resnet9", "rnn", "lstm", "gru", "gpt2", "llama"});
  t.key("channels", m.channels, between(1, 4096), "of the first convolution (64)")
      .only_for({"resnet9"});
  t.key("embedding", m.embedding, between(1, limits::kDim), "width of token vectors (hidden)")
      .only_for(kRecurrent);
  t.key("layers", m.layers, between(1, limits::kLayers), "number of layers (1; transformers 6)")
      .only_for({"rnn", "lstm", "gru", "gpt2", "llama"});
  t.key("dim", m.dim, between(1, limits::kDim), "width of the residual stream (384)")
      .only_for(kTransformers);
  t.key("heads", m.heads, between(1, limits::kHeads), "attention heads (6)")
      .only_for(kTransformers);
  t.key("kv_heads", m.kv_heads, between(1, limits::kHeads), "heads of keys and values (heads)")
      .only_for({"llama"});
  t.key("head_dim", m.head_dim, between(1, limits::kDim), "width of a head (dim / heads)")
      .only_for({"llama"});
  t.key("ffn", m.ffn, between(1, limits::kDim),
        "width of the feed-forward layers (4 dim; llama 8/3 dim, rounded up to 32)")
      .only_for(kTransformers);
  t.key("context", m.context, between(1, limits::kContext), "longest sequence (256)")
      .only_for(kTransformers);
  t.key("rope_theta", m.rope_theta, between(1e-3, 1e12), "base of the rotary angles (10000)")
      .only_for({"llama"});
  t.key("norm_eps", m.norm_eps, {.min = 0, .max = 1, .above_min = true},
        "added to the variance in norms (1e-5)")
      .only_for(kTransformers);
  t.key("bias", m.bias, any(), "of linear layers and norms: always true").only_for({"gpt2"});
  t.key("tie_embeddings", m.tie_embeddings, any(),
        "output layer and token vectors are one matrix (transformers true, else false)")
      .only_for({"rnn", "lstm", "gru", "gpt2", "llama"});
  return t.take();
}

RecipeTable tokenizer_table(TokenizerRecipe& k) {
  TableBuilder t("tokenizer", "text to tokens: an existing tokenizer, or one trained first");
  t.select_by("type", k.type);
  t.key("path", k.path, any(), "tokenizer.json, .model, GGUF file or directory (the model's own)");
  t.key("type", k.type, one_of({"char", "bpe", "unigram", "byte_bpe"}),
        "train one: characters, sentencepiece BPE or unigram, byte-level BPE");
  t.key("vocab_size", k.vocab_size, between(2, static_cast<double>(limits::kVocab)),
        "tokens of a trained one (4096)")
      .only_for({"bpe", "unigram", "byte_bpe"});
  t.key("files", k.files, any(), "texts to train it on (the training data)")
      .only_for({"char", "bpe", "unigram", "byte_bpe"});
  t.key("special_tokens", k.special_tokens, any(), "texts that are one token each of a trained one")
      .only_for({"char", "bpe", "unigram", "byte_bpe"});
  t.key("chat_template", k.chat_template, any(), "Jinja file (the tokenizer's own, else ChatML)");
  t.key("add_bos", k.add_bos, any(), "start token before each document (as the tokenizer says)");
  t.key("add_eos", k.add_eos, any(),
        "end token after each document (if there is one; not of chats)");
  return t.take();
}

RecipeTable source_table(const std::string& name, DataSource& s) {
  TableBuilder t(name, "data, all of one format; path or dataset");
  t.repeat();
  t.key("dataset", s.dataset, any(),
        ("a known set, under LUMEN_DATA or built in: " + join(data::dataset_names(), ", ")).c_str())
      .may_change();
  t.key("path", s.path, {.min_items = 1},
        "files, directories, patterns (*, ?), or builtin:stories, names, chat or lumen-tiny")
      .may_change();
  t.key("format", s.format,
        one_of({"mnist", "cifar10", "digits", "images", "csv", "text", "lines", "jsonl", "faq",
                "bin"}),
        "what they are (from the file's ending)");
  return t.take();
}

RecipeTable data_table(DataRecipe& d, std::function<std::vector<std::string>()> format) {
  TableBuilder t("data", "how the data become batches");
  const std::vector<std::string> language = {"text", "lines", "jsonl", "faq", "bin"};
  const std::vector<std::string> documents = {"text", "lines", "jsonl", "faq"};
  const std::vector<std::string> images = {"mnist", "cifar10", "digits", "images"};
  const std::vector<std::string> varied = {"mnist", "cifar10", "digits", "images", "faq"};
  t.key("eval_fraction", d.eval_fraction, {.min = 0, .max = 0.9},
        "kept for evaluation (what the data come with, else 0.1)");
  t.key("max_samples", d.max_samples, between(0, 1e12),
        "so many of each split, drawn with seed; of long texts and bin the first; 0: all");
  t.key("shuffle", d.shuffle, any(), "another order in each epoch");
  t.key("prefetch", d.prefetch, any(),
        "make batches in a thread of their own where a core is left for it")
      .may_change();
  t.key(
      "last_batch", d.last_batch, one_of({"auto", "drop", "pad", "keep"}),
      "samples at the end of an epoch that fill no batch: left out, filled up, or a smaller batch "
      "(auto: drop, or keep if there is no other); evaluation has all");
  t.key("on_bad_row", d.on_bad_row, one_of({"stop", "skip"}), "a row that cannot be read");
  t.key("max_length", d.max_length, between(1, limits::kContext),
        "most tokens per row (model.context; with model.path at most 512; else 128)")
      .only_for(language);
  t.key("pack", d.pack, any(),
        "several documents per row, which do not see each other (text: with a separator)")
      .only_for(documents);
  t.key("separator", d.separator, any(), "text between documents; \"\": one long text")
      .only_for({"text"});
  t.key("on_too_long", d.on_too_long, one_of({"error", "truncate", "skip", "split"}),
        "documents longer than max_length (text: with a separator)")
      .only_for(documents);
  t.key("mask", d.mask,
        {.choices = {"none", "prompt", "system", "user", "assistant", "tool"}, .min_items = 1},
        "what is read but not learnt: none, prompt, or roles; messages with \"weight\": 0, too "
        "(prompt; of a new network none)")
      .only_for({"jsonl"});
  t.key("image_size", d.image_size, between(0, 4096), "height and width; 0: the format's own")
      .only_for({"digits", "images"});
  t.key("channels", d.channels, between(0, 3), "1 or 3; 0: the format's own")
      .only_for({"digits", "images"});
  t.key("augment", d.augment, any(),
        "training: random crops and flips of images; faq: questions as sentences, and with words "
        "left out")
      .only_for(varied);
  t.key("crop_padding", d.crop_padding, between(0, 1024), "pixels around the image to crop from")
      .only_for(images)
      .only_with("augment");
  t.key("flip", d.flip, any(), "augment exchanges left and right")
      .only_for(images)
      .only_with("augment");
  t.key("digits_train", d.digits_train, between(1, 1'000'000), "digits drawn for training")
      .only_for({"digits"});
  t.key("digits_eval", d.digits_eval, between(1, 1'000'000), "digits drawn for evaluation")
      .only_for({"digits"});
  t.key("mean", d.mean, any(), "of pixels / 255, per channel (measured)").only_for(images);
  t.key("std", d.std, {.min = 0, .above_min = true}, "of pixels / 255, per channel (measured)")
      .only_for(images);
  t.key("header", d.header, any(), "the first row names the columns; else they are 1, 2, ...")
      .only_for({"csv"});
  t.key("label", d.label, any(), "column to predict, by its name; \"\": the last")
      .only_for({"csv"});
  t.key("label_kind", d.label_kind, one_of({"auto", "classes", "number"}), "what the label is")
      .only_for({"csv"});
  t.key("text_columns", d.text_columns, one_of({"onehot", "drop"}), "columns that hold text")
      .only_for({"csv"});
  t.key("drop_columns", d.drop_columns, any(), "columns that are not used").only_for({"csv"});
  t.key("standardize", d.standardize, any(), "numbers to mean 0 and variance 1").only_for({"csv"});
  RecipeTable table = t.take();
  table.selector = "format";
  table.selected = std::move(format);
  return table;
}

RecipeTable train_table(TrainRecipe& r) {
  TableBuilder t("train",
                 "how long and in which steps; exactly one of epochs, steps, tokens, time");
  t.key("epochs", r.epochs, {.min = 0, .max = 1e9, .above_min = true}, "passes over the data")
      .may_change();
  t.key("steps", r.steps, between(1, kMany), "optimizer steps").may_change();
  t.key("tokens", r.tokens, positive(), "targets to learn from").may_change();
  t.duration("time", r.time, "how long: seconds, \"30m\", \"2h\"").may_change();
  t.key("batch_size", r.batch_size, between(1, 1'048'576), "samples per step");
  t.key("micro_batch", r.micro_batch, between(1, 1'048'576),
        "samples at once; gradients add up to batch_size (batch_size)");
  t.key("precision", r.precision, one_of({"f32", "highest", "bf16", "f16"}),
        "of products and, with bf16, activations; weights, sums and optimizer stay float32");
  t.key("grad_clip", r.grad_clip, between(0, 1e30), "largest norm of the gradient; 0: any");
  t.key("grad_clip_value", r.grad_clip_value, between(0, 1e30),
        "largest element of the gradient, after grad_clip; 0: any");
  t.key("label_smoothing", r.label_smoothing, {.min = 0, .max = 0.99},
        "share of each target spread over all classes, but not in evaluations");
  t.key(
      "router_aux_loss_coef", r.router_aux_loss_coef, between(0, 1e6),
      "weight of the loss that spreads tokens over experts, not in evaluations (config.json's, if "
      "that sets output_router_logits, else 0)");
  t.key("activation_checkpointing", r.activation_checkpointing, any(),
        "recompute activations instead of keeping them");
  t.key("skip_outlier_sigma", r.skip_outlier_sigma, between(0, 1000),
        "skip steps whose gradient norm is that many deviations off; 0: none");
  t.key("max_nonfinite", r.max_nonfinite, between(1, 1'000'000),
        "steps in a row without a finite loss before the run ends");
  return t.take();
}

RecipeTable optimizer_table(OptimizerRecipe& o) {
  TableBuilder t("optimizer", "how gradients change the weights");
  t.select_by("type", o.type);
  t.key("type", o.type,
        one_of({"sgd", "adam", "adamw", "rmsprop", "adagrad", "lion", "adafactor", "muon"}),
        "the rule");
  t.key("lr", o.lr, between(0, 1e30), "learning rate, the highest of the schedule");
  t.key("betas", o.betas, {.min = 0, .max = 0.9999999, .min_items = 2, .max_items = 2},
        "decay of both averages ([0.9, 0.999]; lion [0.9, 0.99])")
      .only_for({"adam", "adamw", "lion", "muon"});
  t.key("eps", o.eps, between(0, 1), "added to the divisor (1e-8; adagrad 1e-10)")
      .only_for({"adam", "adamw", "rmsprop", "adagrad", "muon"});
  t.key("weight_decay", o.weight_decay, between(0, 1000),
        "pull of the weights towards 0 (0; adamw 0.01)");
  t.key("no_decay", o.no_decay, any(),
        "parameters without it: patterns on names, \"1d\" for all vectors");
  t.key("momentum", o.momentum, {.min = 0, .max = 0.9999999}, "of the gradient (0; muon 0.95)")
      .only_for({"sgd", "rmsprop", "muon"});
  t.key("dampening", o.dampening, share(), "of the momentum (0)").only_for({"sgd"});
  t.key("nesterov", o.nesterov, any(), "look ahead along the momentum (false; muon true)")
      .only_for({"sgd", "muon"});
  t.key("alpha", o.alpha, {.min = 0, .max = 0.9999999}, "decay of the squares' average (0.99)")
      .only_for({"rmsprop"});
  t.key("amsgrad", o.amsgrad, any(), "divide by the largest average so far (false)")
      .only_for({"adam", "adamw"});
  return t.take();
}

RecipeTable group_table(const std::string& name, OptimizerGroup& g) {
  TableBuilder t(name, "parameters treated differently; the first match counts");
  t.repeat();
  t.key("match", g.match, any(), "pattern on parameter names (*, ?)");
  t.key("lr_factor", g.lr_factor, between(0, 1e6),
        "their learning rate is lr times this; 0: frozen");
  t.key("weight_decay", g.weight_decay, between(0, 1000),
        "theirs, whatever no_decay says (the optimizer's)");
  return t.take();
}

RecipeTable schedule_table(ScheduleRecipe& s) {
  TableBuilder t("schedule", "the learning rate over the run");
  t.select_by("type", s.type);
  t.key("type", s.type,
        one_of({"constant", "step", "multistep", "exponential", "polynomial", "linear", "cosine",
                "cosine_restarts", "inverse_sqrt", "one_cycle", "wsd", "plateau"}),
        "its shape after the warm-up");
  t.key("warmup", s.warmup, at_least(0),
        "rise from 0: steps, or below 1 the share of the run (0; one_cycle 0.3)");
  t.key("min_lr", s.min_lr, between(0, 1e30), "the lowest (0)")
      .only_for({"step", "multistep", "exponential", "polynomial", "linear", "cosine",
                 "cosine_restarts", "inverse_sqrt", "wsd", "plateau"});
  t.key("step_size", s.step_size, between(1, kMany), "steps between two drops").only_for({"step"});
  t.key("milestones", s.milestones, {.min = 1, .max = kMany, .min_items = 1}, "steps of the drops")
      .only_for({"multistep"});
  t.key("gamma", s.gamma, {.min = 0, .max = 1, .above_min = true},
        "factor of each drop, of exponential per step (0.1; exponential 0.999)")
      .only_for({"step", "multistep", "exponential"});
  t.key("power", s.power, positive(), "exponent (1)").only_for({"polynomial"});
  t.key("period", s.period, between(1, kMany), "steps of the first wave (the run)")
      .only_for({"cosine_restarts"});
  t.key("period_factor", s.period_factor, between(1, 1000), "each wave is longer by this (1)")
      .only_for({"cosine_restarts"});
  t.key("div_factor", s.div_factor, positive(), "begins at lr divided by this (25)")
      .only_for({"one_cycle"});
  t.key("final_div_factor", s.final_div_factor, positive(),
        "ends at the beginning divided by this (10000)")
      .only_for({"one_cycle"});
  t.key("decay_fraction", s.decay_fraction, share(), "share of the run in which it falls (0.1)")
      .only_for({"wsd"});
  t.key("decay", s.decay, one_of({"cosine", "linear", "1-sqrt"}), "how it falls (cosine)")
      .only_for({"wsd"});
  t.key("timescale", s.timescale, between(1, kMany),
        "steps until it has fallen to 0.7 (warmup; without one 10000)")
      .only_for({"inverse_sqrt"});
  t.key("factor", s.factor, {.min = 0, .max = 1, .above_min = true}, "of each drop (0.1)")
      .only_for({"plateau"});
  t.key("patience", s.patience, between(0, 1'000'000),
        "evaluations without improvement before a drop (10)")
      .only_for({"plateau"});
  t.key("threshold", s.threshold, share(), "the least relative improvement (1e-4)")
      .only_for({"plateau"});
  t.key("cooldown", s.cooldown, between(0, 1'000'000), "evaluations not counted after a drop (0)")
      .only_for({"plateau"});
  return t.take();
}

RecipeTable lora_table(LoraRecipe& l) {
  TableBuilder t("lora", "train small additions to a frozen model instead of all its weights");
  t.key("rank", l.rank, between(1, 4096), "of the additions (none: everything is trained)");
  t.key("alpha", l.alpha, positive(), "their scale is alpha / rank").only_with("rank");
  t.key("dropout", l.dropout, {.min = 0, .max = 0.99}, "on their input").only_with("rank");
  t.key("targets", l.targets, {.min_items = 1},
        "layers that get one, by the end of their name: q_proj, …; of GPT-2 c_attn, c_proj, c_fc; "
        "of experts experts.gate_up_proj, experts.down_proj (all-linear: all linear layers but "
        "the output, routers and experts)")
      .only_with("rank");
  t.key("exclude", l.exclude, {.min_items = 1}, "layers that get none, by the end of their name")
      .only_with("rank");
  t.key("layers", l.layers, between(0, limits::kLayers), "only the last so many blocks; 0: all")
      .only_with("rank");
  t.key("rslora", l.rslora, any(), "scale alpha / sqrt(rank)").only_with("rank");
  t.key("dora", l.dora, any(), "DoRA: the lengths of the weight's rows are trained apart")
      .only_with("rank");
  t.key("init", l.init, one_of({"uniform", "gaussian", "orthogonal", "random", "pissa", "olora"}),
        "what additions start as: random with B = 0 (uniform, gaussian), B A = 0 (orthogonal) or "
        "neither; a part of the weight, whose rest is frozen: of its largest singular values "
        "(pissa), of its Q R (olora)")
      .only_with("rank");
  t.key("init_iterations", l.init_iterations, between(1, 1'000'000),
        "pissa: at most so many subspaces in search of the singular values (until they are exact)")
      .only_with("rank");
  t.key("bias", l.bias, one_of({"none", "all", "lora_only"}),
        "biases of the model that are trained, too: all, or those of layers that have an addition")
      .only_with("rank");
  t.key("modules_to_save", l.modules_to_save, {.min_items = 1},
        "what is trained whole besides, by the end of its path: embed_tokens, lm_head, norm")
      .only_with("rank");
  t.key("adapter", l.adapter, any(),
        "PEFT directory, or GGUF file, whose additions are trained on (new ones)")
      .only_with("rank");
  return t.take();
}

RecipeTable lora_group_table(const std::string& name, LoraGroup& g) {
  TableBuilder t(name, "layers with a rank and an alpha of their own; the first match counts");
  t.repeat();
  t.key("match", g.match, any(), "pattern on the layer's path (*, ?)");
  t.key("rank", g.rank, between(1, 4096), "of their additions (lora.rank)");
  t.key("alpha", g.alpha, positive(), "their scale is alpha / rank (lora.alpha)");
  return t.take();
}

RecipeTable eval_table(EvalRecipe& e) {
  TableBuilder t("eval", "evaluation on data that are not trained on");
  t.key("every", e.every, between(1, kMany), "steps between two (once an epoch)").may_change();
  t.key("max_batches", e.max_batches, at_least(0), "the first so many; 0: all").may_change();
  return t.take();
}

RecipeTable early_stop_table(EvalRecipe::EarlyStop& s) {
  TableBuilder t("eval.early_stop", "end the run when evaluation no longer improves");
  t.key("metric", s.metric, any(), "what should improve: eval_loss, eval_accuracy, …")
      .only_with("patience")
      .may_change();
  t.key("patience", s.patience, between(0, 1'000'000), "evaluations without improvement; 0: never")
      .may_change();
  t.key("min_delta", s.min_delta, at_least(0), "less than this is no improvement")
      .only_with("patience")
      .may_change();
  return t.take();
}

RecipeTable checkpoint_table(CheckpointRecipe& c) {
  TableBuilder t("checkpoint", "what is kept to continue from");
  t.key("every", c.every, at_least(0), "steps between two; 0: only at the end (once an epoch)")
      .may_change();
  t.key("keep_last", c.keep_last, between(1, 1'000'000), "the newest so many").may_change();
  t.key("keep_best", c.keep_best, between(0, 1'000'000), "and so many of the best").may_change();
  t.key("metric", c.metric, any(), "what best means: eval_loss, eval_accuracy, …").may_change();
  t.key("resume", c.resume, {.min_length = 1}, "never, auto (the newest if there is one) or a path")
      .may_change();
  return t.take();
}

RecipeTable log_table(LogRecipe& l) {
  TableBuilder t("log", "what is written while training");
  t.key("every", l.every, between(1, kMany), "steps per row of metrics.jsonl").may_change();
  t.key("csv", l.csv, any(), "metrics.csv").may_change();
  t.key("tensorboard", l.tensorboard, any(), "an event file for TensorBoard").may_change();
  t.key("svg", l.svg, any(), "loss.svg at the end").may_change();
  return t.take();
}

RecipeTable samples_table(LogRecipe::Samples& s) {
  TableBuilder t("log.samples", "texts of the model while it learns");
  t.key("prompts", s.prompts, any(), "beginnings to continue").may_change();
  t.key("every", s.every, between(1, kMany), "steps between two (as eval.every)")
      .only_with("prompts")
      .may_change();
  t.key("max_tokens", s.max_tokens, between(1, 100'000), "length of each")
      .only_with("prompts")
      .may_change();
  return t.take();
}

RecipeTable export_table(ExportRecipe& e) {
  TableBuilder t("export", "the model that is left at the end");
  t.key("weights", e.weights, one_of({"last", "best"}), "of the last step or the best evaluation")
      .may_change();
  t.key("dtype", e.dtype, one_of({"f32", "f16", "bf16"}), "of its tensors").may_change();
  t.key("merge_lora", e.merge_lora, any(), "a whole model instead of an adapter").may_change();
  t.key("format", e.format, {.choices = {"hf", "gguf"}, .min_items = 1},
        "hf, a Hugging Face directory, and gguf: model.gguf (adapter.gguf) beside it")
      .may_change();
  std::vector<std::string> types;
  for (const GgufFileType& type : gguf_file_types()) types.emplace_back(type.name);
  t.key("quant", e.quant, one_of(std::move(types)), "type of the GGUF file's matrices (f16)")
      .may_change();
  return t.take();
}

}  // namespace

std::vector<RecipeTable> recipe_tables(Recipe& r) {
  std::vector<RecipeTable> tables = {top_level(r), model_table(r.model),
                                     tokenizer_table(r.tokenizer)};
  tables.push_back(data_table(r.data, [&r] {
    return r.data.train.empty() ? std::vector<std::string>{} : possible_formats(r.data.train[0]);
  }));
  for (size_t i = 0; i < r.data.train.size(); ++i) {
    tables.push_back(source_table(str("data.train[", i, "]"), r.data.train[i]));
  }
  for (size_t i = 0; i < r.data.eval.size(); ++i) {
    tables.push_back(source_table(str("data.eval[", i, "]"), r.data.eval[i]));
  }
  tables.push_back(train_table(r.train));
  tables.push_back(optimizer_table(r.optimizer));
  for (size_t i = 0; i < r.optimizer.groups.size(); ++i) {
    tables.push_back(group_table(str("optimizer.groups[", i, "]"), r.optimizer.groups[i]));
  }
  tables.push_back(schedule_table(r.schedule));
  tables.push_back(lora_table(r.lora));
  for (size_t i = 0; i < r.lora.groups.size(); ++i) {
    tables.push_back(lora_group_table(str("lora.groups[", i, "]"), r.lora.groups[i]));
  }
  tables.push_back(eval_table(r.eval));
  tables.push_back(early_stop_table(r.eval.early_stop));
  tables.push_back(checkpoint_table(r.checkpoint));
  tables.push_back(log_table(r.log));
  tables.push_back(samples_table(r.log.samples));
  tables.push_back(export_table(r.exported));
  return tables;
}

}  // namespace lumen::runtime
