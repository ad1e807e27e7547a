// Thinking blocks of answers: <think> … </think>, then what is for the user.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lib/text/tokenizer.h"

namespace lumen::runtime {

// The tags of a thinking block; both "" for none.
struct ThinkingTags {
  std::string_view opening, closing;
};

// Those of the block that the prompt, as chat templates do, leaves open.
ThinkingTags open_thinking(const text::Tokenizer& tokenizer, std::span<const int32_t> prompt);

// Takes an answer's text apart into thoughts and the rest: a block that the prompt has opened or
// that the answer begins with, until it is closed. A tag later in the text is text. Not
// thread-safe.
class ThoughtReader {
 public:
  // `open`: what open_thinking says of the prompt.
  explicit ThoughtReader(ThinkingTags open) : tags_(open), is_inside_(!open.closing.empty()) {}

  // Whether this is the text of a token that opens or closes such a block.
  static bool is_tag(std::string_view text);

  // Appends to `shown` and `thought` what is certain once `piece` has followed.
  void push(std::string_view piece, std::string& shown, std::string& thought);
  // Appends what was held back: the text is over.
  void finish(std::string& shown, std::string& thought);

  // Whether a block is open.
  bool is_inside() const { return is_inside_; }
  // The bytes of the last piece that come after the tag which closed the block in it.
  size_t behind() const { return behind_; }

 private:
  bool find_opening(std::string& shown);

  ThinkingTags tags_;
  bool is_inside_;
  bool is_over_ = false;      // no block can follow
  bool skips_blank_ = false;  // white space behind the block
  size_t behind_ = 0;
  std::string held_;
};

}  // namespace lumen::runtime
