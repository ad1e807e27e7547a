// Mirostat (Basu et al. 2021, arXiv:2007.14966): the surprise of a text is kept near a target.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/base/random.h"
#include "lib/runtime/generation/candidates.h"

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
// Allocates nothing. Not thread-safe.
class Mirostat {
 public:
  // `version` is 1 or 2, `target` in bits, `rate` a share.
  Mirostat(int64_t version, double target, double rate);

  // An answer begins.
  void begin() { mu_ = 2 * target_; }

  // A token, drawn with the next number of `random`. `candidates` are all tokens, of whose logits
  // one at least is finite and none NaN or +∞; what is left of them, and the first of `weights`, of
  // which there are as many, are for the draw only. The temperature is not 0.
  int32_t draw(std::vector<Candidate>& candidates, std::span<double> weights, double temperature,
               Philox& random);

 private:
  size_t keep_likeliest(std::vector<Candidate>& candidates, double temperature) const;
  double keep_unsurprising(std::span<const Candidate> candidates, std::span<double> weights,
                           double temperature) const;

  int64_t version_;
  double target_, rate_, mu_;
};

}  // namespace lumen::runtime
