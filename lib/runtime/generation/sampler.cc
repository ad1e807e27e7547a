#include "lib/runtime/generation/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "lib/base/check.h"
#include "lib/base/error.h"

namespace lumen::runtime {
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

Sampler::Sampler(const SamplingSettings& settings, int64_t vocab,
                 std::shared_ptr<const text::Tokenizer> tokenizer)
    : settings_(settings),
      random_(settings.seed),
      xtc_random_(settings.seed, /*stream=*/1),
      weights_(static_cast<size_t>(vocab)) {
  candidates_.reserve(weights_.size());
  const bool penalises = has(SamplingStep::kPenalties);
  if (penalises && (settings.presence_penalty != 0 || settings.frequency_penalty != 0)) {
    counts_.resize(weights_.size());
    said_.reserve(weights_.size());
  }
  if (penalises && settings.repeat_penalty != 1) {
    window_.resize(static_cast<size_t>(settings.repeat_last_n));
    damped_.resize(weights_.size());
  }
  if (has(SamplingStep::kDry) && settings.dry.is_on()) {
    dry_.emplace(settings.dry, vocab, std::move(tokenizer));
  }
  if (settings.mirostat > 0) {
    mirostat_.emplace(settings.mirostat, settings.mirostat_ent, settings.mirostat_lr);
  }
  const bool adjusts =
      !settings.logit_bias.empty() || !damped_.empty() || !counts_.empty() || dry_.has_value();
  if (adjusts) adjusted_.resize(weights_.size());
}

bool Sampler::has(SamplingStep step) const {
  return std::find(settings_.steps.begin(), settings_.steps.end(), step) != settings_.steps.end();
}

void Sampler::begin(std::span<const int32_t> tokens) {
  accepted_ = 0;
  for (const int32_t id : tokens.last(std::min(tokens.size(), window_.size()))) remember(id);
  for (const int32_t id : said_) counts_[static_cast<size_t>(id)] = 0;
  said_.clear();
  if (mirostat_) mirostat_->begin();
  if (dry_) dry_->begin(tokens);
}

void Sampler::accept(int32_t token) {
  remember(token);
  if (!counts_.empty() && ++counts_[static_cast<size_t>(token)] == 1) said_.push_back(token);
  if (dry_) dry_->accept(token);
}

void Sampler::remember(int32_t token) {
  if (!window_.empty()) window_[accepted_++ % window_.size()] = token;
}

int32_t Sampler::sample(std::span<const float> logits) {
  LUMEN_CHECK(logits.size() == weights_.size());
  check_logits(logits);
  take(logits);
  const bool filters = settings_.temperature != 0 && !mirostat_;
  // The temperature of the last step is left to weigh(), which rounds nothing.
  double last_temperature = 1;
  for (size_t i = 0; i < settings_.steps.size(); ++i) {
    const SamplingStep step = settings_.steps[i];
    if (step == SamplingStep::kPenalties || step == SamplingStep::kDry) {
      adjust(step);
    } else if (filters && step == SamplingStep::kTemperature) {
      gather();
      const bool is_last = i + 1 == settings_.steps.size();
      if (is_last) {
        last_temperature = temperature();
      } else {
        divide(temperature());
      }
    } else if (filters) {
      filter(step);
    }
  }
  if (settings_.temperature == 0) {
    return static_cast<int32_t>(std::max_element(logits_.begin(), logits_.end()) - logits_.begin());
  }
  gather();
  if (mirostat_) return mirostat_->draw(candidates_, weights_, settings_.temperature, random_);
  const double total = weigh(candidates_, last_temperature, weights_);
  const auto weights = std::span<const double>(weights_).first(candidates_.size());
  return candidates_[draw(weights, total, random_)].id;
}

// Begins with the model's logits and the biases.
void Sampler::take(std::span<const float> logits) {
  model_logits_ = logits_ = logits;
  is_gathered_ = false;
  sorted_ = 0;
  divisor_ = 1;
  if (adjusted_.empty()) return;
  std::copy(logits.begin(), logits.end(), adjusted_.begin());
  logits_ = adjusted_;
  for (const auto& [token, bias] : settings_.logit_bias) {
    adjusted_[static_cast<size_t>(token)] += static_cast<float>(bias);
  }
  const auto is_possible = [](float logit) { return std::isfinite(logit); };
  if (std::none_of(adjusted_.begin(), adjusted_.end(), is_possible)) {
    fail(ErrorKind::kMalformed, "logit-bias: -inf forbids every token that could follow");
  }
}

// Penalties and DRY, whose place for the logits is `adjusted_`: of what is not a candidate any more
// it has what nobody reads.
void Sampler::adjust(SamplingStep step) {
  const bool is_on =
      step == SamplingStep::kDry ? dry_.has_value() : !damped_.empty() || !counts_.empty();
  if (!is_on) return;
  if (is_gathered_) {
    for (const Candidate& c : candidates_) adjusted_[static_cast<size_t>(c.id)] = c.logit;
  }
  if (step == SamplingStep::kDry) {
    dry_->apply(adjusted_);
  } else {
    apply_penalties();
  }
  if (is_gathered_) {
    for (Candidate& c : candidates_) c.logit = adjusted_[static_cast<size_t>(c.id)];
    sorted_ = 0;
  }
}

void Sampler::filter(SamplingStep step) {
  switch (step) {
    case SamplingStep::kTopNSigma:
      return keep_near_largest();
    case SamplingStep::kTopK:
      return keep_top_k();
    case SamplingStep::kTypical:
      return keep_typical();
    case SamplingStep::kTopP:
      return keep_top_p();
    case SamplingStep::kMinP:
      return keep_min_p();
    case SamplingStep::kXtc:
      return exclude_top_choices();
    case SamplingStep::kPenalties:
    case SamplingStep::kDry:
    case SamplingStep::kTemperature:
      break;
  }
  LUMEN_CHECK(false);
}

// Makes all logits candidates, unless they are.
void Sampler::gather() {
  if (std::exchange(is_gathered_, true)) return;
  candidates_.clear();
  for (size_t i = 0; i < logits_.size(); ++i) {
    candidates_.push_back({logits_[i], static_cast<int32_t>(i)});
  }
}

// Each token of the window counts once, however often it occurred.
void Sampler::apply_penalties() {
  const size_t count = std::min(accepted_, window_.size());
  const auto penalty = static_cast<float>(settings_.repeat_penalty);
  ++draws_;
  for (size_t i = 0; i < count; ++i) {
    const auto id = static_cast<size_t>(window_[i]);
    if (std::exchange(damped_[id], draws_) == draws_) continue;
    float& logit = adjusted_[id];
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
  for (const int32_t token : said_) {
    const auto id = static_cast<size_t>(token);
    adjusted_[id] -=
        static_cast<float>(settings_.presence_penalty + counts_[id] * settings_.frequency_penalty);
  }
}

void Sampler::keep_near_largest() {
  if (settings_.top_n_sigma == 0) return;
  double count = 0, sum = 0;
  for (const float logit : model_logits_) {
    if (std::isfinite(logit)) count += 1, sum += logit;
  }
  const double mean = sum / count;
  double squares = 0;
  for (const float logit : model_logits_) {
    if (std::isfinite(logit)) squares += (logit - mean) * (logit - mean);
  }
  gather();
  const double least =
      largest_logit(candidates_) - settings_.top_n_sigma * std::sqrt(squares / count) / divisor_;
  std::erase_if(candidates_, [least](const Candidate& c) { return c.logit < least; });
  sorted_ = std::min(sorted_, candidates_.size());
}

void Sampler::keep_top_k() {
  const auto k = static_cast<size_t>(settings_.top_k);
  if (k == 0 || k >= logits_.size()) return;
  if (is_gathered_) {
    const size_t kept = std::min(k, candidates_.size());
    if (sorted_ < kept) sort_to(0, kept, is_before);
    candidates_.resize(kept);
    sorted_ = kept;
    return;
  }
  is_gathered_ = true;
  candidates_.clear();
  // A heap with the worst of the k best on top: nearly every logit costs one comparison.
  for (size_t i = 0; i < logits_.size(); ++i) {
    const Candidate candidate{logits_[i], static_cast<int32_t>(i)};
    if (candidates_.size() < k) {
      candidates_.push_back(candidate);
      std::push_heap(candidates_.begin(), candidates_.end(), is_before);
    } else if (candidate.logit > candidates_.front().logit) {
      std::pop_heap(candidates_.begin(), candidates_.end(), is_before);
      candidates_.back() = candidate;
      std::push_heap(candidates_.begin(), candidates_.end(), is_before);
    }
  }
  std::sort_heap(candidates_.begin(), candidates_.end(), is_before);
  sorted_ = candidates_.size();
}

template <typename Order>
void Sampler::sort_to(size_t begin, size_t end, Order is_first) {
  sort_prefix(candidates_, begin, end, is_first);
  sorted_ = end;
}

// Keeps the fewest candidates, from the first on, that have this share of the probability. Sorts
// ever larger pieces only until the sum is reached: usually the first is enough.
template <typename Order>
void Sampler::keep_share(double share, Order is_first) {
  if (sorted_ == 0) sort_to(0, std::min<size_t>(64, candidates_.size()), is_first);
  const float largest = largest_logit(candidates_);
  double total = 0;
  for (const Candidate& candidate : candidates_)
    total += std::exp(double{candidate.logit} - largest);
  double sum = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (i == sorted_) sort_to(i, std::min(4 * i, candidates_.size()), is_first);
    sum += std::exp(double{candidates_[i].logit} - largest);
    if (sum >= share * total) {
      candidates_.resize(i + 1);
      break;
    }
  }
}

Sampler::Sums Sampler::sums_below(double largest) const {
  Sums sums;
  for (const Candidate& candidate : candidates_) {
    const double below = candidate.logit - largest, weight = std::exp(below);
    if (weight == 0) continue;
    sums.weights += weight;
    sums.weighted += weight * below;
    sums.count += 1;
  }
  return sums;
}

// With ln p = logit − ln Z and H = −Σ p ln p, |H + ln p| = |logit − Σ p logit|.
void Sampler::keep_typical() {
  if (settings_.typical_p >= 1) return;
  gather();
  const double largest = largest_logit(candidates_);
  const Sums sums = sums_below(largest);
  const double expected = largest + sums.weighted / sums.weights;
  sorted_ = 0;  // another order
  keep_share(settings_.typical_p, [expected](const Candidate& a, const Candidate& b) {
    const double to_a = std::abs(a.logit - expected), to_b = std::abs(b.logit - expected);
    return to_a < to_b || (to_a == to_b && is_before(a, b));
  });
  sorted_ = 0;
}

void Sampler::keep_top_p() {
  if (settings_.top_p >= 1) return;
  gather();
  keep_share(settings_.top_p, is_before);
}

void Sampler::keep_min_p() {
  if (settings_.min_p == 0) return;
  gather();
  // p / p_max ≥ min_p ⇔ logit ≥ logit_max + ln(min_p)
  const double threshold = largest_logit(candidates_) + std::log(settings_.min_p);
  const auto end = std::remove_if(candidates_.begin(), candidates_.end(),
                                  [&](const Candidate& c) { return c.logit < threshold; });
  candidates_.resize(static_cast<size_t>(end - candidates_.begin()));
  sorted_ = std::min(sorted_, candidates_.size());
}

void Sampler::exclude_top_choices() {
  if (settings_.xtc_probability == 0) return;
  if (xtc_random_.uniform() >= settings_.xtc_probability) return;
  gather();
  const double largest = largest_logit(candidates_);
  double total = 0;
  for (const Candidate& candidate : candidates_) total += std::exp(candidate.logit - largest);
  const auto is_likely = [&](const Candidate& candidate) {
    const double probability = std::exp(candidate.logit - largest) / total;
    return probability > 0 && probability >= settings_.xtc_threshold;
  };
  const Candidate* least = nullptr;
  for (const Candidate& candidate : candidates_) {
    if (is_likely(candidate) && (!least || is_before(*least, candidate))) least = &candidate;
  }
  if (!least) return;
  const int32_t kept = least->id;
  std::erase_if(candidates_, [&](const Candidate& candidate) {
    return candidate.id != kept && is_likely(candidate);
  });
  sorted_ = 0;
}

// With S = Σ exp(logit − largest), H = ln S − Σ p (logit − largest).
double Sampler::temperature() const {
  if (settings_.dynatemp_range == 0) return settings_.temperature;
  const double largest = largest_logit(candidates_);
  const auto [total, sum, count] = sums_below(largest);
  const double share = count < 2 ? 0 : (std::log(total) - sum / total) / std::log(count);
  const double most = settings_.temperature + settings_.dynatemp_range;
  const double least = std::max(0.0, settings_.temperature - settings_.dynatemp_range);
  // Of a uniform distribution rounding may leave a little more than 1. Not 0: logits are divided.
  return std::max(
      least + (most - least) * std::pow(std::clamp(share, 0.0, 1.0), settings_.dynatemp_exp),
      double{std::numeric_limits<float>::min()});
}

// The largest stays finite, whatever the temperature, and the others differ from it as they should.
void Sampler::divide(double temperature) {
  constexpr double kMost = std::numeric_limits<float>::max() / 2;
  const double largest = largest_logit(candidates_);
  const double quotient = std::clamp(largest / temperature, -kMost, kMost);
  for (Candidate& candidate : candidates_) {
    candidate.logit = static_cast<float>(quotient + (candidate.logit - largest) / temperature);
  }
  divisor_ *= temperature;
}

}  // namespace lumen::runtime
