#include "lib/runtime/mirostat.h"

#include <algorithm>
#include <cmath>

namespace lumen::runtime {

Mirostat::Mirostat(int64_t version, double target, double rate, int64_t vocab)
    : version_(version),
      target_(target),
      rate_(rate),
      mu_(2 * target),
      weights_(static_cast<size_t>(vocab)) {
  candidates_.reserve(weights_.size());
}

int32_t Mirostat::draw(std::span<const float> logits, double temperature, Philox& random) {
  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    candidates_.push_back({logits[i], static_cast<int32_t>(i)});
  }
  if (version_ == 1) candidates_.resize(keep_likeliest(temperature));
  const double left =
      version_ == 1 ? weigh(candidates_, temperature, weights_) : keep_unsurprising(temperature);
  const auto weights = std::span<const double>(weights_).first(candidates_.size());
  const size_t chosen = runtime::draw(weights, left, random);
  mu_ -= rate_ * (-std::log2(weights[chosen] / left) - target_);
  return candidates_[chosen].id;
}

// Sorts the candidates as far as is needed and returns k. ln(pᵢ / pᵢ₊₁) is the difference of the
// logits over the temperature.
size_t Mirostat::keep_likeliest(double temperature) {
  constexpr size_t kFitted = 100;
  const size_t all = candidates_.size();
  const size_t fitted = std::min(kFitted, all);
  sort_prefix(candidates_, 0, fitted, is_before);
  double products = 0, squares = 0;
  for (size_t i = 0; i + 1 < fitted && std::isfinite(candidates_[i + 1].logit); ++i) {
    const double t = std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    const double b = (double{candidates_[i].logit} - candidates_[i + 1].logit) / temperature;
    products += t * b;
    squares += t * t;
  }
  if (squares == 0) return 1;  // there is but one
  const double s = products / squares, epsilon = s - 1;
  // The limit for ε → 0 is 1 / ln N.
  const double share = std::abs(epsilon) < 1e-9
                           ? 1 / std::log(static_cast<double>(all))
                           : epsilon / (1 - std::pow(static_cast<double>(all), -epsilon));
  const double k = std::pow(share * std::exp2(mu_), 1 / s);
  const size_t kept = k < 1 ? 1 : k < static_cast<double>(all) ? static_cast<size_t>(k) : all;
  if (kept > fitted) sort_prefix(candidates_, fitted, kept, is_before);
  return kept;
}

// Sets the weights of what surprises too much to 0 and returns the sum of the others.
double Mirostat::keep_unsurprising(double temperature) {
  const double total = weigh(candidates_, temperature, weights_);
  const auto likeliest = std::max_element(weights_.begin(), weights_.end()) - weights_.begin();
  double left = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const bool stays =
        static_cast<ptrdiff_t>(i) == likeliest || -std::log2(weights_[i] / total) <= mu_;
    if (!stays) weights_[i] = 0;
    left += weights_[i];
  }
  return left;
}

}  // namespace lumen::runtime
