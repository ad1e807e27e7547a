// A model made ready to be talked to.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lib/io/model_files.h"
#include "lib/runtime/generation/generation.h"
#include "lib/runtime/generation/language_model.h"
#include "lib/runtime/generation/prompt_format.h"
#include "lib/runtime/run_options.h"

namespace lumen::runtime {

// Everything a chat or an answer needs. `files` may be empty for models that are none (tests).
struct Session {
  std::string name;  // as the user named it, or "built-in"
  io::ModelFiles files;
  PromptFormat format;
  std::unique_ptr<LanguageModel> model;
  std::unique_ptr<LanguageModel> draft;  // guesses for `model`; null: none
  double load_seconds = 0;
  std::vector<std::string> notices;                         // one line each, worth telling the user
  std::shared_ptr<ConstraintSource> constraints = nullptr;  // null for a session of tests
  std::shared_ptr<text::TokenConstraint> constraint = nullptr;  // of all answers, if not null
};

// The files of the language model at `path`. Throws Error as io::open_model; what the config.json
// of a directory names is refused before the weights are looked at, some of which may still be
// missing.
// `gguf` as there.
io::ModelFiles open_known_model(const std::string& path,
                                std::shared_ptr<const io::GgufFile> gguf = nullptr);

// The files of the language model `name`, a path or org/name. Throws Error as io::find_model and
// open_known_model, and kUnsupported if it is a classifier, which only lumen-run takes.
io::ModelFiles open_language_model(const std::string& name,
                                   std::shared_ptr<const io::GgufFile> gguf = nullptr);

// Opens, checks and loads what `options` name. Throws Error as io::open_model, PromptFormat::load,
// LanguageModel::load, and, before the model is opened, requested_grammar; kMismatch if tokenizer
// and model, or model and draft model, do not belong together.
Session load_session(const RunOptions& options);

// The model alone, for token ids: no tokenizer is needed. Adds to `notices`. Throws as
// load_session.
std::unique_ptr<LanguageModel> load_model(const RunOptions& options,
                                          std::vector<std::string>& notices);

// A generator for `session`, which must outlive it, that guesses ahead as `options` ask.
Generator make_generator(const RunOptions& options, Session& session);

// How to sample in `session` as `options` ask: resolve_sampling and resolve_logit_bias, which
// throw.
SamplingSettings sampling_settings(const SamplingOptions& options, const Session& session);

// A sampler for the model of `session`.
Sampler make_sampler(const SamplingSettings& settings, const Session& session);

// How to generate in `session` as `options` ask.
GenerationOptions generation_options(const RunOptions& options, const Session& session);

}  // namespace lumen::runtime
