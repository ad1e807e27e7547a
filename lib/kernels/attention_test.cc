#include "lib/kernels/attention.h"

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/attention/attention_problem.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/testing/every_target.h"

using namespace lumen;
using namespace lumen::kernels;
using Problem = AttentionProblem;

namespace {

void check(Problem problem) {
  Philox random(7);
  problem.fill(random);
  const std::vector<double> expected = problem.expected();
  on_every_target([&] {
    INFO(problem.describe());
    const std::vector<float> one = problem.run(1);
    // Prompts over caches of 16 and 8 bits are computed with codes of some 12 bits.
    const bool in_codes = problem.dtype != DType::kF32 && problem.tokens > kFewTokens;
    REQUIRE(largest_difference(one, expected) < (in_codes ? 1e-3 : 1e-5));
    for (int threads : {2, 3}) {
      const std::vector<float> more = problem.run(threads);
      REQUIRE(std::memcmp(one.data(), more.data(), one.size() * sizeof(float)) == 0);
    }
    const ExactProductsScope exact;
    REQUIRE(largest_difference(problem.run(2), expected) < 1e-5);
  });
}

}  // namespace

TEST_CASE("attention decodes one token") {
  for (int64_t group : {1, 3, 4, 7, 8}) {
    check(
        {.batch = 1, .tokens = 1, .heads = 2 * group, .kv_heads = 2, .head_dim = 64, .start = 99});
  }
  for (int64_t head_dim : {8, 20, 24, 33, 48, 72, 80, 96, 128}) {
    check({.batch = 2, .tokens = 1, .heads = 4, .kv_heads = 2, .head_dim = head_dim, .start = 66});
  }
  for (int64_t start : {0, 1, 3, 62, 63, 64, 255, 256, 700, 5000}) {
    check({.batch = 2, .tokens = 1, .heads = 3, .kv_heads = 1, .head_dim = 32, .start = start});
  }
}

TEST_CASE("attention reads prompts of many tokens") {
  for (int64_t group : {1, 3, 4, 7, 8}) {
    check(
        {.batch = 1, .tokens = 37, .heads = 2 * group, .kv_heads = 2, .head_dim = 16, .start = 5});
  }
  for (int64_t head_dim : {8, 20, 24, 33, 48, 72, 80, 96, 128}) {
    check({.batch = 2, .tokens = 19, .heads = 2, .kv_heads = 1, .head_dim = head_dim, .start = 0});
  }
  for (int64_t tokens : {2, 3, 16, 63, 64, 65, 130}) {
    check({.batch = 1, .tokens = tokens, .heads = 2, .kv_heads = 2, .head_dim = 16, .start = 70});
  }
}

TEST_CASE("attention reads long prompts over caches of 16 and 8 bits") {
  for (const auto& [dtype, head_dim, group] :
       {std::tuple<DType, int64_t, int64_t>{DType::kF16, 64, 8},
        {DType::kBF16, 33, 1},
        {DType::kF16, 80, 3},
        {DType::kQ8_0, 128, 4},
        {DType::kF16, 256, 2}}) {
    for (int64_t window : {0, 100}) {
      check({.batch = 2,
             .tokens = 150,
             .heads = 2 * group,
             .kv_heads = 2,
             .head_dim = head_dim,
             .start = 70,
             .window = window,
             .dtype = dtype});
    }
  }
  check({.batch = 1,
         .tokens = 77,
         .heads = 2,
         .kv_heads = 2,
         .head_dim = 64,
         .start = 30,
         .causal = false,
         .dtype = DType::kF16});
}

// Scores are about as large as the caps.
TEST_CASE("attention caps scores, in decoding and prompts, over every type of cache") {
  for (const float cap : {0.5f, 2.0f}) {
    for (DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0}) {
      for (const int64_t tokens : {int64_t{1}, int64_t{3}, kFewTokens + 21}) {
        for (const int64_t window : {0, 40}) {
          check({.batch = 2,
                 .tokens = tokens,
                 .heads = 6,
                 .kv_heads = 2,
                 .head_dim = 64,
                 .start = 300,
                 .window = window,
                 .dtype = dtype,
                 .cap = cap});
        }
      }
    }
  }
}

TEST_CASE("attention adds linear biases, in decoding and prompts, over every type of cache") {
  for (const int64_t heads : {6, 8}) {
    for (DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0}) {
      for (const int64_t tokens : {int64_t{1}, int64_t{3}, kFewTokens + 21}) {
        for (const auto& [start, window] : {std::pair{0, 0}, {300, 40}, {700, 0}}) {
          check({.batch = 2,
                 .tokens = tokens,
                 .heads = heads,
                 .kv_heads = 2,
                 .head_dim = 64,
                 .start = start,
                 .window = window,
                 .dtype = dtype,
                 .max_bias = heads == 6 ? 8.0f : 3.0f});
        }
      }
    }
  }
  check({.batch = 2,
         .tokens = 3,
         .heads = 3,
         .kv_heads = 3,
         .head_dim = 24,
         .start = 9,
         .cap = 0.5f,
         .max_bias = 8,
         .starts = {9, 4}});
}

TEST_CASE("attention divides by its sinks too, in decoding and prompts, over every type of cache") {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0}) {
    for (const int64_t tokens : {int64_t{1}, int64_t{3}, kFewTokens + 21}) {
      for (const auto& [start, window] : {std::pair{0, 0}, {300, 40}, {700, 0}}) {
        check({.batch = 2,
               .tokens = tokens,
               .heads = 6,
               .kv_heads = 2,
               .head_dim = 64,
               .start = start,
               .window = window,
               .dtype = dtype,
               .sinks = true});
      }
    }
  }
}

// A prompt that goes on from a cached beginning gives what the whole prompt gives.
TEST_CASE("attention in codes gives each query the same bits whatever is beside it") {
  Philox random(13);
  Problem whole{.batch = 1,
                .tokens = 200,
                .heads = 6,
                .kv_heads = 2,
                .head_dim = 64,
                .start = 0,
                .window = 90,
                .dtype = DType::kF16};
  whole.fill(random);
  for (const float cap : {0.0f, 1.0f}) {
    whole.cap = cap;
    whole.sinks = cap != 0;
    whole.sink_values = random_floats(random, whole.heads);
    on_every_target([&] {
      const std::vector<float> together = whole.run(2);
      const int64_t row = whole.heads * whole.head_dim, first = 83;
      const std::vector<float> alone = whole.from_token(first).run(1);
      const bool in_codes = largest_difference(together, whole.expected()) > 1e-5;
      const float* same = together.data() + first * row;
      if (in_codes) REQUIRE(std::memcmp(alone.data(), same, alone.size() * sizeof(float)) == 0);
    });
  }
}

TEST_CASE("attention in codes copes with values of all sizes and shows what is no number") {
  Philox random(17);
  Problem problem{.batch = 1,
                  .tokens = 40,
                  .heads = 2,
                  .kv_heads = 2,
                  .head_dim = 64,
                  .start = 100,
                  .dtype = DType::kBF16};
  problem.fill(random);
  // The first position draws most of the weight and has a value next to nothing, as in language
  // models; another's is nothing at all.
  for (int64_t h = 0; h < 2; ++h) {
    for (int64_t i = 0; i < 64; ++i) {
      const auto at = static_cast<size_t>(h * problem.capacity * 64 + i);
      problem.k_values[at] = problem.q[static_cast<size_t>(h * 64 + i)] * 2;
      problem.v_values[at] *= 1e-6f;
      problem.v_values[at + 64] = 0;
    }
  }
  problem.k = problem.store(problem.k_values);
  problem.v = problem.store(problem.v_values);
  const std::vector<double> expected = problem.expected();
  on_every_target([&] { REQUIRE(largest_difference(problem.run(2), expected) < 1e-3); });

  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const auto& [values, wrong] : {std::pair{&Problem::k_values, kNan},
                                      {&Problem::v_values, kNan},
                                      {&Problem::v_values, kInfinity}}) {
    const Problem spoilt = problem.spoilt(values, 3 * 64 + 5, wrong);
    on_every_target([&] {
      const std::vector<float> out = spoilt.run(2);
      for (int64_t t = 0; t < spoilt.tokens; ++t) {
        REQUIRE_FALSE(std::isfinite(out[size_t(t * 128 + 5)]));
        REQUIRE(std::isfinite(out[size_t(t * 128 + 64)]));
      }
    });
  }
}

TEST_CASE("attention keeps to its window") {
  for (int64_t window : {1, 2, 5, 64, 65, 100, 1000}) {
    check({.batch = 1,
           .tokens = 1,
           .heads = 4,
           .kv_heads = 2,
           .head_dim = 16,
           .start = 400,
           .window = window});
    check({.batch = 1,
           .tokens = 150,
           .heads = 4,
           .kv_heads = 2,
           .head_dim = 16,
           .start = 90,
           .window = window});
  }
}

TEST_CASE("attention keeps to its chunk") {
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    for (const int64_t chunk : {1, 7, 64, 100, 1000}) {
      for (const auto& [tokens, start] :
           {std::pair<int64_t, int64_t>{1, 400}, {1, 399}, {kFewTokens, 390}, {150, 90}}) {
        check({.batch = 1,
               .tokens = tokens,
               .heads = 4,
               .kv_heads = 2,
               .head_dim = 32,
               .start = start,
               .window = chunk == 100 ? 30 : 0,
               .chunk = chunk,
               .dtype = dtype});
      }
    }
  }
}

TEST_CASE("attention without a causal mask sees every position") {
  for (int64_t tokens : {1, 5, 70}) {
    check({.batch = 2,
           .tokens = tokens,
           .heads = 4,
           .kv_heads = 4,
           .head_dim = 16,
           .start = 60,
           .causal = false});
  }
}

TEST_CASE("attention reads every type of cache") {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0}) {
    for (int64_t tokens : {1, 21}) {
      for (int64_t head_dim : {32, 64, 96}) {
        check({.batch = 2,
               .tokens = tokens,
               .heads = 6,
               .kv_heads = 2,
               .head_dim = head_dim,
               .start = 75,
               .dtype = dtype});
      }
    }
  }
}

TEST_CASE("attention gives each token of a prompt what decoding gives it") {
  Philox random(3);
  Problem prompt{.batch = 1, .tokens = 90, .heads = 6, .kv_heads = 2, .head_dim = 32, .start = 0};
  prompt.fill(random);
  on_every_target([&] {
    const std::vector<float> together = prompt.run(2);
    for (int64_t t = 0; t < prompt.tokens; ++t) {
      Problem token = prompt;
      const int64_t row = prompt.heads * prompt.head_dim;
      token.tokens = 1;
      token.starts = {static_cast<int32_t>(t)};
      token.positions = t + 1;
      token.q.assign(prompt.q.begin() + t * row, prompt.q.begin() + (t + 1) * row);
      const std::vector<float> alone = token.run(2);
      const std::vector<double> expected(together.begin() + t * row,
                                         together.begin() + (t + 1) * row);
      REQUIRE(largest_difference(alone, expected) < 1e-5);
    }
  });
}

// Drafts are verified many at a time: what comes out must be what decoding gives, to the bit.
TEST_CASE("attention gives a few tokens the bits that each gets alone") {
  Philox random(8);
  for (const auto& [start, window, chunk, dtype, cap] :
       {std::tuple<int64_t, int64_t, int64_t, DType, float>{0, 0, 0, DType::kF32, 0},
        {250, 0, 0, DType::kF16, 0},
        {1020, 0, 0, DType::kQ8_0, 0},
        {4090, 0, 0, DType::kF16, 1},
        {300, 70, 0, DType::kF32, 1},
        {1195, 0, 600, DType::kF16, 0}}) {
    Problem few{.batch = 2,
                .tokens = kFewTokens,
                .heads = 6,
                .kv_heads = 2,
                .head_dim = 32,
                .start = start,
                .window = window,
                .chunk = chunk,
                .dtype = dtype,
                .cap = cap};
    few.fill(random);
    on_every_target([&, start = start] {
      for (const int64_t tokens : {int64_t{2}, int64_t{5}, kFewTokens}) {
        Problem together = few;
        together.tokens = tokens;
        const std::vector<float> got = together.run(2);
        for (int64_t b = 0; b < few.batch; ++b) {
          for (int64_t t = 0; t < tokens; ++t) {
            Problem alone = few;
            alone.batch = alone.tokens = 1;
            alone.starts = {static_cast<int32_t>(start + t)};
            alone.slots = {static_cast<int32_t>(b)};
            const int64_t row = few.heads * few.head_dim, at = (b * tokens + t) * row;
            alone.q.assign(few.q.begin() + at, few.q.begin() + at + row);
            REQUIRE(std::memcmp(alone.run(1).data(), &got[static_cast<size_t>(at)],
                                static_cast<size_t>(row) * sizeof(float)) == 0);
          }
        }
      }
    });
  }
}

TEST_CASE("attention takes a position and a cache row for each batch row") {
  for (const int64_t tokens : {int64_t{1}, int64_t{3}, kFewTokens + 5}) {
    check({.batch = 3,
           .tokens = tokens,
           .heads = 4,
           .kv_heads = 2,
           .head_dim = 16,
           .start = 700,
           .starts = {700, 3, 260},
           .slots = {2, 0, 1}});
  }
}

TEST_CASE("attention takes any strides of queries, keys and values") {
  Philox random(4);
  Problem dense{.batch = 2, .tokens = 9, .heads = 4, .kv_heads = 2, .head_dim = 16, .start = 11};
  dense.fill(random);
  const std::vector<double> expected = dense.expected();
  // The same keys as [batch, capacity, kv_heads, head_dim], queries as [batch, heads, tokens, …].
  Problem turned = dense;
  const auto& d = dense;
  for (int64_t b = 0; b < d.batch; ++b) {
    for (int64_t i = 0; i < d.head_dim; ++i) {
      for (int64_t h = 0; h < d.kv_heads; ++h) {
        for (int64_t p = 0; p < d.capacity; ++p) {
          const auto from =
              static_cast<size_t>(((b * d.kv_heads + h) * d.capacity + p) * d.head_dim + i);
          const auto to =
              static_cast<size_t>(((b * d.capacity + p) * d.kv_heads + h) * d.head_dim + i);
          turned.k_values[to] = d.k_values[from];
          turned.v_values[to] = d.v_values[from];
        }
      }
      for (int64_t h = 0; h < d.heads; ++h) {
        for (int64_t t = 0; t < d.tokens; ++t) {
          turned.q[static_cast<size_t>(((b * d.heads + h) * d.tokens + t) * d.head_dim + i)] =
              d.q[static_cast<size_t>(((b * d.tokens + t) * d.heads + h) * d.head_dim + i)];
        }
      }
    }
  }
  turned.k = turned.store(turned.k_values);
  turned.v = turned.store(turned.v_values);
  std::vector<float> out;
  AttentionArgs args = turned.args(out);
  args.q_head_stride = d.tokens * d.head_dim;
  args.q_token_stride = d.head_dim;
  args.k.head_stride = args.v.head_stride = d.head_dim * 4;
  args.k.position_stride = args.v.position_stride = d.kv_heads * d.head_dim * 4;
  ThreadPool pool(2);
  std::vector<std::byte> workspace(attention_workspace_bytes(args, 2));
  args.workspace = workspace.data();
  attention(pool, args);
  REQUIRE(largest_difference(out, expected) < 1e-5);
}

TEST_CASE("attention survives extreme scores and shows a NaN") {
  for (int64_t tokens : {1, 8}) {
    Problem problem{
        .batch = 1, .tokens = tokens, .heads = 2, .kv_heads = 2, .head_dim = 16, .start = 600};
    Philox random(5);
    problem.fill(random);
    for (float& v : problem.q) v *= 1000;
    const std::vector<double> expected = problem.expected();
    on_every_target([&] { REQUIRE(largest_difference(problem.run(2), expected) < 1e-2); });

    problem.q[3] = std::numeric_limits<float>::quiet_NaN();
    on_every_target([&] {
      const std::vector<float> out = problem.run(2);
      for (size_t i = 0; i < 16; ++i) REQUIRE(std::isnan(out[i]));
      REQUIRE_FALSE(std::isnan(out[16]));
    });
  }
}
