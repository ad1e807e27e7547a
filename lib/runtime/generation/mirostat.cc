#include "lib/runtime/generation/mirostat.h"

#include <algorithm>
#include <cmath>

namespace lumen::runtime {

Mirostat::Mirostat(int64_t version, double target, double rate)
    : version_(version), target_(target), rate_(rate), mu_(2 * target) {}

int32_t Mirostat::draw(std::vector<Candidate>& candidates, std::span<double> weights,
                       double temperature, Philox& random) {
  if (version_ == 1) candidates.resize(keep_likeliest(candidates, temperature));
  weights = weights.first(candidates.size());
  const double left = version_ == 1 ? weigh(candidates, temperature, weights)
                                    : keep_unsurprising(candidates, weights, temperature);
  const size_t chosen = runtime::draw(weights, left, random);
  mu_ -= rate_ * (-std::log2(weights[chosen] / left) - target_);
  return candidates[chosen].id;
}

// Sorts the candidates as far as is needed and returns k. ln(pᵢ / pᵢ₊₁) is the difference of the
// logits over the temperature.
size_t Mirostat::keep_likeliest(std::vector<Candidate>& candidates, double temperature) const {
  constexpr size_t kFitted = 100;
  const size_t all = candidates.size();
  const size_t fitted = std::min(kFitted, all);
  sort_prefix(candidates, 0, fitted, is_before);
  double products = 0, squares = 0;
  for (size_t i = 0; i + 1 < fitted && std::isfinite(candidates[i + 1].logit); ++i) {
    const double t = std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    const double b = (double{candidates[i].logit} - candidates[i + 1].logit) / temperature;
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
  if (kept > fitted) sort_prefix(candidates, fitted, kept, is_before);
  return kept;
}

// Sets the weights of what surprises too much to 0 and returns the sum of the others.
double Mirostat::keep_unsurprising(std::span<const Candidate> candidates, std::span<double> weights,
                                   double temperature) const {
  const double total = weigh(candidates, temperature, weights);
  const auto likeliest = std::max_element(weights.begin(), weights.end()) - weights.begin();
  double left = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const bool stays =
        static_cast<ptrdiff_t>(i) == likeliest || -std::log2(weights[i] / total) <= mu_;
    if (!stays) weights[i] = 0;
    left += weights[i];
  }
  return left;
}

}  // namespace lumen::runtime
