#include "lib/kernels/attention/attention_prompt_tiles.h"

#include <cstring>
#include <limits>
#include <tuple>
#include <vector>

#include "lib/base/testing.h"
#include "lib/kernels/attention/attention_problem.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/tiles/amx_emulation.h"

using namespace lumen;
using namespace lumen::kernels;
using Problem = AttentionProblem;

namespace {

// Of normally distributed values, what rounding to bfloat16 may cost.
constexpr double kTolerance = 1e-2;

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void check(Problem problem) {
  Philox random(7);
  problem.bf16 = true;
  problem.fill(random);
  const std::vector<double> expected = problem.expected();
  INFO(problem.describe());
  on_every_tile_unit([&] {
    const std::vector<float> one = problem.run(1);
    REQUIRE(largest_difference(one, expected) < kTolerance);
    REQUIRE(largest_difference(one, expected) > 1e-5);  // tiles did it
    REQUIRE(same_bits(problem.run(3), one));
  });
}

}  // namespace

TEST_CASE("attention on tiles reads prompts over every type of cache") {
  for (const auto& [dtype, head_dim, group] :
       {std::tuple<DType, int64_t, int64_t>{DType::kF16, 64, 8},
        {DType::kF32, 32, 1},
        {DType::kBF16, 33, 3},
        {DType::kF16, 80, 7},
        {DType::kQ8_0, 128, 4},
        {DType::kF16, 160, 2}}) {
    for (const auto& [window, cap] : {std::pair{0, 0.0f}, {100, 0.0f}, {100, 0.7f}}) {
      check({.batch = 2,
             .tokens = 45,
             .heads = 2 * group,
             .kv_heads = 2,
             .head_dim = head_dim,
             .start = 170,
             .window = window,
             .dtype = dtype,
             .cap = cap,
             .sinks = window != 0});
    }
  }
  for (const int64_t chunk : {40, 60, 128, 200}) {
    check({.batch = 1,
           .tokens = 90,
           .heads = 4,
           .kv_heads = 2,
           .head_dim = 64,
           .start = 150,
           .chunk = chunk,
           .dtype = DType::kF16});
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

TEST_CASE("attention on tiles takes positions in packed by packed and strip by strip") {
  // More positions than are packed at once, and more queries than share them.
  check({.batch = 1,
         .tokens = 17,
         .heads = 2,
         .kv_heads = 1,
         .head_dim = 32,
         .start = 1100,
         .dtype = DType::kF16});
  check({.batch = 1,
         .tokens = 150,
         .heads = 8,
         .kv_heads = 1,
         .head_dim = 32,
         .start = 0,
         .dtype = DType::kF16});
  check({.batch = 3,
         .tokens = 19,
         .heads = 4,
         .kv_heads = 2,
         .head_dim = 48,
         .start = 700,
         .dtype = DType::kF16,
         .starts = {700, 0, 260},
         .slots = {2, 0, 1}});
}

TEST_CASE("attention on tiles gives each query the same bits whatever is beside it") {
  Philox random(13);
  Problem whole{.batch = 1,
                .tokens = 160,
                .heads = 6,
                .kv_heads = 2,
                .head_dim = 64,
                .start = 0,
                .window = 90,
                .dtype = DType::kF16,
                .bf16 = true};
  whole.fill(random);
  const int64_t row = whole.heads * whole.head_dim, first = 83;
  const Problem rest = whole.from_token(first);
  on_every_tile_unit([&] {
    const std::vector<float> together = whole.run(2);
    CHECK(same_bits(rest.run(1), {together.begin() + first * row, together.end()}));
  });
}

// Scores that grow from position to position by more and by less than the softmax tolerates.
TEST_CASE("attention on tiles copes with scores of all sizes") {
  for (const float growth : {0.01f, 0.05f, 1.0f, -0.05f}) {
    Problem problem{.batch = 1,
                    .tokens = 40,
                    .heads = 2,
                    .kv_heads = 2,
                    .head_dim = 32,
                    .start = 260,
                    .dtype = DType::kF32,
                    .bf16 = true};
    Philox random(5);
    problem.fill(random);
    // Rounding changes nothing of queries and keys.
    for (float& x : problem.q) x = 1;
    for (float& x : problem.v_values) x *= 0.5f;
    for (size_t i = 0; i < problem.k_values.size(); ++i) {
      const auto position = static_cast<int64_t>(i) / 32 % problem.capacity;
      problem.k_values[i] =
          to_float(to_bf16(growth * static_cast<float>(position) * std::sqrt(1 / 32.0f)));
    }
    problem.k = problem.store(problem.k_values);
    problem.v = problem.store(problem.v_values);
    const std::vector<double> expected = problem.expected();
    INFO("growth " << growth);
    on_every_tile_unit([&] { CHECK(largest_difference(problem.run(2), expected) < kTolerance); });
  }
}

TEST_CASE("attention on tiles shows what is no number") {
  Philox random(17);
  Problem problem{.batch = 1,
                  .tokens = 40,
                  .heads = 2,
                  .kv_heads = 2,
                  .head_dim = 64,
                  .start = 100,
                  .dtype = DType::kBF16,
                  .bf16 = true};
  problem.fill(random);
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const auto& [values, wrong] : {std::pair{&Problem::k_values, kNan},
                                      {&Problem::v_values, kNan},
                                      {&Problem::v_values, kInfinity}}) {
    const Problem spoilt = problem.spoilt(values, 3 * 64 + 5, wrong);
    on_every_tile_unit([&] {
      const std::vector<float> out = spoilt.run(2);
      for (int64_t t = 0; t < spoilt.tokens; ++t) {
        REQUIRE_FALSE(std::isfinite(out[static_cast<size_t>(t * 128 + 5)]));
        REQUIRE(std::isfinite(out[static_cast<size_t>(t * 128 + 64)]));
      }
    });
  }
}

TEST_CASE("attention of prompts rounds to bfloat16 only if it may") {
  Problem problem{.batch = 1,
                  .tokens = 40,
                  .heads = 2,
                  .kv_heads = 2,
                  .head_dim = 64,
                  .start = 0,
                  .dtype = DType::kF16};
  Philox random(3);
  problem.fill(random);
  const TileUnitScope scope(&kEmulatedTileUnit);
  const std::vector<float> fine = problem.run(1);
  CHECK(largest_difference(fine, problem.expected()) < 1e-3);
  problem.bf16 = true;
  CHECK_FALSE(same_bits(problem.run(1), fine));
  const ExactProductsScope exact;
  CHECK(largest_difference(problem.run(1), problem.expected()) < 1e-5);
}
