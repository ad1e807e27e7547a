// The token loop: feed, sample, decode to text, until something says stop.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/function_ref.h"
#include "lib/runtime/language_model.h"
#include "lib/runtime/sampler.h"
#include "lib/text/tokenizer.h"

namespace lumen::runtime {

enum class StopReason {
  kEos,          // an end token
  kStop,         // one of the stop strings
  kLength,       // max_tokens
  kContext,      // no position left
  kInterrupted,  // the stop flag
};
std::string_view name(StopReason reason);  // "eos", "stop", "length", "context", "interrupted"

struct GenerationOptions {
  std::optional<int64_t> max_tokens;  // absent: until the context is full
  std::vector<std::string> stop;      // texts that end the answer and are not part of it
  std::vector<int32_t> end_tokens;
};

// Durations in seconds.
struct GenerationTimings {
  double prefill = 0;      // the prompt's tokens that were not in the cache
  double first_token = 0;  // from the start to the first token
  double decode = 0;       // from the first token to the end
};

struct GenerationResult {
  std::string text;                // without end tokens, stop string and other control tokens
  std::vector<int32_t> token_ids;  // without the end token
  StopReason stop_reason = StopReason::kLength;
  int64_t prompt_tokens = 0;  // the whole prompt
  int64_t cached_tokens = 0;  // of these, already in the KV cache
  GenerationTimings timings;

  int64_t completion_tokens() const { return static_cast<int64_t>(token_ids.size()); }
  double prompt_tokens_per_second() const;
  double tokens_per_second() const;  // of the decode steps; 0 if there was none
};

// Finds stop strings in a text that comes in pieces. Not thread-safe.
class StopMatcher {
 public:
  // Empty stop strings are ignored.
  explicit StopMatcher(std::vector<std::string> stops);

  // Adds `piece` and appends to `out` what cannot be part of a stop string any more. Returns true
  // when a stop string is complete: everything before its first occurrence has then been
  // appended, the rest is dropped. Does not allocate in the steady state.
  bool push(std::string_view piece, std::string& out);

  // Appends what is held back: the text is over.
  void finish(std::string& out);

 private:
  std::vector<std::string> stops_;
  std::string held_;
};

// Receives the answer's text as it becomes known, in whole characters.
using TextSink = FunctionRef<void(std::string_view)>;

// Runs a language model over a growing sequence of tokens and remembers which are in its KV cache,
// so that a prompt that continues the last one costs only its new tokens. Not thread-safe.
class Generator {
 public:
  Generator(LanguageModel& model, std::shared_ptr<const text::Tokenizer> tokenizer);

  // Continues `prompt` (not empty; at most model.context() tokens, all < model.vocab(): the caller
  // checks). With `continues_text` the answer is the rest of the prompt's text (it may begin inside
  // a word), otherwise a text of its own. `stop`, if given, ends it between two tokens or chunks of
  // the prompt. Decoding a token allocates nothing on the heap. Throws Error(kMalformed) if the
  // logits are not numbers, and what `sink` throws.
  GenerationResult generate(std::span<const int32_t> prompt, Sampler& sampler,
                            const GenerationOptions& options, bool continues_text, TextSink sink,
                            const volatile bool* stop = nullptr);

  LanguageModel& model() { return model_; }

 private:
  std::span<const float> feed_prompt(std::span<const int32_t> prompt, GenerationResult& result,
                                     const volatile bool* stop);

  LanguageModel& model_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::vector<int32_t> cached_;  // the tokens at positions [0, model_.position())
};

}  // namespace lumen::runtime
