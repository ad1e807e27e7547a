#include "lib/runtime/generation/thoughts.h"

#include <algorithm>

namespace lumen::runtime {
namespace {

constexpr std::string_view kWhiteSpace = " \t\r\n";

constexpr ThinkingTags kThinkingTags[] = {
    {"<think>", "</think>"},     {"<thinking>", "</thinking>"},
    {"<thought>", "</thought>"}, {"<reasoning>", "</reasoning>"},
    {"[THINK]", "[/THINK]"},     {"<seed:think>", "</seed:think>"},
};

// Bytes at the end of `text` with which `tag` may have begun.
size_t begun(std::string_view text, std::string_view tag) {
  for (size_t n = std::min(tag.size() - 1, text.size()); n > 0; --n) {
    if (text.ends_with(tag.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace

ThinkingTags open_thinking(const text::Tokenizer& tokenizer, std::span<const int32_t> prompt) {
  constexpr size_t kTail = 16;
  std::string end = tokenizer.decode(prompt.last(std::min(kTail, prompt.size())));
  end.erase(end.find_last_not_of(kWhiteSpace) + 1);
  for (const ThinkingTags& tags : kThinkingTags) {
    if (end.ends_with(tags.opening)) return tags;
  }
  return {};
}

bool ThoughtReader::is_tag(std::string_view text) {
  return std::ranges::any_of(kThinkingTags, [&](const ThinkingTags& tags) {
    return text == tags.opening || text == tags.closing;
  });
}

// Whether the answer begins with a block; until that is known its beginning is held back.
bool ThoughtReader::find_opening(std::string& shown) {
  const size_t begin = std::min(held_.find_first_not_of(kWhiteSpace), held_.size());
  const std::string_view text = std::string_view(held_).substr(begin);
  bool may_open = text.empty();
  for (const ThinkingTags& tags : kThinkingTags) {
    if (text.starts_with(tags.opening)) {
      held_.erase(0, begin + tags.opening.size());
      tags_ = tags;
      return is_inside_ = true;
    }
    may_open = may_open || tags.opening.starts_with(text);
  }
  if (!may_open) {
    shown += held_;
    held_.clear();
    is_over_ = true;
  }
  return false;
}

void ThoughtReader::push(std::string_view piece, std::string& shown, std::string& thought) {
  held_ += piece;
  if (!is_over_ && !is_inside_ && !find_opening(shown)) return;
  if (is_inside_) {
    const size_t at = held_.find(tags_.closing);
    const bool is_closed = at != held_.npos;
    const size_t certain = is_closed ? at : held_.size() - begun(held_, tags_.closing);
    thought.append(held_, 0, certain);
    held_.erase(0, is_closed ? at + tags_.closing.size() : certain);
    if (!is_closed) return;
    behind_ = held_.size();
    is_inside_ = false;
    is_over_ = skips_blank_ = true;
  }
  if (skips_blank_) held_.erase(0, std::min(held_.find_first_not_of(kWhiteSpace), held_.size()));
  if (held_.empty()) return;
  skips_blank_ = false;
  shown += held_;
  held_.clear();
}

void ThoughtReader::finish(std::string& shown, std::string& thought) {
  (is_inside_ ? thought : shown) += held_;
  held_.clear();
}

}  // namespace lumen::runtime
