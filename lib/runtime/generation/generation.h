// The token loop: feed, sample, decode to text, until something says stop.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/function_ref.h"
#include "lib/runtime/chat/answer_channels.h"
#include "lib/runtime/generation/constraint.h"
#include "lib/runtime/generation/language_model.h"
#include "lib/runtime/generation/sampler.h"
#include "lib/runtime/generation/speculation.h"
#include "lib/text/tokenizer.h"

namespace lumen::runtime {

class Profiler;
struct GenerationProfile;

enum class StopReason {
  kEos,          // an end token, or the constraint allows nothing more
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
  std::shared_ptr<text::TokenConstraint> constraint = nullptr;  // what the answer must follow
  // Those of models that answer in channels: only what is for the user is text then, under a
  // constraint the final message, unless the answer continues a text.
  std::optional<ChannelTokens> channels = std::nullopt;
  // Thinking blocks (<think> … </think>) are no part of the text, unless the answer continues one.
  bool hide_thinking = false;
  // Takes the pieces of thinking blocks, tags and all, in the sink's place. The text is the same.
  std::function<void(std::string_view)> thought_sink = nullptr;
  GenerationProfile* profile = nullptr;  // measures the answer, if given
};

// Durations in seconds.
struct GenerationTimings {
  double prefill = 0;      // the prompt's tokens that were not in the cache
  double first_token = 0;  // from the start to the first token
  double decode = 0;       // from the first token to the end
};

struct GenerationResult {
  std::string text;                          // for the user; without stop string and control tokens
  std::optional<std::string> thinking = {};  // what was thought, if that was kept out of the text
  std::vector<int32_t> token_ids;            // without the end token
  StopReason stop_reason = StopReason::kLength;
  int64_t prompt_tokens = 0;    // the whole prompt
  int64_t cached_tokens = 0;    // of these, already in the KV cache
  int64_t read_tokens = 0;      // and read now: the others, unless the stop flag came first
  int64_t drafted_tokens = 0;   // guessed ahead
  int64_t accepted_tokens = 0;  // of these, part of the answer
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

// One answer in the making: turns logits into tokens and text until something says stop. Not
// thread-safe.
class Answer {
 public:
  // The answer to `prompt`, in a context of so many positions. `prompt` is not needed afterwards;
  // `sampler`, `options` and what `sink` refers to must outlive it. See Generator::generate.
  Answer(std::shared_ptr<const text::Tokenizer> tokenizer, std::span<const int32_t> prompt,
         int64_t context, Sampler& sampler, const GenerationOptions& options, bool continues_text,
         TextSink sink);
  ~Answer();

  // The prompt has been read: `cached` of its tokens were in the KV cache, `read` are new there.
  void prompt_read(int64_t cached, int64_t read);

  // Takes the logits that follow the text so far. Returns the token that goes on, to be fed for the
  // next logits, or nothing when the answer is over. Throws Error as Sampler::sample and
  // AnswerConstraint::mask.
  std::optional<int32_t> next(std::span<const float> logits);

  // Tokens that the answer may still have.
  int64_t room() const { return budget_ - result_.completion_tokens(); }

  // Ends the answer; nothing may be called afterwards. `interrupted`: from outside.
  GenerationResult finish(bool interrupted = false);

 private:
  class TextBuilder;

  Clock::time_point start_ = Clock::now(), first_token_at_;
  Sampler& sampler_;
  const GenerationOptions& options_;
  GenerationResult result_;
  int64_t budget_;
  std::unique_ptr<TextBuilder> builder_;
  std::optional<AnswerConstraint> constraint_;
};

// Runs a language model over a growing sequence of tokens and remembers which are in its KV cache,
// so that a prompt that continues the last one costs only its new tokens. Not thread-safe.
class Generator {
 public:
  // With a `drafter`, up to `most_drafted` tokens at once are guessed where that pays; the text is
  // the same. A model that keeps no positions goes without.
  Generator(LanguageModel& model, std::shared_ptr<const text::Tokenizer> tokenizer,
            std::unique_ptr<Drafter> drafter = nullptr,
            int64_t most_drafted = LanguageModel::kMostVerified - 1);

  // Continues `prompt` (not empty; at most model.context() tokens, all < model.vocab(): the caller
  // checks). With `continues_text` the answer is the rest of the prompt's text (it may begin inside
  // a word), otherwise a text of its own. `stop`, if given, ends it between two tokens or chunks of
  // the prompt. Decoding a token allocates nothing on the heap, once drafts have been tried. Throws
  // Error(kMalformed) if the logits are not numbers, and what `sink` throws.
  GenerationResult generate(std::span<const int32_t> prompt, Sampler& sampler,
                            const GenerationOptions& options, bool continues_text, TextSink sink,
                            const std::atomic<bool>* stop = nullptr);

  LanguageModel& model() { return model_; }

  // The tokens whose state the model holds: at positions [0, model().position()).
  std::span<const int32_t> cached() const { return cached_; }
  // Tells that the model has been given the state of these tokens.
  void set_cached(std::span<const int32_t> tokens);

 private:
  std::span<const float> feed_prompt(std::span<const int32_t> prompt, Answer& answer,
                                     Profiler* profiler, const std::atomic<bool>* stop);
  std::span<const float> advance(int32_t token, int64_t room, Profiler* profiler);
  int64_t draft(int64_t room);
  void settle(bool rejected);

  LanguageModel& model_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::vector<int32_t> cached_;  // the text, then tokens drafted ahead of it

  std::unique_ptr<Drafter> drafter_;
  DraftLength length_;
  int kind_ = 0;                     // of the present draft
  int64_t drafted_ = 0, right_ = 0;  // its tokens; how many of them have been confirmed
  std::span<const float> verified_;  // logits after the token before the draft and after each of it
  int64_t drafted_tokens_ = 0, accepted_tokens_ = 0;  // of the present answer
};

}  // namespace lumen::runtime
