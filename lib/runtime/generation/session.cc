#include "lib/runtime/generation/session.h"

#include <algorithm>
#include <limits>

#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/io/mapped_file.h"
#include "lib/io/model_formats.h"
#include "lib/runtime/adapters/combine_adapters.h"
#include "lib/runtime/builtin_model.h"
#include "lib/runtime/classify.h"
#include "lib/runtime/tool/output.h"
#include "lib/runtime/tool/report.h"
#include "models/model.h"

namespace lumen::runtime {

namespace {

// Answers of a batch at once, if the user does not say and memory suffices: more pay little, as
// products are then bound by arithmetic.
constexpr int64_t kDefaultParallel = 8;

LoadOptions load_options(const RunOptions& options) {
  LoadOptions load;
  load.kv_type = *dtype_named(options.kv);
  load.threads = static_cast<int>(options.threads.value_or(0));
  load.allow_nonfinite = options.allow_nonfinite;
  load.repack = !options.no_repack;
  if (options.stats) {
    load.announce = [](const MemoryPlan& memory) { write_stderr(describe(memory)); };
  }
  return load;
}

std::unique_ptr<LanguageModel> load_main(const RunOptions& options, const io::ModelFiles& files) {
  LoadOptions load = load_options(options);
  load.context = options.context.value_or(0);
  load.lora = options.lora;
  load.overrides = options.overrides;
  if (options.batch) {
    load.slots = options.parallel.value_or(kDefaultParallel);
    load.fewer_slots = !options.parallel;
  }
  return LanguageModel::load(files, load);
}

io::ModelFiles open_main(const RunOptions& options) {
  const std::string name = options.model.value_or(std::string(kBuiltinModel));
  io::ModelFiles files = open_known_model(find_model(name));
  if (name != kBuiltinModel) return files;
  files.generation_config["do_sample"] = false;  // of facts the likeliest answer is wanted
  return files;
}

void add_memory_notices(const MemoryPlan& memory, std::vector<std::string>& notices) {
  if (!memory.notice.empty()) notices.push_back(memory.notice);
  if (memory.packed_bytes == 0 && memory.weight_bytes + memory.kv_bytes > memory.available_bytes) {
    notices.push_back(str("weights and KV cache take ",
                          human_bytes(memory.weight_bytes + memory.kv_bytes), ", available are ",
                          human_bytes(memory.available_bytes),
                          ": weights will be read from disk again and again"));
  }
}

std::unique_ptr<LanguageModel> load_draft(const RunOptions& options,
                                          const text::Tokenizer& tokenizer, int64_t context) {
  return with_context("--draft", [&] {
    const auto files = open_known_model(find_model(*options.draft));
    check_draft_vocabulary(*PromptFormat::load(files, "").tokenizer(), tokenizer);
    LoadOptions load = load_options(options);
    load.context = std::min(
        context, io::get_int(files.config, "max_position_embeddings", 1, limits::kContext));
    return LanguageModel::load(files, load);
  });
}

// End tokens that --set names stand for those of the files.
void set_end_tokens(const std::vector<std::string>& overrides, io::ModelFiles& files) {
  constexpr std::string_view kKey = "eos_token_id=";
  for (const std::string& item : overrides) {
    if (!item.starts_with(kKey)) continue;
    const std::string_view value = std::string_view(item).substr(kKey.size());
    files.end_tokens.clear();
    try {
      io::add_end_tokens(io::parse_json(value, "JSON"), "--set eos_token_id", files.end_tokens);
    } catch (const Error& error) {
      fail(ErrorKind::kUsage, "--set ", quoted(item), ": ", error.what());
    }
  }
}

}  // namespace

io::ModelFiles open_known_model(const std::string& path, std::shared_ptr<const io::GgufFile> gguf) {
  const std::string config = path + "/config.json";
  if (io::is_regular_file(config)) {
    with_context(io::place_of(config), [&] {
      models::find_model_def(io::language_model_config(io::read_config(config)));
    });
  }
  return io::open_model(path, std::move(gguf));
}

io::ModelFiles open_language_model(const std::string& name,
                                   std::shared_ptr<const io::GgufFile> gguf) {
  const std::string path = find_model(name);
  if (is_classifier_directory(path)) {
    fail(ErrorKind::kUnsupported, io::place_of(path),
         ": is a classifier, not a language model; only lumen-run takes it");
  }
  return open_known_model(path, std::move(gguf));
}

Session load_session(const RunOptions& options) {
  const auto start = Clock::now();
  std::optional<text::Grammar> grammar = requested_grammar(options.grammar, options.json_schema);
  auto files = open_main(options);
  set_end_tokens(options.overrides, files);
  for (const std::string& adapter : options.lora) {
    // The template that an adapter was trained with; of several the first one's.
    auto templates = io::read_chat_templates(parse_adapter_name(adapter).path);
    if (templates.empty()) continue;
    files.chat_templates = std::move(templates);
    break;
  }
  auto format = PromptFormat::load(files, options.tokenizer.value_or(""),
                                   {options.chat_template, options.template_arguments});
  auto model = load_main(options, files);
  files.tensors.clear();  // what the model does not refer to may go
  const std::string vocabulary_notice =
      format.check_vocabulary(model->vocab(), files.format == io::ModelFormat::kLlama2c,
                              options.tokenizer              ? *options.tokenizer
                              : files.tokenizer_file.empty() ? files.path
                                                             : files.tokenizer_file);

  std::unique_ptr<LanguageModel> draft;
  if (options.draft && model->keeps_positions()) {
    draft = load_draft(options, *format.tokenizer(), model->context());
  }

  Session session{options.model.value_or("built-in"),
                  std::move(files),
                  std::move(format),
                  std::move(model),
                  std::move(draft),
                  0,
                  {}};
  session.constraints = std::make_shared<ConstraintSource>(session.format.tokenizer(),
                                                           session.format.end_token_ids());
  if (grammar) session.constraint = session.constraints->of(*std::move(grammar));
  if (!vocabulary_notice.empty()) session.notices.push_back(vocabulary_notice);
  if (!session.model->keeps_positions() && (options.draft || options.lookup.value_or(0) > 0)) {
    session.notices.push_back(
        str(options.draft ? "--draft" : "--lookup",
            " is not used: a recurrent model cannot take wrong guesses back"));
  }
  if (std::string notice = model_notice(session.files); !notice.empty()) {
    session.notices.push_back(std::move(notice));
  }
  for (const io::EndToken& end : session.format.end_tokens()) {
    if (end.id < session.model->vocab()) continue;
    session.notices.push_back(str("the end token ", end.id, " (", end.source,
                                  ") is not below the model's ", session.model->vocab(),
                                  " tokens: no answer ends with it"));
  }
  add_memory_notices(session.model->memory(), session.notices);
  session.load_seconds = seconds_since(start);
  return session;
}

std::unique_ptr<LanguageModel> load_model(const RunOptions& options,
                                          std::vector<std::string>& notices) {
  const io::ModelFiles files = open_main(options);
  auto model = load_main(options, files);
  if (std::string notice = model_notice(files); !notice.empty()) {
    notices.push_back(std::move(notice));
  }
  add_memory_notices(model->memory(), notices);
  return model;
}

Generator make_generator(const RunOptions& options, Session& session) {
  std::unique_ptr<Drafter> drafter;
  if (session.draft) {
    drafter = std::make_unique<DraftModel>(*session.draft, session.model->vocab());
  } else if (options.lookup != 0) {
    drafter = std::make_unique<PromptLookup>();
  }
  return Generator(*session.model, session.format.tokenizer(), std::move(drafter),
                   options.lookup.value_or(LanguageModel::kMostVerified - 1));
}

SamplingSettings sampling_settings(const SamplingOptions& options, const Session& session) {
  const io::ModelFiles& files = session.files;
  const std::string_view place =
      files.gguf != nullptr ? "general.sampling of the GGUF file" : "generation_config.json";
  SamplingSettings settings = resolve_sampling(options, files.generation_config, place);
  settings.logit_bias =
      resolve_logit_bias(options.logit_bias, *session.format.tokenizer(), session.model->vocab());
  if (options.ignore_eos) {
    for (const int32_t end : session.format.end_token_ids()) {
      if (end < session.model->vocab()) {
        settings.logit_bias[end] = -std::numeric_limits<double>::infinity();
      }
    }
  }
  settings.dry.last_n = std::min(settings.dry.last_n, session.model->context());
  settings.repeat_last_n = std::min(settings.repeat_last_n, session.model->context());
  return settings;
}

Sampler make_sampler(const SamplingSettings& settings, const Session& session) {
  return Sampler(settings, session.model->vocab(), session.format.tokenizer());
}

GenerationOptions generation_options(const RunOptions& options, const Session& session) {
  return {options.max_tokens,
          options.stop,
          session.format.end_token_ids(),
          session.constraint,
          session.format.channels(),
          options.hide_thinking};
}

}  // namespace lumen::runtime
