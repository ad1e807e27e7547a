// Which tokens may come next in a text that has to follow a grammar.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "lib/text/grammar.h"
#include "lib/text/vocabulary_trie.h"

namespace lumen::text {

namespace grammar {
class Automaton;
}

// A set of token ids: bit id % 64 of word id / 64.
using TokenMask = std::span<const uint64_t>;

// A grammar over the tokens of a vocabulary, and what is known already of the masks of its states,
// which all texts share. The mask of a state is the union of those of its positions. A position's
// mask is found by one walk over the vocabulary's trie as if the rest of the stack were not known
// (Dong et al. 2024, XGrammar): it holds the tokens that stay within the rule, and the few nodes
// of the trie where the rule may have ended, below which the walk goes on for each stack. Both
// kinds are kept, up to limits::kGrammarCacheBytes. Not thread-safe.
class TokenConstraint {
 public:
  TokenConstraint(Grammar grammar, std::shared_ptr<const VocabularyTrie> vocabulary);
  ~TokenConstraint();

  const VocabularyTrie& vocabulary() const { return *vocabulary_; }

 private:
  friend class ConstrainedText;
  // What is known of a position's tokens.
  struct Inside {
    std::vector<uint64_t> mask;     // or, if they are few,
    std::vector<int32_t> tokens;    // themselves
    std::vector<uint32_t> leaving;  // nodes of the trie at which the rule may have ended
  };
  TokenMask mask(uint32_t state);
  TokenMask start_mask();
  const Inside& inside(uint32_t position);
  void add_tokens(uint32_t state, std::vector<uint64_t>& mask);
  template <typename Leaving>
  void walk(uint32_t state, uint32_t begin, uint32_t end, std::vector<uint64_t>& mask,
            const Leaving& leaving);
  void renew_if_large();

  std::shared_ptr<const grammar::Program> program_;
  std::shared_ptr<const VocabularyTrie> vocabulary_;
  std::shared_ptr<grammar::Automaton> automaton_;
  std::vector<std::unique_ptr<uint64_t[]>> masks_;  // of states, null where not known
  std::unique_ptr<uint64_t[]> start_mask_;
  std::vector<std::unique_ptr<Inside>> insides_;  // of positions
  std::vector<uint64_t> found_;
  std::vector<uint32_t> path_;  // the state at each depth of a walk
  size_t words_;
  uint64_t mask_bytes_ = 0, inside_bytes_ = 0;
};

// One text under a constraint: how far it has come. Not thread-safe, nor are two texts of one
// constraint at once. Where a state is met again nothing is allocated.
class ConstrainedText {
 public:
  // `is_whole`: the text begins with its first token; otherwise it continues another, so the first
  // token keeps its space.
  ConstrainedText(std::shared_ptr<TokenConstraint> constraint, bool is_whole);

  // The tokens that may come next; valid until the next call for any text of the constraint.
  // Throws Error(kMalformed) if the grammar is too ambiguous, see Automaton::next.
  TokenMask allowed();

  // Goes on by a token, or by bytes; false, and nothing happens, if they are not allowed.
  bool accept(int32_t token);
  bool accept(std::string_view bytes);

  // The text so far is one of the grammar.
  bool may_end();
  // It is, and nothing may follow.
  bool is_over();

 private:
  void sync();

  std::shared_ptr<TokenConstraint> constraint_;
  std::shared_ptr<grammar::Automaton> automaton_;  // of state_
  uint32_t state_;
  bool drops_space_;  // with the next token
};

}  // namespace lumen::text
