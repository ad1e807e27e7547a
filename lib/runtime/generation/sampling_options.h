// How to sample: what users may ask for, and what it comes to.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/fields.h"
#include "lib/io/json.h"
#include "lib/runtime/generation/dry.h"

namespace lumen::runtime {

// A step from logits to the tokens that may follow; see SamplingSettings.
enum class SamplingStep {
  kPenalties,
  kDry,
  kTopNSigma,
  kTopK,
  kTypical,
  kTopP,
  kMinP,
  kXtc,
  kTemperature,
};

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
  bool ignore_eos = false;            // a bias of −∞ for every end token
  std::optional<std::vector<SamplingStep>> samplers;

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

// All steps in their usual order.
std::vector<SamplingStep> usual_steps();

// Their names as --samplers has them: "top_k;top_p".
std::string names(const std::vector<SamplingStep>& steps);

// Sampling as it is done. First `logit_bias` is added: what it has for a token to that one's logit.
// Then come the `steps`, each of which sees what the one before left; a step that is not named is
// not done. Here they stand in their usual order, with llama.cpp's names for them:
//    penalties: a token among the last `repeat_last_n` of prompt and answer has its logit divided
//       by `repeat_penalty` if positive, multiplied if negative (CTRL, Keskar et al. 2019). Then
//       presence and frequency penalty, as OpenAI's API defines them: the logit of a token that
//       occurs n > 0 times in the answer so far is lowered by `presence_penalty` + n times
//       `frequency_penalty`. All of the answer counts and nothing of the prompt, to which earlier
//       answers belong (llama.cpp counts its last 64 tokens of both)
//    dry: see dry.h
//    top_n_sigma: logits of at least the largest − `top_n_sigma` · σ stay (Tang et al. 2024); 0:
//       all. σ is the standard deviation of the model's finite logits, over the temperature if that
//       came before: what biases and penalties do to a few tokens says nothing about the noise that
//       σ measures
//    top_k: the k largest logits stay; 0: all
//    typ_p: the fewest tokens nearest to the expected surprise, that is with the least |H + ln p|,
//       whose probabilities reach `typical_p` stay (Meister et al. 2022); 1: all
//    top_p: the fewest tokens whose probabilities reach p stay (Holtzman et al. 2020); 1: all
//    min_p: tokens with at least min_p times the largest probability stay; 0: all
//    xtc, "exclude top choices" (p-e-w 2024, text-generation-webui pull request 6335): with
//       `xtc_probability`, of the tokens whose probability is at least `xtc_threshold` only the
//       least likely stays, the highest id among equals. End tokens are tokens like others
//    temperature T: logits are divided by it. With `dynatemp_range` R > 0 ("dynamic temperature",
//       kalomaze 2023) they are divided by
//         t = lo + (T + R − lo) · (H / ln n)^`dynatemp_exp`,   lo = max(0, T − R),
//       where H is the entropy of the n tokens that are left: what is sure is drawn colder
// At last a token is drawn. With the temperature 0, wherever its step is and if there is none too,
// of the steps only penalties and dry are done, and the largest logit is taken (the lowest id among
// equals). With `mirostat` likewise, and then the token is Mirostat's: see mirostat.h.
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
  int64_t mirostat = 0;                             // or 1 or 2, its version
  double mirostat_ent = 5, mirostat_lr = 0.1;       // in bits; a share
  std::vector<SamplingStep> steps = usual_steps();  // each at most once
};

// Each value from `options`, else from a generation_config.json (temperature, top_k, top_p, min_p,
// repetition_penalty, typical_p; do_sample false: temperature 0), else the default above; a seed
// that nobody gave is drawn from the system. `logit_bias` is left empty: see resolve_logit_bias.
// Throws Error(kMalformed) naming a key of `generation_config` that is out of range, and `place`,
// where that is from.
SamplingSettings resolve_sampling(const SamplingOptions& options, const io::Json& generation_config,
                                  std::string_view place = "generation_config.json");

// The tokens that `biases` are for, in a model with `vocab` logits. Throws Error(kUsage) for an id
// beyond them, and for a text that is not exactly one token, where it stands inside a longer text:
// the message says how many it is.
std::map<int32_t, double> resolve_logit_bias(const std::vector<LogitBias>& biases,
                                             const text::Tokenizer& tokenizer, int64_t vocab);

// The settings on one line: "temp 0.8, top-k 40, …", those beyond the first five only where they do
// something.
std::string describe(const SamplingSettings& settings);

}  // namespace lumen::runtime
