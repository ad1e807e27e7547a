// Unigram language model: the most probable split of a text into pieces
// (Kudo, "Subword Regularization", ACL 2018).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "lib/text/model.h"
#include "lib/text/trie.h"
#include "lib/text/vocabulary.h"

namespace lumen::text {

struct UnigramTables {
  const Vocabulary* vocabulary = nullptr;  // outlives the model
  std::vector<double> scores;              // by id
  std::vector<int32_t> pieces;             // ids that take part; the last of equal spelling wins
  double min_score = 0;                    // unknown characters score 10 less
  std::optional<int32_t> unk;
  bool byte_fallback = false;  // unknown characters become their byte tokens "<0x0A>", if all exist
  bool joins_unknown = true;   // unknown characters side by side may spell a token together
};

class Unigram : public Model {
 public:
  explicit Unigram(UnigramTables tables);
  std::unique_ptr<State> make_state() const override;
  // Viterbi: time is linear in the text times the longest piece that matches.
  void tokenize(std::string_view word, State* state, std::vector<int32_t>& ids) const override;

 private:
  struct Best;
  struct WorkSpace;
  void append_unknown(std::string_view text, std::vector<int32_t>& ids) const;

  UnigramTables tables_;
  Trie trie_;
};

}  // namespace lumen::text
