#include "lib/runtime/training/training_samples.h"

#include <atomic>

#include "lib/base/strings.h"
#include "lib/graph/tensor.h"
#include "lib/runtime/generation/generation.h"
#include "lib/runtime/generation/prompt_format.h"

namespace lumen::runtime {

namespace {

PromptFormat format_of(const TrainingData& data) {
  return {data.tokenizer, data.chat_template, {}, data.options.add_bos.value_or(false)};
}

// The tokens of a prompt, or why it is not continued in `context` positions.
struct PromptTokens {
  std::vector<int32_t> ids;
  std::string obstacle;
};

PromptTokens tokens_of(const PromptFormat& format, const std::string& prompt, bool is_chat,
                       int64_t context) {
  PromptTokens tokens;
  tokens.ids = format.encode(is_chat ? format.render({{"user", prompt}}) : prompt);
  const auto count = static_cast<int64_t>(tokens.ids.size());
  if (const std::string dropped = format.dropped_characters(prompt); !dropped.empty()) {
    tokens.obstacle = "the vocabulary has no token for " + dropped;
  } else if (count == 0) {
    tokens.obstacle = "it has no token";
  } else if (count >= context) {
    tokens.obstacle = str("it has ", count, " tokens, a row holds ", context);
  }
  return tokens;
}

}  // namespace

std::vector<std::string> obstacles_of(const TrainingData& data,
                                      const std::vector<std::string>& prompts, int64_t context) {
  std::vector<std::string> notices;
  const PromptFormat format = format_of(data);
  for (const std::string& prompt : prompts) {
    const PromptTokens tokens = tokens_of(format, prompt, data.chat_template.has_value(), context);
    if (tokens.obstacle.empty()) continue;
    notices.push_back(
        str("log.samples.prompts: ", quoted(prompt, 40), " is not continued: ", tokens.obstacle));
  }
  return notices;
}

std::vector<std::string> continue_prompts(const models::CausalLm& model, const TrainingData& data,
                                          const std::vector<std::string>& prompts,
                                          const ContinuationOptions& options,
                                          const StopCheck& stops) {
  const graph::NoGradScope no_grad;
  const PromptFormat format = format_of(data);
  const auto shared = LanguageModel::share(model, options.context, options.threads);
  Generator generator(*shared, data.tokenizer);  // it knows what the model has read
  std::vector<std::string> texts;
  std::atomic<bool> stop = false;
  for (const std::string& prompt : prompts) {
    if (stops()) break;
    const PromptTokens tokens =
        tokens_of(format, prompt, data.chat_template.has_value(), options.context);
    if (!tokens.obstacle.empty()) {
      texts.push_back(prompt);
      continue;
    }
    Sampler sampler({.seed = options.seed}, shared->vocab());
    const GenerationOptions until = {options.max_tokens, {}, format.end_token_ids()};
    const auto result = generator.generate(
        tokens.ids, sampler, until, !data.chat_template, [&](std::string_view) { stop = stops(); },
        &stop);
    texts.push_back(prompt + (data.chat_template ? " → " : "") + result.text);
  }
  return texts;
}

}  // namespace lumen::runtime
