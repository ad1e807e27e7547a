#include "lib/runtime/generation/dry.h"

#include <algorithm>
#include <cmath>

#include "lib/base/check.h"

namespace lumen::runtime {

Dry::Dry(const DrySettings& settings, int64_t vocab,
         std::shared_ptr<const text::Tokenizer> tokenizer)
    : settings_(settings),
      last_n_(static_cast<size_t>(settings.last_n)),
      allowed_length_(static_cast<size_t>(settings.allowed_length)),
      lengths_(static_cast<size_t>(vocab)) {
  LUMEN_CHECK(settings.last_n > 0 && settings.allowed_length > 0 && settings.base >= 1);
  text_.reserve(2 * last_n_);
  z_.reserve(last_n_);
  found_.reserve(std::min(last_n_, lengths_.size()));
  for (const std::string& breaker : settings_.breakers) {
    longest_breaker_ = std::max(longest_breaker_, breaker.size());
  }
  if (longest_breaker_ == 0) return;
  LUMEN_CHECK(tokenizer != nullptr);
  stream_.emplace(std::move(tokenizer));
  tail_.reserve(longest_breaker_ + 4 * limits::kPieceBytes);
}

void Dry::begin(std::span<const int32_t> tokens) {
  text_.clear();
  unbroken_ = 0;
  if (stream_) stream_->finish(tail_);
  tail_.clear();
  for (const int32_t token : tokens.last(std::min(tokens.size(), last_n_))) accept(token);
}

void Dry::accept(int32_t token) {
  if (text_.size() == 2 * last_n_) {
    text_.erase(text_.begin(), text_.end() - static_cast<ptrdiff_t>(last_n_));
  }
  const bool is_breaker = completes_breaker(token);
  text_.push_back({token, is_breaker});
  unbroken_ = is_breaker ? 0 : unbroken_ + 1;
}

bool Dry::completes_breaker(int32_t token) {
  if (!stream_) return false;
  const size_t before = tail_.size();
  stream_->push(token, tail_);
  const auto ends_in_new_part = [&](const std::string& breaker) {
    return tail_.find(breaker, before - std::min(before, breaker.size() - 1)) != tail_.npos;
  };
  const bool found =
      std::any_of(settings_.breakers.begin(), settings_.breakers.end(), ends_in_new_part);
  tail_.erase(0, tail_.size() - std::min(tail_.size(), longest_breaker_ - 1));
  return found;
}

// With the text reversed, s[0] its last token, L for the occurrence that ends i tokens before the
// end is z[i], the number of tokens that s[i…] begins with as s does: the Z-function (Gusfield
// 1997, section 1.4), here of no more than the `reach` tokens after the last breaker. s[left,
// right) is the equal piece found so far that ends last; every comparison that succeeds moves
// `right`.
void Dry::find_repetitions(std::span<const Entry> text) {
  const size_t n = text.size(), reach = std::min(unbroken_, n);
  if (reach < allowed_length_) return;
  const auto s = [&](size_t i) { return text[n - 1 - i].token; };
  z_.assign(reach, reach);
  size_t left = 0, right = 0;
  for (size_t i = 1; i < n; ++i) {
    size_t length = i < right ? std::min(right - i, z_[i - left]) : 0;
    while (length < reach && i + length < n && s(length) == s(i + length)) ++length;
    if (i + length > right) left = i, right = i + length;
    if (i < reach) z_[i] = length;
    const Entry& next = text[n - i];
    if (length < allowed_length_ || next.is_breaker) continue;
    size_t& longest = lengths_[static_cast<size_t>(next.token)];
    if (longest == 0) found_.push_back(next.token);
    longest = std::max(longest, length);
  }
}

void Dry::apply(std::span<float> logits) {
  constexpr double kMostPenalty = 1e30;  // the logit stays finite
  LUMEN_CHECK(logits.size() == lengths_.size());
  find_repetitions(std::span<const Entry>(text_).last(std::min(text_.size(), last_n_)));
  for (const int32_t token : found_) {
    const auto id = static_cast<size_t>(token);
    const double excess = static_cast<double>(lengths_[id] - allowed_length_);
    const double penalty = settings_.multiplier * std::pow(settings_.base, excess);
    logits[id] = static_cast<float>(logits[id] - std::min(penalty, kMostPenalty));
    lengths_[id] = 0;
  }
  found_.clear();
}

}  // namespace lumen::runtime
