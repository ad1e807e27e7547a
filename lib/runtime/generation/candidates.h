// Tokens that may be drawn, and drawing one of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lib/base/random.h"

namespace lumen::runtime {

// A token that may follow.
struct Candidate {
  float logit;
  int32_t id;
};

// The order of candidates: the likelier first, the lower id among equals.
inline bool is_before(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// The largest logit of `candidates`, which is not empty.
float largest_logit(std::span<const Candidate> candidates);

// Fills weights[i] = exp((logit_i − largest logit) / `temperature`) for all candidates, of which
// there is one at least and not more than `weights` has, and returns their sum. The temperature is
// not 0.
double weigh(std::span<const Candidate> candidates, double temperature, std::span<double> weights);

// The index of one of `weights`, whose sum is `total` > 0, drawn with the next number of `random`;
// one whose weight is 0 never.
size_t draw(std::span<const double> weights, double total, Philox& random);

// Brings the first of candidates[begin, …) by `is_first` to [begin, end), in order.
template <typename Order>
void sort_prefix(std::vector<Candidate>& candidates, size_t begin, size_t end, Order is_first) {
  const auto first = candidates.begin();
  const auto from = first + static_cast<ptrdiff_t>(begin), to = first + static_cast<ptrdiff_t>(end);
  if (to != candidates.end()) std::nth_element(from, to, candidates.end(), is_first);
  std::sort(from, to, is_first);
}

}  // namespace lumen::runtime
