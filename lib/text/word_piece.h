// WordPiece (longest match from the left) and WordLevel (whole words).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lib/text/model.h"
#include "lib/text/trie.h"
#include "lib/text/vocabulary.h"

namespace lumen::text {

// Devlin et al., "BERT", 2018: a word is its longest token, then the longest token for the rest,
// spelled with a prefix, and so on; a word that does not come out even is unknown.
class WordPiece : public Model {
 public:
  struct Tables {
    const Vocabulary* vocabulary = nullptr;  // outlives the model
    std::string continuing_prefix;           // "##"
    size_t max_characters = 100;             // longer words are unknown
    int32_t unk = 0;
  };
  explicit WordPiece(Tables tables);
  void tokenize(std::string_view word, State* state, std::vector<int32_t>& ids) const override;

 private:
  Tables tables_;
  Trie first_, continuing_;
};

class WordLevel : public Model {
 public:
  // Without `unk`, unknown words are an error.
  WordLevel(const Vocabulary& vocabulary, std::optional<int32_t> unk)
      : vocabulary_(vocabulary), unk_(unk) {}
  void tokenize(std::string_view word, State* state, std::vector<int32_t>& ids) const override;

 private:
  const Vocabulary& vocabulary_;
  std::optional<int32_t> unk_;
};

}  // namespace lumen::text
