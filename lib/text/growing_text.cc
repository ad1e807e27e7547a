#include "lib/text/growing_text.h"

#include <algorithm>

namespace lumen::text {

Tokenizer::Checkpoint GrowingText::last_checkpoint(size_t same) const {
  const auto after = std::upper_bound(
      checkpoints_.begin(), checkpoints_.end(), same,
      [](size_t bytes, const auto& checkpoint) { return bytes < checkpoint.known; });
  return after == checkpoints_.begin() ? Tokenizer::Checkpoint{0, 0, 0} : *(after - 1);
}

const std::vector<int32_t>& GrowingText::encode(std::string_view text) {
  const auto differ = std::mismatch(text.begin(), text.end(), text_.begin(), text_.end());
  const auto same = static_cast<size_t>(differ.first - text.begin());
  const Tokenizer::Checkpoint from = last_checkpoint(same);
  std::erase_if(checkpoints_, [&](const auto& checkpoint) { return checkpoint.text > from.text; });
  ids_.resize(from.ids);
  text_.resize(from.text);  // all that is known, should the rest be refused
  tokenizer_->encode_rest(text, from.text, parse_special_, ids_, &checkpoints_);
  text_ += text.substr(from.text);
  return ids_;
}

std::optional<size_t> GrowingText::beginning(size_t size) const {
  const Tokenizer::Checkpoint from = last_checkpoint(size);
  std::vector<int32_t> rest;
  tokenizer_->encode_rest(std::string_view(text_).substr(0, size), from.text, parse_special_, rest,
                          nullptr);
  const bool begins =
      from.ids + rest.size() <= ids_.size() &&
      std::equal(rest.begin(), rest.end(), ids_.begin() + static_cast<int64_t>(from.ids));
  return begins ? std::optional(from.ids + rest.size()) : std::nullopt;
}

}  // namespace lumen::text
