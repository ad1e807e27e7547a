// Dropout of attention's weights: that its mask is a mask. What is computed with it, op_test.cc and
// the tests of gradients compare.
#include <algorithm>
#include <vector>

#include "lib/base/testing.h"
#include "lib/graph/plan.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/ops/ops.h"

using namespace lumen;
using graph::Tensor;

namespace {

Tensor random_key(int32_t seed, int32_t step) {
  const int32_t words[] = {seed, step};
  return graph::constant(Array::from<int32_t>(words, {2}));
}

// What becomes of equal weights, [batch, tokens, heads, keys]: the values are the identity.
std::vector<float> weights(const ops::AttentionDropout& dropout, int threads = 2) {
  constexpr int64_t kBatch = 2, kTokens = 70, kHeads = 4, kKvHeads = 2, kKeys = 140;
  const Tensor q = ops::zeros({kBatch, kTokens, kHeads, kKeys});
  const Tensor k = ops::zeros({kBatch, kKvHeads, kKeys, kKeys});
  const Tensor v = ops::add(k, ops::eye(kKeys));
  const Tensor y = ops::attention(q, k, v, graph::constant(Array::zeros(DType::kI32, {1})),
                                  {.causal = false, .dropout = dropout});
  ThreadPool pool(threads);
  graph::Plan plan = graph::compile(std::span(&y, 1), {.threads = threads});
  plan.run(pool);
  const auto values = plan.output(0).as<float>();
  std::vector<float> scaled(values.begin(), values.end());
  for (float& x : scaled) x *= kKeys;
  return scaled;
}

// The part of a sample that one head's queries have.
std::vector<float> of_head(const std::vector<float>& all, size_t sample, size_t head) {
  std::vector<float> some;
  const size_t row = 140, token = 4 * row;
  for (size_t t = 0; t < 70; ++t) {
    const auto begin = all.begin() + static_cast<int64_t>((sample * 70 + t) * token + head * row);
    some.insert(some.end(), begin, begin + static_cast<int64_t>(row));
  }
  return some;
}

}  // namespace

TEST_CASE("attention drops the share of weights that it is told, and scales the others") {
  const std::vector<float> kept = weights({.p = 0.3, .key = random_key(1, 2), .stream = 3});
  int64_t dropped = 0;
  for (const float x : kept) {
    dropped += x == 0;
    REQUIRE((x == 0 || x == Approx(1 / 0.7)));
  }
  const auto all = static_cast<double>(kept.size());
  CHECK(static_cast<double>(dropped) / all == Approx(0.3).margin(0.01));
  // Other heads, samples, seeds, steps and streams have other masks, of which 0.58 agrees.
  auto agree = [](const std::vector<float>& a, const std::vector<float>& b) {
    int64_t same = 0;
    for (size_t i = 0; i < a.size(); ++i) same += (a[i] == 0) == (b[i] == 0);
    return static_cast<double>(same) / static_cast<double>(a.size());
  };
  const std::vector<float> first = of_head(kept, 0, 0);
  for (const auto& [sample, head] : {std::pair<size_t, size_t>{0, 1}, {0, 2}, {1, 0}}) {
    CHECK(agree(first, of_head(kept, sample, head)) == Approx(0.58).margin(0.04));
  }
  CHECK(agree(kept, weights({0.3, random_key(9, 2), 3})) == Approx(0.58).margin(0.02));
  CHECK(agree(kept, weights({0.3, random_key(1, 9), 3})) == Approx(0.58).margin(0.02));
  CHECK(agree(kept, weights({0.3, random_key(1, 2), 9})) == Approx(0.58).margin(0.02));
}

TEST_CASE("attention drops the same weights on every target and with any number of threads") {
  auto mask = [](int threads) {
    std::vector<float> kept = weights({0.5, random_key(4, 5), 6}, threads);
    for (float& x : kept) x = x == 0 ? 0.0f : 1.0f;
    return kept;
  };
  const std::vector<float> want = mask(1);
  kernels::on_every_target([&] {
    for (const int threads : {1, 2, 3}) REQUIRE(mask(threads) == want);
  });
}

TEST_CASE("attention without dropout is what it was, and a wrong probability is refused") {
  const std::vector<float> kept = weights({});
  CHECK(std::all_of(kept.begin(), kept.end(), [](float x) { return x == Approx(1); }));
  for (const double p : {-0.1, 1.5}) {
    const std::string message = testing::refusal(ErrorKind::kMalformed, [&] {
      weights({p, random_key(1, 1), 0});
    });
    CHECK(testing::contains(message, "attention"));
  }
}
