// Answers that have to follow a grammar or a JSON Schema.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/io/json.h"
#include "lib/runtime/chat/answer_channels.h"
#include "lib/text/token_constraint.h"
#include "lib/text/tokenizer.h"

namespace lumen::runtime {

// The grammar that --grammar FILE or --json-schema FILE name; a schema that begins with { is one
// itself. Nothing if both are absent. Throws Error as read_file, read_json, parse_grammar and
// json_schema_grammar.
std::optional<text::Grammar> requested_grammar(const std::optional<std::string>& grammar,
                                               const std::optional<std::string>& json_schema);

// Constraints over the vocabulary of a model. The vocabulary is put in order when the first is
// made; the last few are kept for the next line of a batch. Not thread-safe.
class ConstraintSource {
 public:
  ConstraintSource(std::shared_ptr<const text::Tokenizer> tokenizer,
                   std::vector<int32_t> end_tokens);

  // Throw Error as text::VocabularyTrie; the last two also as parse_grammar, json_schema_grammar.
  std::shared_ptr<text::TokenConstraint> of(text::Grammar grammar);
  std::shared_ptr<text::TokenConstraint> of_grammar(const std::string& gbnf);
  std::shared_ptr<text::TokenConstraint> of_schema(const io::Json& schema);

 private:
  template <typename Make>
  std::shared_ptr<text::TokenConstraint> kept(const std::string& key, const Make& make);

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::vector<int32_t> end_tokens_;
  std::shared_ptr<const text::VocabularyTrie> vocabulary_;
  struct Kept {
    std::shared_ptr<text::TokenConstraint> constraint;
    uint64_t last_use = 0;
  };
  std::map<std::string, Kept> kept_;  // by source
  uint64_t uses_ = 0;
};

// One answer under a constraint: which logits the sampler gets to see. If the prompt ends in a
// thinking block that it has opened (<think>), the answer is free until that block is closed, but
// cannot end there; up to two tokens of white space may follow. An answer in channels is free until
// the text of its final message, and cannot end before. Not thread-safe. Allocates with
// the first logits, and where the constraint meets a state for the first time.
class AnswerConstraint {
 public:
  // `end_tokens` must outlive it; `continues_text` as for Generator::generate. `channels`: of an
  // answer in channels (null: it is none) the reader that shows only its final message, which must
  // outlive this and take each token before accept() does.
  AnswerConstraint(std::shared_ptr<text::TokenConstraint> constraint,
                   std::shared_ptr<const text::Tokenizer> tokenizer,
                   std::span<const int32_t> prompt, bool continues_text,
                   const ChannelReader* channels, std::span<const int32_t> end_tokens);

  // The logits with −∞ for all tokens that are not allowed, valid until the next call; empty if
  // none is, because the text is over. Throws Error(kMismatch) if the vocabulary has no token for
  // what has to follow.
  std::span<const float> mask(std::span<const float> logits);
  // Goes on by a token that mask() allowed.
  void accept(int32_t token);
  // Nothing may follow but an end token.
  bool is_over() { return phase_ == Phase::kText && text_.is_over(); }

 private:
  enum class Phase { kThinking, kGap, kChannels, kText };
  void think(int32_t token);

  std::shared_ptr<text::TokenConstraint> constraint_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::span<const int32_t> end_tokens_;
  std::string_view closing_;  // the tag that ends the thinking; "": there is none
  const ChannelReader* channels_;
  text::ConstrainedText text_;
  Phase phase_ = Phase::kText;
  std::string tail_;             // of what was thought: where the tag may have begun
  std::vector<int32_t> blanks_;  // tokens of white space alone
  int gap_tokens_ = 0;
  std::vector<float> masked_;
};

}  // namespace lumen::runtime
