#include "lib/runtime/generation/speculation.h"

#include <algorithm>

#include "lib/base/check.h"
#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/kernels/reduce.h"

namespace lumen::runtime {

int PromptLookup::look(std::span<const int32_t> text) {
  constexpr size_t kLongest = 4, kShortest = 2;
  follows_ = {};
  const size_t n = text.size();
  size_t longest = kShortest - 1;
  // A match that ends before `end`: text[end − length, end) = text[n − length, n).
  for (size_t end = n - 1; end >= kShortest && longest < kLongest; --end) {
    if (text[end - 1] != text[n - 1]) continue;
    size_t length = 1;
    while (length < kLongest && length < end && text[end - 1 - length] == text[n - 1 - length]) {
      ++length;
    }
    if (length <= longest) continue;
    longest = length;
    follows_ = text.subspan(end);
  }
  return follows_.empty() ? -1 : static_cast<int>(longest - kShortest);
}

std::span<const int32_t> PromptLookup::draft(int64_t most) {
  const auto count = std::min(draft_.size(), static_cast<size_t>(most));
  for (size_t i = 0; i < count; ++i) draft_[i] = follows_[i % follows_.size()];
  return std::span(draft_).first(count);
}

DraftModel::DraftModel(LanguageModel& model, int64_t vocab)
    : model_(model), vocab_(static_cast<size_t>(std::min(vocab, model.vocab()))) {
  fed_.reserve(static_cast<size_t>(model.context()));
  draft_.reserve(LanguageModel::kMostVerified);
}

int DraftModel::look(std::span<const int32_t> text) {
  text_ = text;
  const auto is_known = [&](int32_t token) { return static_cast<size_t>(token) < vocab_; };
  const bool fits = static_cast<int64_t>(text.size()) < model_.context();
  return fits && std::all_of(text.begin(), text.end(), is_known) ? 0 : -1;
}

std::span<const int32_t> DraftModel::draft(int64_t most) {
  // The last token is fed even if it is in the cache: its logits are needed.
  const auto limit = static_cast<ptrdiff_t>(std::min(fed_.size(), text_.size() - 1));
  const auto common =
      std::mismatch(fed_.begin(), fed_.begin() + limit, text_.begin()).first - fed_.begin();
  model_.rewind(common);
  fed_.resize(static_cast<size_t>(model_.position()));
  auto rest = text_.subspan(fed_.size());
  fed_.insert(fed_.end(), rest.begin(), rest.end());
  // After a draft that was right one token more is new: two single steps need no new plan.
  constexpr size_t kSingle = 2;
  std::span<const float> logits;
  while (!rest.empty()) {
    const auto piece = rest.first(rest.size() > kSingle ? rest.size() : 1);
    logits = model_.feed(piece);
    rest = rest.subspan(piece.size());
  }
  draft_.clear();
  const int64_t room = model_.context() - model_.position();
  for (int64_t left = std::min(most, room + 1); left > 0; --left) {
    draft_.push_back(
        static_cast<int32_t>(kernels::argmax(logits.data(), static_cast<int64_t>(vocab_))));
    if (left == 1) break;
    logits = model_.feed(std::span(&draft_.back(), 1));
    fed_.push_back(draft_.back());
  }
  return draft_;
}

void check_draft_vocabulary(const text::Tokenizer& draft, const text::Tokenizer& main) {
  if (draft.vocab_size() != main.vocab_size()) {
    fail(ErrorKind::kMismatch, "its vocabulary has ", draft.vocab_size(), " tokens, the model's ",
         main.vocab_size(), "; it must be the same");
  }
  for (int32_t id = 0; id < main.vocab_size(); ++id) {
    if (draft.token_text(id) == main.token_text(id)) continue;
    fail(ErrorKind::kMismatch, "its token ", id, " is ", quoted(draft.token_text(id)),
         ", the model's ", quoted(main.token_text(id)), "; the vocabularies must be the same");
  }
}

// A pass that was never measured is taken for a little dearer than the next smaller one that was,
// so that it is tried.
double DraftLength::pass_seconds(int64_t tokens) const {
  constexpr double kPerToken = 0.1;
  int64_t known = tokens;
  while (known > 1 && seconds_[static_cast<size_t>(known)] == 0) --known;
  return seconds_[static_cast<size_t>(known)] *
         (1 + kPerToken * static_cast<double>(tokens - known));
}

int64_t DraftLength::choose(int kind_index, int64_t room) {
  constexpr int64_t kLongestRest = 1024;
  constexpr double kWorthwhile = 1.02;
  Kind& kind = kinds_[static_cast<size_t>(kind_index)];
  const int64_t most = std::min({most_, room, kPasses.back() - 1});
  if (most <= 0 || seconds_[1] == 0) return 0;  // nothing wanted, or to compare with yet
  const bool is_resting = kind.rest > 0;
  if (is_resting && --kind.rest > 0) return 0;
  const double p = std::min(kind.right / kind.all, 0.99);
  double best = kWorthwhile / seconds_[1], power = 1, tokens = 1;
  int64_t choice = 0;
  for (int64_t k = 1; k <= most; ++k) {
    power *= p;
    tokens += power;
    if (std::find(kPasses.begin(), kPasses.end(), k + 1) == kPasses.end()) continue;
    const double rate = tokens / (pass_seconds(k + 1) + static_cast<double>(k) * drafting_seconds_);
    if (rate > best) best = rate, choice = k;
  }
  if (choice > 0) {
    kind.next_rest = kFirstRest;
    return choice;
  }
  kind.rest = kind.next_rest;
  kind.next_rest = std::min(2 * kind.next_rest, kLongestRest);
  return is_resting ? 1 : 0;
}

void DraftLength::record(int kind_index, int64_t accepted, bool rejected) {
  constexpr double kMemory = 0.95;  // per guess
  Kind& kind = kinds_[static_cast<size_t>(kind_index)];
  auto add = [&](double right) {
    kind.right = kind.right * kMemory + right;
    kind.all = kind.all * kMemory + 1;
  };
  for (int64_t i = 0; i < accepted; ++i) add(1);
  if (rejected) add(0);
}

// Follows a change of speed, but neither one interruption nor the first run of a plan.
void DraftLength::record_pass(int64_t tokens, double seconds) {
  double& known = seconds_[static_cast<size_t>(tokens)];
  known = known == 0        ? seconds
          : seconds < known ? (known + seconds) / 2
                            : known + (std::min(seconds, 2 * known) - known) / 8;
}

void DraftLength::record_drafting(int64_t tokens, double seconds) {
  const double each = seconds / static_cast<double>(tokens);
  drafting_seconds_ = drafting_seconds_ == 0 ? each : std::min(each, drafting_seconds_ * 1.1);
}

}  // namespace lumen::runtime
