// Randomness of data as pure functions of a seed, so that any point of a run can be returned to.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "lib/base/random.h"

namespace lumen::data {

// What random numbers are for; each purpose has streams of its own.
enum class Purpose : uint64_t { kOrder = 1, kSplit, kAugment, kWindow, kDigits, kText, kPack };

// Stream number `index` (an epoch, a sample) of `purpose`.
inline Philox random_stream(uint64_t seed, Purpose purpose, uint64_t index) {
  return Philox(seed, static_cast<uint64_t>(purpose) << 56 | index);
}

// A random permutation of [0, size) that needs no memory: a Feistel network over the next power of
// four, walked until it falls inside (Black and Rogaway, "Ciphers with Arbitrary Finite Domains",
// CT-RSA 2002).
class Permutation {
 public:
  Permutation(uint64_t size, uint64_t seed, Purpose purpose, uint64_t index);

  // Where `position` < size goes.
  uint64_t operator[](uint64_t position) const;

 private:
  static constexpr int kRounds = 8;
  uint64_t size_;
  int half_bits_;
  std::array<uint64_t, kRounds> keys_{};
};

// Samples [0, count) divided by the seed: round(count × eval_fraction) for evaluation, at least one
// of each if there are two and the fraction is neither 0 nor 1, and no more than `max_samples` of
// either (0: all). Both are in ascending order.
struct SplitIndices {
  std::vector<int64_t> train, eval;
};
SplitIndices split_indices(int64_t count, double eval_fraction, int64_t max_samples, uint64_t seed);

// How many of `count` are for evaluation by the rule above.
int64_t eval_count(int64_t count, double eval_fraction);

}  // namespace lumen::data
