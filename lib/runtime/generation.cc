#include "lib/runtime/generation.h"

#include <algorithm>
#include <chrono>

#include "lib/base/check.h"
#include "lib/base/limits.h"

namespace lumen::runtime {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double rate(int64_t tokens, double seconds) {
  return tokens > 0 && seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

// Turns tokens into text for the sink: whole characters, and nothing of a stop string.
class TextBuilder {
 public:
  TextBuilder(std::shared_ptr<const text::Tokenizer> tokenizer, const GenerationOptions& options,
              std::string& text, TextSink sink)
      : stream_(std::move(tokenizer), /*skip_special=*/true),
        matcher_(options.stop),
        text_(text),
        sink_(sink) {
    piece_.reserve(2 * limits::kPieceBytes);
    ready_.reserve(2 * limits::kPieceBytes);
  }

  // Lets the text continue that of `prompt`. Only the last tokens matter for spacing.
  void continue_from(std::span<const int32_t> prompt) {
    constexpr size_t kTail = 16;
    for (const int32_t id : prompt.last(std::min(kTail, prompt.size()))) stream_.push(id, piece_);
    piece_.clear();
  }

  // Returns true when a stop string is complete.
  bool push(int32_t token) {
    stream_.push(token, piece_);
    return emit();
  }

  // The text is over without a stop string so far; the held-back rest may complete one.
  bool finish() {
    stream_.finish(piece_);
    const bool stopped = emit();
    if (!stopped) {
      matcher_.finish(ready_);
      flush();
    }
    return stopped;
  }

 private:
  bool emit() {
    const bool stopped = matcher_.push(piece_, ready_);
    piece_.clear();
    flush();
    return stopped;
  }
  void flush() {
    if (!ready_.empty()) sink_(ready_);
    text_ += ready_;
    ready_.clear();
  }

  text::TokenStream stream_;
  StopMatcher matcher_;
  std::string piece_, ready_;
  std::string& text_;
  TextSink sink_;
};

}  // namespace

std::string_view name(StopReason reason) {
  switch (reason) {
    case StopReason::kEos:
      return "eos";
    case StopReason::kStop:
      return "stop";
    case StopReason::kLength:
      return "length";
    case StopReason::kContext:
      return "context";
    case StopReason::kInterrupted:
      return "interrupted";
  }
  return "";
}

double GenerationResult::prompt_tokens_per_second() const {
  return rate(prompt_tokens - cached_tokens, timings.prefill);
}

double GenerationResult::tokens_per_second() const {
  return rate(completion_tokens() - 1, timings.decode);
}

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase(stops_, "");
  size_t longest = 0;
  for (const std::string& stop : stops_) longest = std::max(longest, stop.size());
  held_.reserve(longest + 2 * limits::kPieceBytes);
}

bool StopMatcher::push(std::string_view piece, std::string& out) {
  if (stops_.empty()) {
    out += piece;
    return false;
  }
  held_ += piece;
  size_t found = std::string::npos;
  for (const std::string& stop : stops_) found = std::min(found, held_.find(stop));
  if (found != std::string::npos) {
    out.append(held_, 0, found);
    held_.clear();
    return true;
  }
  // The longest end of the text that a stop string begins with stays.
  size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n) {
      if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) keep = n;
    }
  }
  out.append(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return false;
}

void StopMatcher::finish(std::string& out) {
  out += held_;
  held_.clear();
}

Generator::Generator(LanguageModel& model, std::shared_ptr<const text::Tokenizer> tokenizer)
    : model_(model), tokenizer_(std::move(tokenizer)) {
  cached_.reserve(static_cast<size_t>(model_.context()));
}

std::span<const float> Generator::feed_prompt(std::span<const int32_t> prompt,
                                              GenerationResult& result, const volatile bool* stop) {
  // The last token is fed even if it is in the cache: its logits are needed.
  const auto limit = static_cast<ptrdiff_t>(std::min(cached_.size(), prompt.size() - 1));
  auto common = std::mismatch(cached_.begin(), cached_.begin() + limit, prompt.begin()).first -
                cached_.begin();
  if (static_cast<size_t>(common) < cached_.size()) {
    model_.rewind(common);
    common = model_.position();
  }
  cached_.resize(static_cast<size_t>(common));
  const auto rest = prompt.subspan(static_cast<size_t>(common));
  const auto logits = model_.feed(rest, stop);
  const auto fed = static_cast<size_t>(model_.position() - common);  // less than all if stopped
  cached_.insert(cached_.end(), rest.begin(), rest.begin() + static_cast<ptrdiff_t>(fed));
  result.prompt_tokens = static_cast<int64_t>(prompt.size());
  result.cached_tokens = common;
  return logits;
}

GenerationResult Generator::generate(std::span<const int32_t> prompt, Sampler& sampler,
                                     const GenerationOptions& options, bool continues_text,
                                     TextSink sink, const volatile bool* stop) {
  LUMEN_CHECK(!prompt.empty() && static_cast<int64_t>(prompt.size()) <= model_.context());
  const auto start = Clock::now();
  GenerationResult result;
  const int64_t room = model_.context() - static_cast<int64_t>(prompt.size()) + 1;
  const int64_t budget = std::min(options.max_tokens.value_or(room), room);
  const auto expected = static_cast<size_t>(budget);
  result.token_ids.reserve(expected);
  result.text.reserve(std::min<size_t>(16 * expected, 1 << 20) + limits::kPieceBytes);
  TextBuilder builder(tokenizer_, options, result.text, sink);
  if (continues_text) builder.continue_from(prompt);
  sampler.begin(prompt);

  auto logits = feed_prompt(prompt, result, stop);
  result.timings.prefill = seconds_since(start);
  auto first_token_at = start;
  for (;;) {
    if (logits.empty() || (stop && *stop)) {
      result.stop_reason = StopReason::kInterrupted;
      break;
    }
    if (result.completion_tokens() == budget) {
      result.stop_reason =
          budget == options.max_tokens ? StopReason::kLength : StopReason::kContext;
      break;
    }
    const int32_t token = sampler.sample(logits);
    if (result.token_ids.empty()) {
      first_token_at = Clock::now();
      result.timings.first_token = seconds_since(start);
    }
    if (std::find(options.end_tokens.begin(), options.end_tokens.end(), token) !=
        options.end_tokens.end()) {
      result.stop_reason = StopReason::kEos;
      break;
    }
    sampler.accept(token);
    result.token_ids.push_back(token);
    if (builder.push(token)) {
      result.stop_reason = StopReason::kStop;
      break;
    }
    if (result.completion_tokens() == budget) continue;  // its logits are not needed
    logits = model_.feed({&token, 1}, nullptr);
    cached_.push_back(token);
  }
  if (result.timings.first_token > 0) result.timings.decode = seconds_since(first_token_at);
  if (result.stop_reason != StopReason::kStop && builder.finish()) {
    result.stop_reason = StopReason::kStop;
  }
  return result;
}

}  // namespace lumen::runtime
