#include "lib/runtime/tool/foreign_options.h"

#include <CLI/CLI.hpp>
#include <utility>

#include "lib/base/strings.h"

namespace lumen::runtime {
namespace {

// Names of llama.cpp, of transformers and of MLX, and ours.
constexpr std::pair<std::string_view, const char*> kNames[] = {
    {"--n-predict", "max-tokens"},
    {"--predict", "max-tokens"},
    {"--max-new-tokens", "max-tokens"},
    {"--ctx-size", "ctx"},
    {"--temperature", "temp"},
    {"--typical", "typical-p"},
    {"--top-nsigma", "top-n-sigma"},
    {"--system-prompt", "system"},
    {"-sys", "system"},
    {"--outtype", "type"},
    {"--q-bits", "type"},
    {"--split-max-size", "shard-size"},
    {"--cache-type-k", "kv"},
    {"--cache-type-v", "kv"},
    {"-ctk", "kv"},
    {"-ctv", "kv"},
    {"--kv-bits", "kv"},
    {"--max-kv-size", "ctx"},
    {"--model-draft", "draft"},
    {"-md", "draft"},
    {"--draft-model", "draft"},
    {"--adapter-path", "lora"},
    {"--output-dir", "out"},
    {"--grammar-file", "grammar"},
    {"--json-schema-file", "json-schema"},
    {"-j", "json-schema"},
    {"-jf", "json-schema"},
    {"--chat-template-file", "chat-template"},
    {"--chat-template-kwargs", "template-arg"},
    {"--chat-template-config", "template-arg"},
    {"--ignore-chat-template", "raw"},
    {"-no-cnv", "raw"},
    {"--no-conversation", "raw"},
    {"--extra-eos-token", "stop"},
    {"-r", "stop"},
    {"--reverse-prompt", "stop"},
    {"--verbose-prompt", "show-prompt"},
    {"--perf", "stats"},
    {"--threads-batch", "threads"},
    {"-tb", "threads"},
    {"--override-kv", "set"},
    {"--dry-sequence-breakers", "dry-sequence-breaker"},
};

// Options of llama.cpp for what here is done otherwise, or always.
constexpr std::pair<std::string_view, const char*> kOtherWays[] = {
    {"-ngl", "all layers are computed on the CPU: leave it out"},
    {"--n-gpu-layers", "all layers are computed on the CPU: leave it out"},
    {"--gpu-layers", "all layers are computed on the CPU: leave it out"},
    {"-i", "without --prompt it is a chat"},
    {"--interactive", "without --prompt it is a chat"},
    {"-cnv", "without --prompt it is a chat"},
    {"--conversation", "without --prompt it is a chat"},
    {"-st", "with --prompt it ends after one answer"},
    {"--single-turn", "with --prompt it ends after one answer"},
    {"--color", "leave it out"},
    {"-co", "leave it out"},
    {"--log-disable", "only errors and notes go to stderr: leave it out"},
    {"--no-display-prompt", "the prompt is not shown: leave it out"},
    {"--no-warmup", "there is none: leave it out"},
    {"--no-perf", "speed is shown only with --stats: leave it out"},
    {"--jinja", "templates are always Jinja: leave it out"},
    {"-fa", "attention never stores all its weights: leave it out"},
    {"--flash-attn", "attention never stores all its weights: leave it out"},
    {"--no-mmap", "weights are repacked into memory as they are used: leave it out"},
    {"--mlock", "weights are repacked into memory as they are used: leave it out"},
    {"-b", "the pieces of a prompt have one size: leave it out"},
    {"--batch-size", "the pieces of a prompt have one size: leave it out"},
    {"-ub", "the pieces of a prompt have one size: leave it out"},
    {"--ubatch-size", "the pieces of a prompt have one size: leave it out"},
    {"-hf", "name MODEL without an option: org/name, from the Hugging Face cache"},
    {"--hf-repo", "name MODEL without an option: org/name, from the Hugging Face cache"},
    {"--rope-freq-base", "it is --set rope_theta=N"},
    {"--sampler-seq", "name them: --samplers 'top_k;top_p;temperature'"},
    {"--sampling-seq", "name them: --samplers 'top_k;top_p;temperature'"},
};

// Keys of OpenAI's API, of llama.cpp's server, of ollama and of transformers, and ours in a batch.
constexpr std::pair<std::string_view, const char*> kRequestKeys[] = {
    {"chat_template_kwargs", "template_args"},
    {"custom_id", "id"},
    {"input", "prompt"},
    {"instructions", "system"},
    {"max_completion_tokens", "max_tokens"},
    {"max_new_tokens", "max_tokens"},
    {"max_output_tokens", "max_tokens"},
    {"mirostat_eta", "mirostat_lr"},
    {"mirostat_tau", "mirostat_ent"},
    {"n_predict", "max_tokens"},
    {"num_predict", "max_tokens"},
    {"repetition_penalty", "repeat_penalty"},
    {"response_format", "json_schema"},
    {"stop_sequences", "stop"},
    {"typ_p", "typical_p"},
};

// Keys of transformers (TrainingArguments, configs of models), PEFT, TRL, axolotl, torchtune,
// litgpt, mlx-lm and nanoGPT, and ours.
constexpr std::pair<std::string_view, const char*> kRecipeKeys[] = {
    {"adam_beta1", "optimizer.betas"},
    {"adam_beta2", "optimizer.betas"},
    {"adam_epsilon", "optimizer.eps"},
    {"adapter_path", "lora.adapter"},
    {"alpha_pattern", "lora.groups"},
    {"assistant_only_loss", "data.mask"},
    {"auto_resume_from_checkpoints", "checkpoint.resume"},
    {"base_model", "model.path"},
    {"bf16", "train.precision"},
    {"block_size", "model.context"},
    {"checkpoint_dir", "model.path"},
    {"completion_only_loss", "data.mask"},
    {"cosine_min_lr_ratio", "schedule.min_lr"},
    {"datasets", "data.train"},
    {"early_stopping_patience", "eval.early_stop.patience"},
    {"eval_interval", "eval.every"},
    {"eval_steps", "eval.every"},
    {"exclude_modules", "lora.exclude"},
    {"fp16", "train.precision"},
    {"fuse", "export.merge_lora"},
    {"gradient_accumulation_steps", "train.micro_batch"},
    {"gradient_checkpointing", "train.activation_checkpointing"},
    {"hidden_size", "model.dim, or model.hidden of an MLP or RNN"},
    {"init_lora_weights", "lora.init"},
    {"intermediate_size", "model.ffn"},
    {"iters", "train.steps"},
    {"label_smoothing_factor", "train.label_smoothing"},
    {"learning_rate", "optimizer.lr"},
    {"load_best_model_at_end", "export.weights"},
    {"logging_steps", "log.every"},
    {"lora_alpha", "lora.alpha"},
    {"lora_dropout", "lora.dropout"},
    {"lora_model_dir", "lora.adapter"},
    {"lora_modules_to_save", "lora.modules_to_save"},
    {"lora_r", "lora.rank"},
    {"lora_target_linear", "lora.targets"},
    {"lora_target_modules", "lora.targets"},
    {"loraplus_lr_ratio", "optimizer.groups"},
    {"lr_scheduler", "schedule.type"},
    {"lr_scheduler_type", "schedule.type"},
    {"lr_warmup_steps", "schedule.warmup"},
    {"mask_prompt", "data.mask"},
    {"max_grad_norm", "train.grad_clip"},
    {"max_iters", "train.steps"},
    {"max_position_embeddings", "model.context"},
    {"max_seq_length", "data.max_length"},
    {"max_steps", "train.steps"},
    {"micro_batch_size", "train.micro_batch"},
    {"model_name_or_path", "model.path"},
    {"n_embd", "model.dim"},
    {"n_head", "model.heads"},
    {"n_layer", "model.layers"},
    {"num_attention_heads", "model.heads"},
    {"num_epochs", "train.epochs"},
    {"num_hidden_layers", "model.layers"},
    {"num_key_value_heads", "model.kv_heads"},
    {"num_train_epochs", "train.epochs"},
    {"num_warmup_steps", "schedule.warmup"},
    {"optim", "optimizer.type"},
    {"packing", "data.pack"},
    {"per_device_train_batch_size", "train.micro_batch"},
    {"r", "lora.rank"},
    {"rank_pattern", "lora.groups"},
    {"resume_from_checkpoint", "checkpoint.resume"},
    {"run_name", "name"},
    {"sample_packing", "data.pack"},
    {"save_every", "checkpoint.every"},
    {"save_steps", "checkpoint.every"},
    {"save_total_limit", "checkpoint.keep_last"},
    {"sequence_len", "data.max_length"},
    {"steps_per_eval", "eval.every"},
    {"steps_per_report", "log.every"},
    {"target_modules", "lora.targets"},
    {"train_on_inputs", "data.mask"},
    {"use_dora", "lora.dora"},
    {"use_rslora", "lora.rslora"},
    {"val_batches", "eval.max_batches"},
    {"val_set_size", "data.eval_fraction"},
    {"warmup_iters", "schedule.warmup"},
    {"warmup_ratio", "schedule.warmup"},
    {"warmup_steps", "schedule.warmup"},
};

template <typename Table>
const char* found(const Table& table, std::string_view word) {
  for (const auto& [name, value] : table) {
    if (name == word) return value;
  }
  return nullptr;
}

}  // namespace

std::string foreign_option_hint(const CLI::App& app, std::string_view word) {
  const char* name = found(kNames, word);
  if (const std::string option = str("--", name ? name : "");
      name && app.get_option_no_throw(option) != nullptr) {
    return str("did you mean ", option, "?");
  }
  if (app.get_option_no_throw("MODEL") == nullptr) return "";
  if (word == "-m" || word == "--model") return "did you mean MODEL without an option?";
  const bool generates = app.get_option_no_throw("--ctx") != nullptr;
  const char* other = found(kOtherWays, word);
  return generates && other ? other : "";
}

std::string foreign_key(std::string_view key) {
  const char* name = found(kRequestKeys, key);
  return name == nullptr ? "" : name;
}

std::string foreign_recipe_key(std::string_view key) {
  const char* name = found(kRecipeKeys, key);
  return name == nullptr ? "" : name;
}

bool hides_short_option(std::string_view word) {
  return word.size() > 2 && word[1] != '-' && (found(kNames, word) || found(kOtherWays, word));
}

}  // namespace lumen::runtime
