// All tokens of a vocabulary in the order of their bytes, to be walked together with an automaton.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/text/tokenizer.h"

namespace lumen::text {

// A trie as the list of its nodes in depth-first order. Immutable.
class VocabularyTrie {
 public:
  struct Node {
    uint32_t end = 0;    // behind its descendants
    int32_t token = -1;  // that ends here; the first of several
    uint16_t depth = 0;  // bytes up to and with this one
    uint8_t byte = 0;
  };

  // The tokens that add text, without `excluded` (those that end one). Throws Error as
  // Tokenizer::token_bytes.
  VocabularyTrie(const Tokenizer& tokenizer, std::span<const int32_t> excluded);

  std::span<const Node> nodes() const { return nodes_; }
  // Another token with the bytes of `token`; -1: none.
  int32_t next_alike(int32_t token) const { return alike_[static_cast<size_t>(token)]; }
  // Bytes of the longest token.
  size_t longest() const { return longest_; }
  // One more than the largest id.
  int32_t size() const { return static_cast<int32_t>(alike_.size()); }

  // The bytes of a token; "": it adds no text or is excluded.
  std::string_view bytes(int32_t token) const {
    return static_cast<size_t>(token) < bytes_.size() ? bytes_[static_cast<size_t>(token)]
                                                      : std::string_view();
  }
  // Whether a text loses the space with which its first token begins.
  bool drops_first_space() const { return drops_first_space_; }

 private:
  std::vector<Node> nodes_;
  std::vector<int32_t> alike_;
  std::vector<std::string> bytes_;
  size_t longest_ = 0;
  bool drops_first_space_ = false;
};

}  // namespace lumen::text
