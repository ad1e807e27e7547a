// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lib/base/fields.h"
#include "lib/base/random.h"
#include "lib/io/json.h"

namespace lumen::runtime {

// Sampling as the user asked for it; what is absent is taken from the model's own defaults.
struct SamplingOptions {
  std::optional<double> temperature, top_p, min_p, repeat_penalty;
  std::optional<int64_t> top_k, seed;

  // temp, top-k, top-p, min-p, repeat-penalty, seed: flags and `/set` names.
  std::vector<Field> fields();
};

// Sampling as it is done. The steps, in this order (each sees what the one before left):
//   1. repeat penalty: a token among the last kRepeatWindow has its logit divided by
//      `repeat_penalty` if positive, multiplied if negative (CTRL, Keskar et al. 2019)
//   2. top-k: the k largest logits stay; 0: all
//   3. top-p: the fewest tokens whose probabilities reach p stay (Holtzman et al. 2020); 1: all
//   4. min-p: tokens with at least min_p times the largest probability stay; 0: all
//   5. temperature: logits are divided by it, and one token is drawn; 0: the largest logit is
//      taken (the lowest id among equals), and steps 2 to 4 do not matter
struct SamplingSettings {
  static constexpr int kRepeatWindow = 64;

  double temperature = 0.8;
  int64_t top_k = 40;
  double top_p = 0.95;
  double min_p = 0.05;
  double repeat_penalty = 1;
  uint64_t seed = 0;
};

// Each value from `options`, else from a generation_config.json (temperature, top_k, top_p, min_p,
// repetition_penalty; do_sample false: temperature 0), else the default above; a seed that nobody
// gave is drawn from the system. Throws Error(kMalformed) naming a key of `generation_config` that
// is out of range.
SamplingSettings resolve_sampling(const SamplingOptions& options,
                                  const io::Json& generation_config);

// The settings on one line: "temp 0.8, top-k 40, …".
std::string describe(const SamplingSettings& settings);

// Draws tokens. The same seed and logits give the same tokens everywhere: the n-th draw uses the
// n-th number of Philox(seed). Allocates only on construction. Not thread-safe.
class Sampler {
 public:
  Sampler(const SamplingSettings& settings, int64_t vocab);

  // The next token; `logits` is [vocab]. Throws Error(kMalformed) if one is NaN or +∞, or none is
  // finite: the weights are damaged.
  int32_t sample(std::span<const float> logits);

  // For the repeat penalty: the text so far is `tokens`, whatever was accepted before.
  void begin(std::span<const int32_t> tokens);
  // `token` is added to the text; sample() does not do it.
  void accept(int32_t token);

  const SamplingSettings& settings() const { return settings_; }

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };
  static bool is_before(const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  }

  std::span<const float> penalised(std::span<const float> logits);
  void keep_top_k(std::span<const float> logits);
  void keep_top_p();
  void keep_min_p();
  int32_t draw();
  void sort_prefix(size_t begin, size_t end);

  SamplingSettings settings_;
  Philox random_;
  std::vector<float> penalised_;       // a copy of the logits, if there is a penalty
  std::vector<Candidate> candidates_;  // what the steps so far left
  size_t sorted_ = 0;                  // candidates_[0, sorted_) are in order, before all others
  std::vector<double> weights_;        // of the candidates
  std::vector<int32_t> window_;        // the last tokens of the text, a ring
  size_t accepted_ = 0;
};

}  // namespace lumen::runtime
