#include "lib/data/shuffle.h"

#include <algorithm>
#include <set>

#include "lib/base/testing.h"

namespace lumen::data {
namespace {

TEST_CASE("a permutation takes every value once, for every size") {
  for (uint64_t size = 1; size <= 300; ++size) {
    const Permutation order(size, 7, Purpose::kOrder, size);
    std::vector<bool> seen(size);
    for (uint64_t i = 0; i < size; ++i) {
      REQUIRE(order[i] < size);
      seen[order[i]] = true;
    }
    REQUIRE(std::count(seen.begin(), seen.end(), true) == static_cast<int64_t>(size));
  }
}

TEST_CASE("permutations are pure functions that differ by seed, purpose and epoch") {
  const auto values = [](uint64_t seed, Purpose purpose, uint64_t epoch) {
    const Permutation order(1000, seed, purpose, epoch);
    std::vector<uint64_t> out;
    for (uint64_t i = 0; i < 1000; ++i) out.push_back(order[i]);
    return out;
  };
  const auto first = values(1, Purpose::kOrder, 0);
  CHECK(first == values(1, Purpose::kOrder, 0));
  for (const auto& other : {values(2, Purpose::kOrder, 0), values(1, Purpose::kSplit, 0),
                            values(1, Purpose::kOrder, 1)}) {
    int same = 0;
    for (size_t i = 0; i < 1000; ++i) same += other[i] == first[i] ? 1 : 0;
    CHECK(same < 10);  // one is expected
  }
}

TEST_CASE("every value is equally likely at every position") {
  constexpr uint64_t kSize = 10, kEpochs = 20000;
  std::vector<int> counts(kSize * kSize);
  for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const Permutation order(kSize, 3, Purpose::kOrder, epoch);
    for (uint64_t i = 0; i < kSize; ++i) ++counts[i * kSize + order[i]];
  }
  double chi_squared = 0;
  constexpr double kExpected = double{kEpochs} / kSize;
  for (const int count : counts)
    chi_squared += (count - kExpected) * (count - kExpected) / kExpected;
  CHECK(chi_squared < 130);  // 81 degrees of freedom: 99.95 % lie below
}

TEST_CASE("a split keeps its parts apart") {
  const SplitIndices split = split_indices(1000, 0.1, 0, 5);
  CHECK(split.eval.size() == 100);
  CHECK(split.train.size() == 900);
  std::set<int64_t> all(split.train.begin(), split.train.end());
  all.insert(split.eval.begin(), split.eval.end());
  CHECK(all.size() == 1000);
  CHECK(split.eval == split_indices(1000, 0.1, 0, 5).eval);
  CHECK(split.eval != split_indices(1000, 0.1, 0, 6).eval);
  CHECK(split_indices(1000, 0.1, 20, 5).train.size() == 20);
  CHECK(eval_count(1000, 0) == 0);
  CHECK(eval_count(3, 0.01) == 1);
  CHECK(eval_count(3, 0.99) == 2);
  CHECK(eval_count(1, 0.5) == 0);
  CHECK(eval_count(5, 1) == 5);
}

}  // namespace
}  // namespace lumen::data
