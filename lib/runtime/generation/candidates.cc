#include "lib/runtime/generation/candidates.h"

#include <cmath>

namespace lumen::runtime {

float largest_logit(std::span<const Candidate> candidates) {
  float largest = candidates[0].logit;
  for (const Candidate& candidate : candidates) largest = std::max(largest, candidate.logit);
  return largest;
}

double weigh(std::span<const Candidate> candidates, double temperature, std::span<double> weights) {
  const float largest = largest_logit(candidates);
  double total = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    weights[i] = std::exp((double{candidates[i].logit} - largest) / temperature);
    total += weights[i];
  }
  return total;
}

size_t draw(std::span<const double> weights, double total, Philox& random) {
  double remaining = random.uniform() * total;
  size_t chosen = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0) continue;
    chosen = i;  // the last possible one if rounding leaves a rest
    remaining -= weights[i];
    if (remaining < 0) break;
  }
  return chosen;
}

}  // namespace lumen::runtime
