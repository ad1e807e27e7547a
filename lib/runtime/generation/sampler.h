// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lib/base/random.h"
#include "lib/runtime/generation/candidates.h"
#include "lib/runtime/generation/dry.h"
#include "lib/runtime/generation/mirostat.h"
#include "lib/runtime/generation/sampling_options.h"

namespace lumen::runtime {

// Draws tokens. The same seed and logits give the same tokens everywhere: the n-th draw uses the
// n-th number of Philox(seed), and XTC the n-th of its stream 1. Allocates only on construction and
// in begin(). Not thread-safe.
class Sampler {
 public:
  // `vocab`: the number of logits. `tokenizer` is for DRY's breakers, see dry.h.
  Sampler(const SamplingSettings& settings, int64_t vocab,
          std::shared_ptr<const text::Tokenizer> tokenizer = nullptr);

  // The next token; `logits` is [vocab]. Throws Error(kMalformed) if one is NaN or +∞, or none is
  // finite: the weights are damaged, or biases of −∞ leave nothing.
  int32_t sample(std::span<const float> logits);

  // For the penalties: an answer to the prompt `tokens` begins, whatever was accepted before.
  void begin(std::span<const int32_t> tokens);
  // `token` is added to the answer; sample() does not do it.
  void accept(int32_t token);

  const SamplingSettings& settings() const { return settings_; }

 private:
  // Σ w and Σ w ln w of the candidates whose weight w = exp(logit − largest) is not 0, and how many
  // they are.
  struct Sums {
    double weights = 0, weighted = 0, count = 0;
  };
  Sums sums_below(double largest) const;
  bool has(SamplingStep step) const;
  void take(std::span<const float> logits);
  void adjust(SamplingStep step);
  void filter(SamplingStep step);
  void gather();
  void apply_penalties();
  void remember(int32_t token);
  void keep_near_largest();
  void keep_top_k();
  void keep_typical();
  void keep_top_p();
  void keep_min_p();
  void exclude_top_choices();
  double temperature() const;
  void divide(double temperature);
  template <typename Order>
  void keep_share(double share, Order is_first);
  template <typename Order>
  void sort_to(size_t begin, size_t end, Order is_first);

  SamplingSettings settings_;
  Philox random_, xtc_random_;
  std::span<const float> model_logits_;  // of the present draw
  // Before the first step that drops tokens, the logits as the steps so far left them: the model's
  // or, if some change them, `adjusted_`. Afterwards the candidates count.
  std::span<const float> logits_;
  std::vector<float> adjusted_;
  bool is_gathered_ = false;           // into candidates_
  std::vector<Candidate> candidates_;  // what the steps so far left
  size_t sorted_ = 0;                  // candidates_[0, sorted_) are in order, before all others
  double divisor_ = 1;                 // by which the logits have been divided
  std::vector<double> weights_;        // of the candidates
  std::vector<int32_t> window_;        // the last tokens of the text, a ring; empty: none matter
  size_t accepted_ = 0;
  std::vector<uint64_t> damped_;  // by token: the last draw for which its logit was damped
  uint64_t draws_ = 0;
  std::vector<int32_t> counts_;  // by token: how often it is in the answer, if that matters
  std::vector<int32_t> said_;    // the tokens for which that is not 0
  std::optional<Dry> dry_;
  std::optional<Mirostat> mirostat_;
};

}  // namespace lumen::runtime
