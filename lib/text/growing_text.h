// The tokens of a text that changes at its end, as the prompt of a conversation does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/text/tokenizer.h"

namespace lumen::text {

// Encodes one text after the other, as Tokenizer::encode without add_special, in time for what
// follows the last control token in the part that the text has in common with the one before (all
// of it for tokenizers and texts without such tokens). Not thread-safe.
class GrowingText {
 public:
  // `tokenizer` must outlive it.
  explicit GrowingText(const Tokenizer& tokenizer, std::optional<bool> parse_special = std::nullopt)
      : tokenizer_(&tokenizer), parse_special_(parse_special) {}

  // The tokens of `text`; valid until the next call. Throws as Tokenizer::encode.
  const std::vector<int32_t>& encode(std::string_view text);

  // The number of tokens that the first `size` bytes of the last text have by themselves if all
  // tokens begin with these; nullopt if a token reaches over that place, or other tokens meet
  // there.
  std::optional<size_t> beginning(size_t size) const;

 private:
  // The last checkpoint that all texts have that begin with `same` bytes of the last one.
  Tokenizer::Checkpoint last_checkpoint(size_t same) const;

  const Tokenizer* tokenizer_;
  std::optional<bool> parse_special_;
  std::string text_;
  std::vector<int32_t> ids_;
  std::vector<Tokenizer::Checkpoint> checkpoints_;
};

}  // namespace lumen::text
