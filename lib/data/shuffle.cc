#include "lib/data/shuffle.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "lib/base/check.h"

namespace lumen::data {
namespace {

// The finalizer of MurmurHash3 (Appleby): every bit of x changes every bit of the result.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDu;
  x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53u;
  return x ^ (x >> 33);
}

}  // namespace

Permutation::Permutation(uint64_t size, uint64_t seed, Purpose purpose, uint64_t index)
    : size_(size), half_bits_((std::bit_width(size > 1 ? size - 1 : 1) + 1) / 2) {
  Philox random = random_stream(seed, purpose, index);
  for (uint64_t& key : keys_) key = random.next_u64();
}

uint64_t Permutation::operator[](uint64_t position) const {
  LUMEN_CHECK(position < size_);
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  do {
    uint64_t left = position >> half_bits_, right = position & mask;
    for (const uint64_t key : keys_) {
      const uint64_t next = left ^ (mix(right ^ key) & mask);
      left = right;
      right = next;
    }
    position = left << half_bits_ | right;
  } while (position >= size_);
  return position;
}

int64_t eval_count(int64_t count, double eval_fraction) {
  const auto wanted =
      static_cast<int64_t>(std::llround(static_cast<double>(count) * eval_fraction));
  if (eval_fraction <= 0 || count < 2) return eval_fraction >= 1 ? count : 0;
  return eval_fraction >= 1 ? count : std::clamp<int64_t>(wanted, 1, count - 1);
}

SplitIndices split_indices(int64_t count, double eval_fraction, int64_t max_samples,
                           uint64_t seed) {
  const int64_t evals = eval_count(count, eval_fraction);
  const Permutation order(static_cast<uint64_t>(count), seed, Purpose::kSplit, 0);
  SplitIndices split;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<int64_t>& part = i < evals ? split.eval : split.train;
    if (max_samples > 0 && static_cast<int64_t>(part.size()) == max_samples) continue;
    part.push_back(static_cast<int64_t>(order[static_cast<uint64_t>(i)]));
  }
  std::sort(split.train.begin(), split.train.end());
  std::sort(split.eval.begin(), split.eval.end());
  return split;
}

}  // namespace lumen::data
