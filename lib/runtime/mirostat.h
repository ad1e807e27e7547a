// Mirostat (Basu et al. 2021, arXiv:2007.14966): the surprise of a text is kept near a target.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/base/random.h"
#include "lib/runtime/candidates.h"

namespace lumen::runtime {

// Logits are divided by a temperature and give probabilities p₁ ≥ p₂ ≥ … ≥ p_N of N tokens. One of
// the first k is drawn, and with p now its probability among those,
//
//   μ ← μ − `rate` · (−log₂ p − `target`),
//
// where μ is 2 · `target` when an answer begins. k follows from μ:
//
// - version 1: as if p were Zipf's law with the exponent s that fits the M = min(100, N) likeliest
//   tokens best,
//     s = Σ tᵢ bᵢ / Σ tᵢ²,   tᵢ = ln((i + 1) / i),   bᵢ = ln(pᵢ / pᵢ₊₁),   i = 1 … M − 1,
//     k = ((s − 1) · 2^μ / (1 − N^(1 − s)))^(1 / s),   at least 1 and at most N;
//   tokens with the probability 0 do not count among the M
// - version 2: the tokens with −log₂ pᵢ ≤ μ, at least the first.
//
// Allocates only on construction. Not thread-safe.
class Mirostat {
 public:
  // `version` is 1 or 2, `target` in bits, `rate` a share, `vocab` the number of logits.
  Mirostat(int64_t version, double target, double rate, int64_t vocab);

  // An answer begins.
  void begin() { mu_ = 2 * target_; }

  // A token, drawn with the next number of `random`. `logits` is [vocab], of which one at least is
  // finite and none NaN or +∞; the temperature is not 0.
  int32_t draw(std::span<const float> logits, double temperature, Philox& random);

 private:
  size_t keep_likeliest(double temperature);
  double keep_unsurprising(double temperature);

  int64_t version_;
  double target_, rate_, mu_;
  std::vector<Candidate> candidates_;
  std::vector<double> weights_;  // of the candidates
};

}  // namespace lumen::runtime
