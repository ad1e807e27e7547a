#include "lib/runtime/generation/generation.h"

#include <algorithm>
#include <atomic>

#include "lib/base/check.h"
#include "lib/base/limits.h"
#include "lib/runtime/generation/thoughts.h"
#include "lib/runtime/tool/profile.h"

namespace lumen::runtime {
namespace {

double rate(int64_t tokens, double seconds) {
  return tokens > 0 && seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

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
  return rate(read_tokens, timings.prefill);
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

// Turns tokens into text for the sink: whole characters, and nothing of a stop string.
class Answer::TextBuilder {
 public:
  TextBuilder(std::shared_ptr<const text::Tokenizer> tokenizer, const GenerationOptions& options,
              std::string& text, TextSink sink)
      : tokenizer_(std::move(tokenizer)),
        stream_(tokenizer_, kSkipSpecial),
        matcher_(options.stop),
        text_(text),
        sink_(sink),
        thought_sink_(options.thought_sink) {
    piece_.reserve(2 * limits::kPieceBytes);
    ready_.reserve(2 * limits::kPieceBytes);
  }

  // Lets the text continue that of `prompt`. What the decoder holds back of that (the characters of
  // byte tokens, until a token ends their run) is no part of the answer.
  void continue_from(std::span<const int32_t> prompt) {
    text::TokenStream whole(tokenizer_, kSkipSpecial);
    for (const int32_t id : prompt) {
      stream_.push(id, piece_);
      whole.push(id, held_);
      piece_.clear();
      held_.clear();
    }
    whole.finish(held_);
  }

  // Keeps back what is not for the user. The reader is this object's.
  const ChannelReader* read_channels(const ChannelTokens& tokens, std::span<const int32_t> prompt,
                                     ChannelReader::Shown shown) {
    return &channels_.emplace(tokenizer_, tokens, prompt, shown);
  }

  // Keeps thoughts out of the text, and appends them to `thinking`.
  void hide_thoughts(std::span<const int32_t> prompt, std::string& thinking) {
    thoughts_.emplace(open_thinking(*tokenizer_, prompt));
    thinking_ = &thinking;
  }

  // Gives thoughts to another sink, and leaves them in the text.
  void tell_thoughts(std::span<const int32_t> prompt) {
    thoughts_.emplace(open_thinking(*tokenizer_, prompt));
    thoughts_end_ = thoughts_->is_inside() ? kNoEnd : 0;
  }

  // Returns true when a stop string is complete.
  bool push(int32_t token) {
    if (thoughts_ && tokenizer_->is_special(token) && push_tag(tokenizer_->token_text(token))) {
      return true;
    }
    if (!channels_ || channels_->push(token, piece_)) stream_.push(token, piece_);
    return emit();
  }

  // The text is over without a stop string so far; the held-back rest may complete one.
  bool finish() {
    stream_.finish(piece_);
    if (channels_) channels_->finish(piece_);
    bool stopped = emit();
    if (!stopped && thinking_) {
      thoughts_->finish(piece_, *thinking_);
      stopped = match();
    }
    if (!stopped) {
      matcher_.finish(ready_);
      flush();
    }
    return stopped;
  }

 private:
  static constexpr bool kSkipSpecial = true;
  static constexpr size_t kNoEnd = std::string::npos;

  bool emit() {
    if (!piece_.empty() && !held_.empty()) {
      if (piece_.starts_with(held_)) piece_.erase(0, held_.size());
      held_.clear();
    }
    if (thinking_) {
      shown_.clear();
      thoughts_->push(piece_, shown_, *thinking_);
      piece_.swap(shown_);
    } else if (thoughts_) {
      follow_thoughts(piece_, matched_ + piece_.size());
    }
    return match();
  }
  // Control tokens have no text, but these say what is thought. Returns true when a stop string is
  // complete.
  bool push_tag(std::string_view text) {
    if (!ThoughtReader::is_tag(text)) return false;
    stream_.finish(piece_);
    if (thinking_) {
      piece_ += text;
      return false;
    }
    if (emit()) return true;
    follow_thoughts(text, matched_);
    return false;
  }
  // Where thoughts end, once `piece` has followed and the text reaches `end`.
  void follow_thoughts(std::string_view piece, size_t end) {
    const bool was_inside = thoughts_end_ == kNoEnd;
    shown_.clear();
    thought_.clear();
    thoughts_->push(piece, shown_, thought_);
    if (thoughts_->is_inside()) {
      thoughts_end_ = kNoEnd;
    } else if (was_inside || !thought_.empty()) {
      thoughts_end_ = end - std::min(end, thoughts_->behind());
    }
  }
  bool match() {
    matched_ += piece_.size();
    const bool stopped = matcher_.push(piece_, ready_);
    piece_.clear();
    flush();
    return stopped;
  }
  void flush() {
    const std::string_view ready = ready_;
    const size_t thoughts =
        std::min(ready.size(), thoughts_end_ - std::min(thoughts_end_, text_.size()));
    if (thoughts > 0) thought_sink_(ready.substr(0, thoughts));
    if (thoughts < ready.size()) sink_(ready.substr(thoughts));
    text_ += ready_;
    ready_.clear();
  }

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  text::TokenStream stream_;
  StopMatcher matcher_;
  std::string piece_, ready_;
  std::optional<ChannelReader> channels_;
  std::optional<ThoughtReader> thoughts_;
  std::string shown_, thought_;      // of a piece that has thoughts
  std::string* thinking_ = nullptr;  // for thoughts that are kept out of the text
  size_t matched_ = 0;       // bytes of the text so far, with those that may be of a stop string
  size_t thoughts_end_ = 0;  // bytes at the beginning of the text that are thoughts
  std::string held_;         // of the prompt's text; the stream's first piece begins with it
  std::string& text_;
  TextSink sink_;
  const std::function<void(std::string_view)>& thought_sink_;
};

Answer::Answer(std::shared_ptr<const text::Tokenizer> tokenizer, std::span<const int32_t> prompt,
               int64_t context, Sampler& sampler, const GenerationOptions& options,
               bool continues_text, TextSink sink)
    : sampler_(sampler), options_(options) {
  LUMEN_CHECK(!prompt.empty() && static_cast<int64_t>(prompt.size()) <= context);
  result_.prompt_tokens = static_cast<int64_t>(prompt.size());
  const int64_t room = context - result_.prompt_tokens + 1;
  budget_ = std::min(options.max_tokens.value_or(room), room);
  const auto expected = static_cast<size_t>(budget_);
  result_.token_ids.reserve(expected);
  result_.text.reserve(std::min<size_t>(16 * expected, 1 << 20) + limits::kPieceBytes);
  builder_ = std::make_unique<TextBuilder>(tokenizer, options, result_.text, sink);
  const ChannelReader* channels = nullptr;
  if (continues_text) {
    builder_->continue_from(prompt);
  } else if (options.channels) {
    using Shown = ChannelReader::Shown;
    channels = builder_->read_channels(*options.channels, prompt,
                                       options.constraint ? Shown::kFinal : Shown::kAllButThoughts);
  } else if (options.hide_thinking) {
    builder_->hide_thoughts(prompt, result_.thinking.emplace());
  } else if (options.thought_sink) {
    builder_->tell_thoughts(prompt);
  }
  if (options.constraint) {
    constraint_.emplace(options.constraint, tokenizer, prompt, continues_text, channels,
                        options.end_tokens);
  }
  sampler.begin(prompt);
}

Answer::~Answer() = default;

void Answer::prompt_read(int64_t cached, int64_t read) {
  result_.cached_tokens = cached;
  result_.read_tokens = read;
  result_.timings.prefill = seconds_between(start_, Clock::now());
}

std::optional<int32_t> Answer::next(std::span<const float> logits) {
  const auto is_full = [&] {
    result_.stop_reason =
        budget_ == options_.max_tokens ? StopReason::kLength : StopReason::kContext;
    return room() == 0;
  };
  if (is_full()) return std::nullopt;
  const auto is_over = [&] {
    result_.stop_reason = StopReason::kEos;
    return std::nullopt;
  };
  if (constraint_) logits = constraint_->mask(logits);
  if (logits.empty()) return is_over();
  const int32_t token = sampler_.sample(logits);
  if (result_.timings.first_token == 0) {
    first_token_at_ = Clock::now();
    result_.timings.first_token = seconds_between(start_, first_token_at_);
  }
  const auto& ends = options_.end_tokens;
  if (std::find(ends.begin(), ends.end(), token) != ends.end()) return is_over();
  sampler_.accept(token);
  result_.token_ids.push_back(token);
  const bool stopped = builder_->push(token);
  if (constraint_) constraint_->accept(token);
  if (stopped) {
    result_.stop_reason = StopReason::kStop;
    return std::nullopt;
  }
  if (constraint_ && constraint_->is_over()) return is_over();
  if (is_full()) return std::nullopt;  // its logits are not needed
  return token;
}

GenerationResult Answer::finish(bool interrupted) {
  if (interrupted) result_.stop_reason = StopReason::kInterrupted;
  if (result_.timings.first_token > 0) {
    result_.timings.decode = seconds_between(first_token_at_, Clock::now());
  }
  if (result_.stop_reason != StopReason::kStop && builder_->finish()) {
    result_.stop_reason = StopReason::kStop;
  }
  return std::move(result_);
}

Generator::Generator(LanguageModel& model, std::shared_ptr<const text::Tokenizer> tokenizer,
                     std::unique_ptr<Drafter> drafter, int64_t most_drafted)
    : model_(model),
      tokenizer_(std::move(tokenizer)),
      drafter_(model.keeps_positions() ? std::move(drafter) : nullptr),
      length_(most_drafted) {
  cached_.reserve(static_cast<size_t>(model_.context()));
}

void Generator::set_cached(std::span<const int32_t> tokens) {
  LUMEN_CHECK(static_cast<int64_t>(tokens.size()) == model_.position());
  cached_.assign(tokens.begin(), tokens.end());
}

std::span<const float> Generator::feed_prompt(std::span<const int32_t> prompt, Answer& answer,
                                              Profiler* profiler, const std::atomic<bool>* stop) {
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
  std::span<const float> logits;
  run_step(profiler, [&] { logits = model_.feed(rest, stop); });
  const auto fed = static_cast<size_t>(model_.position() - common);  // less than all if stopped
  answer.prompt_read(common, static_cast<int64_t>(fed));
  cached_.insert(cached_.end(), rest.begin(), rest.begin() + static_cast<ptrdiff_t>(fed));
  return logits;
}

// Ends the present draft: the model forgets what is not part of the text.
void Generator::settle(bool rejected) {
  if (drafted_ == 0) return;
  length_.record(kind_, right_, rejected);
  accepted_tokens_ += right_;
  const auto text = cached_.size() - static_cast<size_t>(drafted_ - right_);
  if (text < cached_.size()) model_.rewind(static_cast<int64_t>(text));
  cached_.resize(text);
  drafted_ = right_ = 0;
}

// Appends a guess to the text in cached_, up to `room` tokens, and returns its length.
int64_t Generator::draft(int64_t room) {
  if (!drafter_ || room <= 0) return 0;
  kind_ = drafter_->look(cached_);
  const int64_t wanted = kind_ < 0 ? 0 : length_.choose(kind_, room);
  if (wanted == 0) return 0;
  model_.prepare(DraftLength::kPasses);
  const auto start = Clock::now();
  const auto tokens = drafter_->draft(wanted);
  length_.record_drafting(wanted, seconds_between(start, Clock::now()));
  cached_.insert(cached_.end(), tokens.begin(), tokens.end());
  return static_cast<int64_t>(tokens.size());
}

// Takes the next token of the text, after which up to `room` more are wanted, and returns the
// logits after it: those of the draft that it confirms, or of a new pass.
std::span<const float> Generator::advance(int32_t token, int64_t room, Profiler* profiler) {
  const auto row = [&] {
    const auto vocab = static_cast<size_t>(model_.vocab());
    return verified_.subspan(static_cast<size_t>(right_) * vocab, vocab);
  };
  if (right_ < drafted_) {
    const bool is_right = token == cached_[cached_.size() - static_cast<size_t>(drafted_ - right_)];
    if (is_right) {
      ++right_;
      return row();
    }
    settle(/*rejected=*/true);
  } else {
    settle(/*rejected=*/false);
  }
  cached_.push_back(token);
  drafted_ = draft(room - 1);
  drafted_tokens_ += drafted_;
  const auto pass = std::span<const int32_t>(cached_).last(static_cast<size_t>(drafted_ + 1));
  const auto start = Clock::now();
  run_step(profiler,
           [&] { verified_ = drafted_ > 0 ? model_.feed_each(pass) : model_.feed(pass); });
  length_.record_pass(drafted_ + 1, seconds_between(start, Clock::now()));
  return row();
}

GenerationResult Generator::generate(std::span<const int32_t> prompt, Sampler& sampler,
                                     const GenerationOptions& options, bool continues_text,
                                     TextSink sink, const std::atomic<bool>* stop) {
  drafted_ = right_ = drafted_tokens_ = accepted_tokens_ = 0;
  Answer answer(tokenizer_, prompt, model_.context(), sampler, options, continues_text, sink);
  GenerationProfile* const profile = options.profile;
  auto logits = feed_prompt(prompt, answer, profile ? &profile->prompt : nullptr, stop);
  bool interrupted = false;
  for (;;) {
    interrupted = logits.empty() || (stop && *stop);
    if (interrupted) break;
    const std::optional<int32_t> token = answer.next(logits);
    if (!token) break;
    logits = advance(*token, answer.room(), profile ? &profile->passes : nullptr);
  }
  settle(/*rejected=*/false);
  GenerationResult result = answer.finish(interrupted);
  result.drafted_tokens = drafted_tokens_;
  result.accepted_tokens = accepted_tokens_;
  return result;
}

}  // namespace lumen::runtime
