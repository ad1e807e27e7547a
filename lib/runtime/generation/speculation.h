// Speculative decoding (Leviathan et al. 2023) that cannot change the text: somebody guesses the
// next tokens, the model reads them in one pass over its weights, and a guess counts only where it
// is the token that would have been sampled anyway.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lib/runtime/generation/language_model.h"
#include "lib/text/tokenizer.h"

namespace lumen::runtime {

// Guesses how a text goes on. Not thread-safe.
class Drafter {
 public:
  // Guesses come in kinds that are right more or less often: 0 … kKinds − 1.
  static constexpr int kKinds = 3;

  virtual ~Drafter() = default;

  // Looks at a text (not empty) and returns the kind of guess there is; −1: none. Does not allocate
  // in the steady state, like draft().
  virtual int look(std::span<const int32_t> text) = 0;

  // Up to `most` tokens, at least one, that may follow the text looked at, which still lies where
  // it was. Valid until the next call.
  virtual std::span<const int32_t> draft(int64_t most) = 0;
};

// Prompt lookup (Saxena 2023): the last 2 to 4 tokens occurred before, and what followed them then
// may follow again, over and over. The longest match counts, among equals the last. Its kind is its
// length − 2.
class PromptLookup : public Drafter {
 public:
  int look(std::span<const int32_t> text) override;
  std::span<const int32_t> draft(int64_t most) override;

 private:
  std::span<const int32_t> follows_;
  std::array<int32_t, LanguageModel::kMostVerified> draft_;
};

// A smaller model with the same vocabulary, asked for its likeliest tokens. Kind 0 only. Padding
// may give the two vocabularies different sizes: it has no guess for a text with a token that it
// lacks.
class DraftModel : public Drafter {
 public:
  // `model` must outlive it; `vocab` is the size of the vocabulary that it shares. Its texts may be
  // `model.context()` long.
  DraftModel(LanguageModel& model, int64_t vocab);

  int look(std::span<const int32_t> text) override;
  std::span<const int32_t> draft(int64_t most) override;

 private:
  LanguageModel& model_;
  size_t vocab_;
  std::span<const int32_t> text_;
  std::vector<int32_t> fed_;    // the tokens at positions [0, model_.position())
  std::vector<int32_t> draft_;  // the last one
};

// Refuses a draft model whose tokens are not those of the main one: Error(kMismatch).
void check_draft_vocabulary(const text::Tokenizer& draft, const text::Tokenizer& main);

// Decides how many tokens to draft. With acceptance rate p (of a kind, measured), k drafted tokens
// give on average (1 − p^(k+1)) / (1 − p) tokens per pass; the k that gives most per second wins,
// by the measured seconds of a pass over 1 + k tokens and of a drafted token. Where none beats
// single tokens a rest follows, after which one is tried again; rests become longer. Not
// thread-safe.
class DraftLength {
 public:
  // Numbers of tokens in a pass: one plan for each.
  static constexpr std::array<int64_t, 5> kPasses = {2, 3, 4, 6, 8};
  static_assert(kPasses.back() == LanguageModel::kMostVerified);

  // Drafts no more than `most` tokens at once.
  explicit DraftLength(int64_t most) : most_(most) {}

  // Tokens to draft for a guess of this kind when at most `room` are wanted: 0, or one less than
  // one of kPasses.
  int64_t choose(int kind, int64_t room);

  // What came of a draft: the first `accepted` of its tokens were right, and, if `rejected`, the
  // next one was wrong (otherwise nobody asked for it).
  void record(int kind, int64_t accepted, bool rejected);
  // A pass over `tokens` tokens, or the drafting of so many, took so long.
  void record_pass(int64_t tokens, double seconds);
  void record_drafting(int64_t tokens, double seconds);

 private:
  static constexpr int64_t kFirstRest = 16;
  struct Kind {
    double right = 1, all = 2;  // recent guesses; at first one of two counts as right
    int64_t rest = 0;           // choices until the next try
    int64_t next_rest = kFirstRest;
  };
  double pass_seconds(int64_t tokens) const;

  int64_t most_;
  std::array<Kind, Drafter::kKinds> kinds_;
  std::array<double, LanguageModel::kMostVerified + 1> seconds_{};  // by tokens; 0: not known
  double drafting_seconds_ = 0;                                     // of one token
};

}  // namespace lumen::runtime
