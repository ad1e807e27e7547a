// The precompiled character map of sentencepiece: which prefixes of a text are replaced by what
// (https://github.com/google/sentencepiece, src/normalizer.cc).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lumen::text {

// A double-array trie from character sequences to their replacements. Immutable.
class Charsmap {
 public:
  Charsmap() = default;  // maps nothing
  // `blob`: uint32 size of the trie in bytes, the trie, then the replacements, each ended by NUL.
  // Throws Error(kMalformed) unless every step and value of the trie stays inside.
  explicit Charsmap(std::string_view blob);

  struct Match {
    size_t length = 0;  // bytes replaced; 0 if nothing matches
    std::string_view replacement;
  };
  // The shortest and the longest sequence that `text` starts with.
  Match shortest(std::string_view text) const { return find(text, false); }
  Match longest(std::string_view text) const { return find(text, true); }

  bool empty() const { return units_.empty(); }

 private:
  Match find(std::string_view text, bool longest) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

// Hugging Face's Precompiled normalizer: by grapheme cluster of less than six bytes the shortest
// match, otherwise by character. `text` is valid UTF-8.
std::string normalize_by_grapheme(const Charsmap& map, std::string_view text);

}  // namespace lumen::text
