#include "lib/runtime/session.h"

#include <chrono>

#include "lib/io/hf_cache.h"
#include "lib/runtime/builtin_model.h"

namespace lumen::runtime {

Session load_session(const RunOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  auto files =
      io::open_model(options.model ? io::find_model(*options.model) : builtin_model_path());
  auto format = PromptFormat::load(files, options.tokenizer.value_or(""));
  LoadOptions load;
  load.context = options.context.value_or(0);
  load.kv_type = *dtype_named(options.kv);
  load.threads = static_cast<int>(options.threads.value_or(0));
  load.lora = options.lora.value_or("");
  load.overrides = options.overrides;
  load.allow_nonfinite = options.allow_nonfinite;
  auto model = LanguageModel::load(files, load);
  format.check_vocabulary(model->vocab(), files.format == io::ModelFormat::kLlama2c);

  Session session{options.model.value_or("built-in"),
                  std::move(files),
                  std::move(format),
                  std::move(model),
                  0,
                  {}};
  if (std::string notice = model_notice(session.files); !notice.empty()) {
    session.notices.push_back(std::move(notice));
  }
  session.load_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return session;
}

GenerationOptions generation_options(const RunOptions& options, const Session& session) {
  return {options.max_tokens, options.stop, session.format.end_token_ids()};
}

}  // namespace lumen::runtime
