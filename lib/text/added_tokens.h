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
  void split(std::string_view text, bool normalized, bool parse_special,
             FunctionRef<void(const Fragment&)> found) const;

  // Null if there is none.
  const AddedToken* find(int32_t id) const;
  const AddedToken* find(std::string_view content) const;
  const std::vector<AddedToken>& all() const { return tokens_; }

 private:
  std::vector<AddedToken> tokens_;
  std::unordered_map<int32_t, size_t> by_id_;
  std::unordered_map<std::string_view, size_t> by_content_;  // views into tokens_
  Trie raw_, normalized_;                                    // to indices into tokens_
};

}  // namespace lumen::text
