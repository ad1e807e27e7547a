#include "lib/kernels/attention/attention_words.h"

#include <cmath>
#include <limits>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/reference.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/testing/random_floats.h"

using namespace lumen;
using namespace lumen::kernels;
namespace words = attention_words;

namespace {

// attention_test.cc checks what uses them, only where they are the faster way.
void check_blocks(float cap) {
  constexpr int64_t kHeadDim = 40, kPitch = 48, kCounts[] = {64, 27};
  on_targets_that(uses_avx2, "products of pairs of int16 (AVX2)", [&] {
    Philox random(3);
    const int64_t width = words::columns();
    std::vector<float> q = random_floats(random, kPitch * width);
    std::fill(q.begin() + kHeadDim * width, q.end(), 0.0f);
    std::vector<int16_t> q_codes(static_cast<size_t>(kPitch * width));
    std::vector<int16_t> k_codes(words::kPositions * kPitch), v_codes(k_codes);
    std::vector<int16_t> weights(static_cast<size_t>(words::kPositions * width));
    std::vector<float> k_scale(words::kPositions), v_log(k_scale), v_inverse(k_scale);
    std::vector<float> scores(static_cast<size_t>(words::kPositions * width));
    std::vector<float> q_scale(static_cast<size_t>(width)), sum(q_scale), first(q_scale);
    std::vector<float> last(q_scale), output(static_cast<size_t>(kPitch * width));
    std::vector<float> maximum(q_scale.size(), -std::numeric_limits<float>::infinity());
    for (int64_t c = 0; c < width; ++c) {
      first[static_cast<size_t>(c)] = static_cast<float>(c % 5);
      last[static_cast<size_t>(c)] = static_cast<float>(70 + c % 21);
    }
    const words::Queries queries{.head_dim = kHeadDim,
                                 .pitch = kPitch,
                                 .q = q_codes.data(),
                                 .q_scale = q_scale.data(),
                                 .maximum = maximum.data(),
                                 .sum = sum.data(),
                                 .output = output.data(),
                                 .first = first.data(),
                                 .last = last.data(),
                                 .scores = scores.data(),
                                 .weights = weights.data(),
                                 .cap = cap};
    const words::Keys keys{.head_dim = kHeadDim,
                           .pitch = kPitch,
                           .k = k_codes.data(),
                           .v = v_codes.data(),
                           .k_scale = k_scale.data(),
                           .v_log = v_log.data(),
                           .v_inverse = v_inverse.data()};
    words::encode_queries(q.data(), queries);
    std::vector<double> total(static_cast<size_t>(width)), expected(output.size());
    int64_t begin = 0;
    for (const int64_t count : kCounts) {
      std::vector<float> k = random_floats(random, count * kPitch),
                         v = random_floats(random, count * kPitch);
      for (int64_t p = 0; p < count; ++p) {
        for (int64_t i = 0; i < kPitch; ++i) {
          float &key = k[static_cast<size_t>(p * kPitch + i)], &value = v[&key - k.data()];
          key = i < kHeadDim ? key / 4 : 0;
          value = i < kHeadDim ? value * static_cast<float>(p + 1) : 0;
        }
        for (int64_t c = 0; c < width; ++c) {
          if (static_cast<float>(begin + p) < first[static_cast<size_t>(c)] ||
              static_cast<float>(begin + p) >= last[static_cast<size_t>(c)]) {
            continue;
          }
          double score = 0;
          for (int64_t i = 0; i < kHeadDim; ++i) {
            score += double{q[static_cast<size_t>(i * width + c)]} *
                     k[static_cast<size_t>(p * kPitch + i)];
          }
          score = reference::soft_cap(score, cap);
          total[static_cast<size_t>(c)] += std::exp2(score);
          for (int64_t i = 0; i < kHeadDim; ++i) {
            expected[static_cast<size_t>(i * width + c)] +=
                std::exp2(score) * v[static_cast<size_t>(p * kPitch + i)];
          }
        }
      }
      words::encode_keys(k.data(), count, keys);
      words::encode_values(v.data(), count, keys);
      words::attend(queries, keys, begin, count, /*masked=*/true);
      begin += count;
    }
    for (int64_t at = 0; at < kHeadDim * width; ++at) {
      const auto c = static_cast<size_t>(at % width), i = static_cast<size_t>(at);
      // Values go up to 64 times a normally distributed number.
      REQUIRE(output[i] / sum[c] == Approx(expected[i] / total[c]).margin(0.03));
    }
  });
}

}  // namespace

TEST_CASE("blocks of attention in int16 codes follow the formula, AVX2 alone too") {
  check_blocks(0);
}

TEST_CASE("blocks of attention in int16 codes cap scores") {
  check_blocks(1.5f);
}
