// DRY, "don't repeat yourself" (p-e-w 2024, text-generation-webui pull request 5677): tokens that
// would prolong a repetition get lower logits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/base/limits.h"
#include "lib/text/tokenizer.h"

namespace lumen::runtime {

struct DrySettings {
  double multiplier = 0;              // 0: off
  double base = 1.75;                 // at least 1
  int64_t allowed_length = 2;         // in tokens, at least 1
  int64_t last_n = limits::kContext;  // tokens looked at; 0: off. 28 bytes are kept for each
  std::vector<std::string> breakers = {"\n", ":", "\"", "*"};  // none empty

  bool is_on() const { return multiplier != 0 && last_n != 0; }
};

// The text as DRY looks at it: its last `last_n` tokens, prompt included. If the last L tokens of
// the text occurred before in it, L ≥ allowed_length as large as possible, then the logit of the
// token that followed them there is lowered by
//
//   multiplier · base^(L − allowed_length),
//
// at most 1e30. A token that followed several occurrences counts with the longest. L ends at the
// last breaker: the token with which one of these texts is complete, however it is cut into tokens.
// Tokens that completed one where they stood are not lowered. Not thread-safe.
class Dry {
 public:
  // `vocab`: the number of logits. `tokenizer` finds the breakers and may be null only without any.
  Dry(const DrySettings& settings, int64_t vocab, std::shared_ptr<const text::Tokenizer> tokenizer);

  // The text is `tokens`, whatever was accepted before.
  void begin(std::span<const int32_t> tokens);
  // `token` is added to the text. Does not allocate.
  void accept(int32_t token);

  // Lowers the logits, one per token of the vocabulary, that follow the text. Takes time linear in
  // the tokens looked at; does not allocate.
  void apply(std::span<float> logits);

 private:
  struct Entry {
    int32_t token;
    bool is_breaker;
  };
  bool completes_breaker(int32_t token);
  void find_repetitions(std::span<const Entry> text);

  DrySettings settings_;
  size_t last_n_, allowed_length_;
  std::vector<Entry> text_;  // its end; at most twice what is looked at
  size_t unbroken_ = 0;      // tokens after the last breaker
  std::optional<text::TokenStream> stream_;
  std::string tail_;  // the end of the text in bytes, in which a breaker may have begun
  size_t longest_breaker_ = 0;
  std::vector<size_t> z_;        // scratch: the first values of the Z-function
  std::vector<size_t> lengths_;  // by token: the longest L that it followed; 0: none
  std::vector<int32_t> found_;   // the tokens for which it is not 0
};

}  // namespace lumen::runtime
