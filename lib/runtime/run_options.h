// What a user may ask of lumen-run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/runtime/generation/sampling_options.h"
#include "lib/runtime/tool/command_line.h"

namespace lumen::runtime {

// What lumen-run can do; every option says which of it it matters to.
enum RunTask : unsigned {
  kChat = 1,
  kAnswer = 2,
  kLogits = 4,
  kBatch = 8,
  kTokenize = 16,
  kDetokenize = 32,
  kRender = 64,
  kClassify = 128,
  kDoctor = 256,
};

struct RunOptions {
  std::optional<std::string> model;  // absent: the built-in one
  std::vector<std::string> images;   // for a classifier

  std::optional<std::string> prompt, system, ids;
  std::vector<std::string> files;  // whose texts follow the prompt
  bool raw = false;
  std::optional<int64_t> max_tokens;
  std::vector<std::string> stop;
  std::optional<std::string> grammar, json_schema;
  SamplingOptions sampling;

  std::optional<std::string> tokenizer, chat_template;
  std::vector<std::string> template_arguments;
  std::optional<int64_t> context, threads;
  std::string kv = "f16";
  std::vector<std::string> lora;  // ADAPTER or ADAPTER=SCALE
  std::optional<std::string> draft, prompt_cache;
  std::optional<int64_t> lookup;  // most tokens guessed at once; absent: as many as can be verified
  std::vector<std::string> overrides;
  bool allow_nonfinite = false, no_repack = false;

  std::optional<std::string> batch;
  std::optional<int64_t> parallel;
  std::string on_bad_line = "stop";

  bool json = false, stats = false, profile = false, show_prompt = false, no_history = false;
  bool hide_thinking = false, doctor = false;
  std::optional<std::string> logits;

  bool tokenize = false, detokenize = false, jsonl = false;
  std::string special = "true";
  std::optional<std::string> render, render_context, now;

  GivenOptions given;

  // Throws Error(kUsage) naming options that do not go together, have no effect or are incomplete.
  void check() const;
};

// Adds the options of lumen-run to `line`; they write to `options`.
void declare(CommandLine& line, RunOptions& options);

}  // namespace lumen::runtime
