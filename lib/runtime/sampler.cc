#include "lib/runtime/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "lib/base/check.h"
#include "lib/base/error.h"
#include "lib/base/limits.h"

namespace lumen::runtime {

std::vector<Field> SamplingOptions::fields() {
  constexpr int64_t kMaxSeed = std::numeric_limits<int64_t>::max();
  return {
      number_field("temp", "randomness; 0 takes the likeliest token (model's own, else 0.8)",
                   temperature, 0, 100),
      number_field("top-k", "keep the N likeliest tokens; 0: all (model's own, else 40)", top_k, 0,
                   static_cast<int64_t>(limits::kVocab)),
      number_field("top-p",
                   "keep the likeliest that reach this probability (model's own, else 0.95)", top_p,
                   0, 1),
      number_field("min-p",
                   "drop tokens below this share of the likeliest (model's own, else 0.05)", min_p,
                   0, 1),
      number_field("repeat-penalty", "damp the last 64 tokens; 1: off (model's own, else 1)",
                   repeat_penalty, 0.01, 100),
      number_field("seed", "the same seed gives the same text (random)", seed, 0, kMaxSeed),
  };
}

namespace {

void check_logits(std::span<const float> logits) {
  bool any_finite = false, any_bad = false;
  for (const float logit : logits) {
    any_finite |= std::isfinite(logit);
    any_bad |= !(logit < std::numeric_limits<float>::infinity());  // NaN or +∞
  }
  if (any_bad || !any_finite) {
    fail(ErrorKind::kMalformed,
         "the model's output is not a number: its weights are damaged, or a value overflowed");
  }
}

}  // namespace

SamplingSettings resolve_sampling(const SamplingOptions& options,
                                  const io::Json& generation_config) {
  SamplingSettings settings;
  // What the model proposes is read, and may be wrong, only where no option replaces it.
  auto choose = [&](const std::optional<double>& option, const char* key, double lo, double hi,
                    double& setting) {
    setting = option ? *option : io::get_number(generation_config, key, lo, hi, setting);
  };
  with_context("generation_config.json", [&] {
    choose(options.temperature, "temperature", 0, 100, settings.temperature);
    if (!options.temperature && !io::get_bool(generation_config, "do_sample", true)) {
      settings.temperature = 0;
    }
    settings.top_k = options.top_k
                         ? *options.top_k
                         : io::get_int(generation_config, "top_k", 0,
                                       static_cast<int64_t>(limits::kVocab), settings.top_k);
    choose(options.top_p, "top_p", 0, 1, settings.top_p);
    choose(options.min_p, "min_p", 0, 1, settings.min_p);
    choose(options.repeat_penalty, "repetition_penalty", 0.01, 100, settings.repeat_penalty);
  });
  settings.seed = options.seed ? static_cast<uint64_t>(*options.seed) : std::random_device{}();
  return settings;
}

std::string describe(const SamplingSettings& settings) {
  return str("temp ", settings.temperature, ", top-k ", settings.top_k, ", top-p ", settings.top_p,
             ", min-p ", settings.min_p, ", repeat-penalty ", settings.repeat_penalty, ", seed ",
             settings.seed);
}

Sampler::Sampler(const SamplingSettings& settings, int64_t vocab)
    : settings_(settings),
      random_(settings.seed),
      penalised_(settings.repeat_penalty == 1 ? 0 : static_cast<size_t>(vocab)),
      weights_(static_cast<size_t>(vocab)),
      window_(SamplingSettings::kRepeatWindow) {
  candidates_.reserve(weights_.size());
}

void Sampler::begin(std::span<const int32_t> tokens) {
  accepted_ = 0;
  for (const int32_t id : tokens.last(std::min(tokens.size(), window_.size()))) accept(id);
}

void Sampler::accept(int32_t token) {
  window_[accepted_++ % window_.size()] = token;
}

int32_t Sampler::sample(std::span<const float> logits) {
  LUMEN_CHECK(logits.size() == weights_.size());
  check_logits(logits);
  logits = penalised(logits);
  if (settings_.temperature == 0) {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  keep_top_k(logits);
  keep_top_p();
  keep_min_p();
  return draw();
}

// Each token of the window counts once, however often it occurred.
std::span<const float> Sampler::penalised(std::span<const float> logits) {
  if (settings_.repeat_penalty == 1) return logits;
  std::copy(logits.begin(), logits.end(), penalised_.begin());
  const size_t count = std::min(accepted_, window_.size());
  const auto penalty = static_cast<float>(settings_.repeat_penalty);
  for (size_t i = 0; i < count; ++i) {
    const auto first = window_.begin(), here = first + static_cast<ptrdiff_t>(i);
    if (std::find(first, here, *here) != here) continue;
    float& logit = penalised_[static_cast<size_t>(*here)];
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
  return penalised_;
}

// Keeps a heap with the worst of the k best on top: nearly every logit costs one comparison.
void Sampler::keep_top_k(std::span<const float> logits) {
  candidates_.clear();
  const size_t k = settings_.top_k == 0 ? logits.size() : static_cast<size_t>(settings_.top_k);
  for (size_t i = 0; i < logits.size(); ++i) {
    const Candidate candidate{logits[i], static_cast<int32_t>(i)};
    if (k >= logits.size()) {
      candidates_.push_back(candidate);
    } else if (candidates_.size() < k) {
      candidates_.push_back(candidate);
      std::push_heap(candidates_.begin(), candidates_.end(), is_before);
    } else if (candidate.logit > candidates_.front().logit) {
      std::pop_heap(candidates_.begin(), candidates_.end(), is_before);
      candidates_.back() = candidate;
      std::push_heap(candidates_.begin(), candidates_.end(), is_before);
    }
  }
  sorted_ = 0;
  if (k >= logits.size()) return;
  std::sort_heap(candidates_.begin(), candidates_.end(), is_before);
  sorted_ = k;
}

// Brings the best of candidates_[begin, …) to [begin, end), in order.
void Sampler::sort_prefix(size_t begin, size_t end) {
  const auto first = candidates_.begin();
  const auto from = first + static_cast<ptrdiff_t>(begin), to = first + static_cast<ptrdiff_t>(end);
  if (to != candidates_.end()) std::nth_element(from, to, candidates_.end(), is_before);
  std::sort(from, to, is_before);
  sorted_ = end;
}

void Sampler::keep_top_p() {
  if (settings_.top_p >= 1) return;
  if (sorted_ == 0) sort_prefix(0, std::min<size_t>(64, candidates_.size()));
  const float largest = candidates_[0].logit;
  double total = 0;
  for (const Candidate& candidate : candidates_)
    total += std::exp(double{candidate.logit} - largest);
  // Sorts ever larger pieces only until the sum is reached: usually the first is enough.
  double sum = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (i == sorted_) sort_prefix(i, std::min(4 * i, candidates_.size()));
    sum += std::exp(double{candidates_[i].logit} - largest);
    if (sum >= settings_.top_p * total) {
      candidates_.resize(i + 1);
      break;
    }
  }
}

void Sampler::keep_min_p() {
  if (settings_.min_p == 0) return;
  float largest = candidates_[0].logit;
  for (const Candidate& candidate : candidates_) largest = std::max(largest, candidate.logit);
  // p / p_max ≥ min_p ⇔ logit ≥ logit_max + ln(min_p)
  const double threshold = largest + std::log(settings_.min_p);
  const auto end = std::remove_if(candidates_.begin(), candidates_.end(),
                                  [&](const Candidate& c) { return c.logit < threshold; });
  candidates_.resize(static_cast<size_t>(end - candidates_.begin()));
}

int32_t Sampler::draw() {
  float largest = candidates_[0].logit;
  for (const Candidate& candidate : candidates_) largest = std::max(largest, candidate.logit);
  double total = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    weights_[i] = std::exp((double{candidates_[i].logit} - largest) / settings_.temperature);
    total += weights_[i];
  }
  double remaining = random_.uniform() * total;
  size_t chosen = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (weights_[i] == 0) continue;
    chosen = i;  // the last possible one if rounding leaves a rest
    remaining -= weights_[i];
    if (remaining < 0) break;
  }
  return candidates_[chosen].id;
}

}  // namespace lumen::runtime
