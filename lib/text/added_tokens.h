// Tokens that are found in the text before the model sees it, as Hugging Face tokenizers do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lib/base/function_ref.h"
#include "lib/text/normalizer.h"
#include "lib/text/trie.h"

namespace lumen::text {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false;
  bool lstrip = false, rstrip = false;  // takes the white space before, after it along
  bool single_word = false;             // only where no word character touches it
  bool normalized = true;               // looked for in the normalized text
};

// A part of a text: a token, or text between tokens if id is -1.
struct Fragment {
  int32_t id;
  size_t begin, end;
};

// The added tokens of a tokenizer. Immutable.
class AddedTokens {
 public:
  AddedTokens() = default;
  // `normalizer` (may be null) is applied to the content of the normalized ones.
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer* normalizer);
  AddedTokens(AddedTokens&&) = default;
  AddedTokens& operator=(AddedTokens&&) = default;

  // Calls found(fragment) for the parts of `text`, split at the tokens that are looked for in raw
  // or in normalized text. The longest of the leftmost matches counts; special tokens are skipped
  // without `parse_special`. Time is linear in the text times the longest token that begins there.
  // From byte `from` on: 0, or the end of a fragment that is_boundary.
  void split(std::string_view text, bool normalized, bool parse_special,
             FunctionRef<void(const Fragment&)> found, size_t from = 0) const;

  // Whether a fragment of raw text that is a token ends where splitting can begin again: all texts
  // that are the same up to lookahead() bytes behind its end have the same fragments up to there,
  // and what follows is split as it is without them.
  bool is_boundary(std::string_view text, const Fragment& fragment) const;
  size_t lookahead() const { return lookahead_; }

  // Null if there is none.
  const AddedToken* find(int32_t id) const;
  const AddedToken* find(std::string_view content) const;
  const std::vector<AddedToken>& all() const { return tokens_; }

 private:
  std::vector<AddedToken> tokens_;
  std::unordered_map<int32_t, size_t> by_id_;
  std::unordered_map<std::string_view, size_t> by_content_;  // views into tokens_
  Trie raw_, normalized_;                                    // to indices into tokens_
  size_t lookahead_ = 0;
};

}  // namespace lumen::text
