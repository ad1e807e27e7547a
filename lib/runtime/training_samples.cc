#include "lib/runtime/training_samples.h"

#include <atomic>

#include "lib/base/strings.h"
#include "lib/graph/tensor.h"
#include "lib/runtime/generation.h"
#include "lib/runtime/prompt_format.h"

namespace lumen::runtime {

std::vector<std::string> unreadable_prompts(const TrainingData& data,
                                            const std::vector<std::string>& prompts) {
  std::vector<std::string> notices;
  const PromptFormat format(data.tokenizer, data.chat_template, {});
  for (const std::string& prompt : prompts) {
    const std::string dropped = format.dropped_characters(prompt);
    if (dropped.empty()) continue;
    notices.push_back(str("log.samples.prompts: ", quoted(prompt),
                          " is not continued: the vocabulary has no token for ", dropped));
  }
  return notices;
}

std::vector<std::string> continue_prompts(const models::CausalLm& model, const TrainingData& data,
                                          const std::vector<std::string>& prompts,
                                          const ContinuationOptions& options,
                                          const StopCheck& stops) {
  const graph::NoGradScope no_grad;
  const PromptFormat format(data.tokenizer, data.chat_template, {},
                            data.options.add_bos.value_or(false));
  const auto shared = LanguageModel::share(model, options.context, options.threads);
  Generator generator(*shared, data.tokenizer);  // it knows what the model has read
  std::vector<std::string> texts;
  std::atomic<bool> stop = false;
  for (const std::string& prompt : prompts) {
    if (stops()) break;
    const std::string text = data.chat_template ? format.render({{"user", prompt}}) : prompt;
    std::vector<int32_t> ids = format.encode(text);
    const bool fits = !ids.empty() && static_cast<int64_t>(ids.size()) < options.context;
    if (!fits || !format.dropped_characters(prompt).empty()) {
      texts.push_back(prompt);
      continue;
    }
    Sampler sampler({.seed = options.seed}, shared->vocab());
    const GenerationOptions until = {options.max_tokens, {}, format.end_token_ids()};
    const auto result = generator.generate(
        ids, sampler, until, !data.chat_template, [&](std::string_view) { stop = stops(); }, &stop);
    texts.push_back(prompt + (data.chat_template ? " → " : "") + result.text);
  }
  return texts;
}

}  // namespace lumen::runtime
