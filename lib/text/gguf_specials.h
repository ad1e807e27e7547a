// Finding the control and user-defined tokens of a GGUF vocabulary in a text, as llama.cpp does.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lib/text/added_tokens.h"
#include "lib/text/gguf_vocabulary.h"
#include "lib/text/trie.h"

namespace lumen::text {

// Immutable.
class GgufSpecials {
 public:
  explicit GgufSpecials(const GgufVocabulary& vocabulary);

  // The parts of `text`. Longer tokens are cut out before shorter ones, wherever they are; control
  // and unknown tokens only if `parse_special`. Linear in the text for each token that occurs.
  // `boundaries`, unless null, receives the ascending places where a token, and the blanks that it
  // took along, ends and before which all is the same whatever follows the next lookahead() bytes.
  std::vector<Fragment> split(std::string_view text, bool parse_special,
                              std::vector<size_t>* boundaries = nullptr) const;
  size_t lookahead() const { return tokens_.empty() ? 0 : tokens_.front().text.size() + 1; }

 private:
  struct Token {
    std::string_view text;  // in the vocabulary
    int32_t id;
    bool control, lstrip, rstrip;
  };
  void cut(std::string_view text, const Token& token, std::vector<Fragment>& parts) const;

  std::vector<Token> tokens_;         // longest first
  bool takes_blanks_before_ = false;  // one of them does
  Trie trie_;                         // to indices into tokens_
};

}  // namespace lumen::text
