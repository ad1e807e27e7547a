// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/base/fields.h"
#include "lib/base/random.h"
#include "lib/io/json.h"
#include "lib/runtime/dry.h"

namespace lumen::runtime {

// What is added to the logit of a token.
struct LogitBias {
  std::string token;  // its id in decimal digits, or the text that it stands for
  double bias;        // finite or −∞
};

// Sampling as the user asked for it; what is absent is taken from the model's own defaults.
struct SamplingOptions {
  std::optional<double> temperature, top_p, min_p, repeat_penalty;
  std::optional<int64_t> top_k, seed;
  std::optional<double> presence_penalty, frequency_penalty, typical_p, top_n_sigma;
  std::optional<double> xtc_probability, xtc_threshold, dry_multiplier, dry_base;
  std::optional<int64_t> dry_allowed_length, dry_penalty_last_n, repeat_last_n, mirostat;
  std::optional<double> dynatemp_range, dynatemp_exp, mirostat_ent, mirostat_lr;
  std::optional<std::vector<std::string>> dry_sequence_breakers;
  std::vector<LogitBias> logit_bias;  // of those of the same token the last counts

  // temp, top-k, top-p, min-p, repeat-penalty, seed: flags and `/set` names.
  std::vector<Field> usual_fields();
  // The others, likewise.
  std::vector<Field> rare_fields();
  // Both.
  std::vector<Field> fields();
};

// The bias `number`, which is from -1000 to 1000 with any sign, or -inf, for `token`. Throws
// Error(kUsage) "logit-bias: …".
LogitBias make_logit_bias(std::string token, std::string_view number);

// Sampling as it is done. The steps, in this order (each sees what the one before left):
//    1. logit bias: what `logit_bias` has for a token is added to its logit
//    2. repeat penalty: a token among the last `repeat_last_n` of prompt and answer has its logit
//       divided by `repeat_penalty` if positive, multiplied if negative (CTRL, Keskar et al. 2019)
//    3. presence and frequency penalty, as OpenAI's API defines them: the logit of a token that
//       occurs n > 0 times in the answer so far is lowered by `presence_penalty` + n times
//       `frequency_penalty`. All of the answer counts and nothing of the prompt, to which earlier
//       answers belong (llama.cpp counts its last 64 tokens of both)
//    4. DRY: see dry.h
//    5. top-nσ: logits of at least the largest − `top_n_sigma` · σ stay (Tang et al. 2024); 0: all.
//       σ is the standard deviation of the model's finite logits before steps 1 to 4: what these do
//       to a few tokens says nothing about the noise that σ measures
//    6. top-k: the k largest logits stay; 0: all
//    7. typical: the fewest tokens nearest to the expected surprise, that is with the least
//       |H + ln p|, whose probabilities reach `typical_p` stay (Meister et al. 2022); 1: all
//    8. top-p: the fewest tokens whose probabilities reach p stay (Holtzman et al. 2020); 1: all
//    9. min-p: tokens with at least min_p times the largest probability stay; 0: all
//   10. XTC, "exclude top choices" (p-e-w 2024, text-generation-webui pull request 6335): with
//       `xtc_probability`, of the tokens whose probability is at least `xtc_threshold` only the
//       least likely stays, the highest id among equals. End tokens are tokens like others
//   11. temperature T: logits are divided by it, and one token is drawn; 0: after step 4 the
//   largest
//       logit is taken (the lowest id among equals). With `dynatemp_range` R > 0 ("dynamic
//       temperature", kalomaze 2023) they are divided by
//         t = lo + (T + R − lo) · (H / ln n)^`dynatemp_exp`,   lo = max(0, T − R),
//       where H is the entropy of the n tokens that are left: what is sure is drawn colder
// With `mirostat` 2 (Basu et al. 2021, second version) these come instead of steps 5 to 11: logits
// are divided by the temperature, of the tokens those with a surprise −log₂ p of at most μ stay,
// the likeliest in any case, one is drawn, and with p now its probability among those,
//         μ ← μ − `mirostat_lr` · (−log₂ p − `mirostat_ent`),
// where μ is 2 · `mirostat_ent` when an answer begins.
struct SamplingSettings {
  double temperature = 0.8;
  int64_t top_k = 40;
  double top_p = 0.95;
  double min_p = 0.05;
  double repeat_penalty = 1;
  uint64_t seed = 0;
  std::map<int32_t, double> logit_bias = {};
  double presence_penalty = 0, frequency_penalty = 0;
  DrySettings dry = {};
  double top_n_sigma = 0;
  double typical_p = 1;
  double xtc_probability = 0, xtc_threshold = 0.1;
  int64_t repeat_last_n = 64;  // 4 bytes are kept for each
  double dynatemp_range = 0, dynatemp_exp = 1;
  int64_t mirostat = 0;                        // or 2
  double mirostat_ent = 5, mirostat_lr = 0.1;  // in bits; a share
};

// Each value from `options`, else from a generation_config.json (temperature, top_k, top_p, min_p,
// repetition_penalty, typical_p; do_sample false: temperature 0), else the default above; a seed
// that nobody gave is drawn from the system. `logit_bias` is left empty: see resolve_logit_bias.
// Throws Error(kMalformed) naming a key of `generation_config` that is out of range.
SamplingSettings resolve_sampling(const SamplingOptions& options,
                                  const io::Json& generation_config);

// The tokens that `biases` are for, in a model with `vocab` logits. Throws Error(kUsage) for an id
// beyond them, and for a text that is not exactly one token, where it stands inside a longer text:
// the message says how many it is.
std::map<int32_t, double> resolve_logit_bias(const std::vector<LogitBias>& biases,
                                             const text::Tokenizer& tokenizer, int64_t vocab);

// The settings on one line: "temp 0.8, top-k 40, …", those beyond the first five only where they do
// something.
std::string describe(const SamplingSettings& settings);

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
  struct Candidate {
    float logit;
    int32_t id;
  };
  static bool is_before(const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  }

  float largest_logit() const;
  // Σ w and Σ w ln w of the candidates whose weight w = exp(logit − largest) is not 0, and how many
  // they are.
  struct Sums {
    double weights = 0, weighted = 0, count = 0;
  };
  Sums sums_below(double largest) const;
  std::span<const float> adjust(std::span<const float> logits);
  void apply_repeat_penalty();
  void remember(int32_t token);
  double least_logit(std::span<const float> logits, std::span<const float> adjusted) const;
  void keep_top_k(std::span<const float> logits, double least);
  void keep_typical();
  void keep_top_p();
  void keep_min_p();
  void exclude_top_choices();
  double temperature() const;
  double weigh(double temperature);
  size_t draw(double total);
  int32_t draw_mirostat(std::span<const float> logits);
  template <typename Order>
  void keep_share(double share, Order is_first);
  template <typename Order>
  void sort_prefix(size_t begin, size_t end, Order is_first);

  SamplingSettings settings_;
  Philox random_, xtc_random_;
  std::vector<float> adjusted_;        // a copy of the logits, if steps 1 to 4 change some
  std::vector<Candidate> candidates_;  // what the steps so far left
  size_t sorted_ = 0;                  // candidates_[0, sorted_) are in order, before all others
  std::vector<double> weights_;        // of the candidates
  std::vector<int32_t> window_;        // the last tokens of the text, a ring; empty: none matter
  size_t accepted_ = 0;
  std::vector<uint64_t> damped_;  // by token: the last draw for which its logit was damped
  uint64_t draws_ = 0;
  double mu_ = 0;                // mirostat's
  std::vector<int32_t> counts_;  // by token: how often it is in the answer, if that matters
  std::vector<int32_t> said_;    // the tokens for which that is not 0
  std::optional<Dry> dry_;
};

}  // namespace lumen::runtime
