#include "lib/kernels/delta_rule.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/reference.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/testing/random_floats.h"
#include "lib/tensor/allocator.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

using Floats = std::vector<float>;

// Inputs inside wider rows, with memory of more rows than the batch has.
struct Problem {
  Problem(int64_t tokens_, int64_t key_heads_, int64_t group, int64_t key_dim_, int64_t value_dim_,
          Philox& random)
      : tokens(tokens_),
        key_heads(key_heads_),
        heads(key_heads_ * group),
        key_dim(key_dim_),
        value_dim(value_dim_),
        key_stride(key_dim_ + 3),
        value_stride(value_dim_ + 1),
        q(random_floats(random, kBatch * tokens * key_heads * key_stride)),
        k(random_floats(random, kBatch * tokens * key_heads * key_stride,
                        1 / std::sqrt(static_cast<double>(key_dim)))),
        v(random_floats(random, kBatch * tokens * heads * value_stride)),
        before(random_floats(random, 3 * heads * key_dim * value_dim)) {
    for (int64_t i = 0; i < kBatch * tokens * heads; ++i) {
      beta.push_back(static_cast<float>(random.uniform()));
    }
    for (int64_t i = 0; i < kBatch * tokens * heads * key_dim; ++i) {
      decay.push_back(static_cast<float>(random.uniform()));
    }
  }

  static constexpr int64_t kBatch = 2;
  int64_t tokens, key_heads, heads, key_dim, value_dim, key_stride, value_stride;
  bool tiled = false, corrects = true, by_rows = false;
  Floats q, k, v, before, decay, beta;
};

struct Results {
  Floats out, after;
};

// Tokens [first, first + count), from the states `before` if there are some.
Results run(const Problem& p, int threads, int64_t first, int64_t count, const float* before,
            const int32_t* position, const int32_t* slots) {
  ThreadPool pool(threads);
  Results results{Floats(static_cast<size_t>(p.kBatch * count * p.heads * p.value_dim), NAN),
                  Floats(static_cast<size_t>(p.kBatch * p.heads * p.key_dim * p.value_dim), NAN)};
  const Buffer workspace = allocate(delta_rule_workspace_bytes(p.key_dim, threads));
  const auto rows = [&](const Floats& x, int64_t heads, int64_t stride) -> DeltaRows {
    return {x.data() + first * heads * stride, p.tokens * heads * stride, heads * stride, stride};
  };
  delta_rule(pool, {.batch = p.kBatch,
                    .tokens = count,
                    .key_heads = p.key_heads,
                    .heads = p.heads,
                    .key_dim = p.key_dim,
                    .value_dim = p.value_dim,
                    .tiled = p.tiled,
                    .corrects = p.corrects,
                    .by_rows = p.by_rows,
                    .q = rows(p.q, p.key_heads, p.key_stride),
                    .k = rows(p.k, p.key_heads, p.key_stride),
                    .v = rows(p.v, p.heads, p.value_stride),
                    .decay = rows(p.decay, p.heads, p.by_rows ? p.key_dim : 1),
                    .beta = rows(p.beta, p.heads, 1),
                    .before = before,
                    .position = position,
                    .position_stride = 1,
                    .slots = slots,
                    .out = results.out.data(),
                    .after = results.after.data(),
                    .workspace = workspace.data});
  return results;
}

void check_close(float got, double want) {
  if (std::abs(got - want) > 2e-5 * (1 + std::abs(want))) REQUIRE(got == want);
}

void check_formula(const Problem& p, const Results& got, const int32_t* position,
                   const int32_t* slots) {
  for (int64_t b = 0; b < p.kBatch; ++b) {
    for (int64_t h = 0; h < p.heads; ++h) {
      const int64_t matrix = p.key_dim * p.value_dim;
      std::vector<double> state(static_cast<size_t>(matrix));
      if (position != nullptr && position[b] > 0) {
        const float* row = p.before.data() + (slots[b] * p.heads + h) * matrix;
        std::copy_n(row, matrix, state.begin());
      }
      const int64_t key_head = p.tiled ? h % p.key_heads : h / (p.heads / p.key_heads);
      for (int64_t t = 0; t < p.tokens; ++t) {
        const int64_t token = b * p.tokens + t, at = token * p.heads + h;
        const int64_t key = (token * p.key_heads + key_head) * p.key_stride;
        const auto out = reference::delta_rule(
            state, p.q.data() + key, p.k.data() + key, p.v.data() + at * p.value_stride,
            p.decay.data() + at * (p.by_rows ? p.key_dim : 1), p.by_rows,
            p.beta[static_cast<size_t>(at)], p.key_dim, p.value_dim, p.corrects);
        for (int64_t j = 0; j < p.value_dim; ++j) {
          check_close(got.out[static_cast<size_t>(at * p.value_dim + j)],
                      out[static_cast<size_t>(j)]);
        }
      }
      for (int64_t i = 0; i < matrix; ++i) {
        check_close(got.after[static_cast<size_t>((b * p.heads + h) * matrix + i)],
                    state[static_cast<size_t>(i)]);
      }
    }
  }
}

bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("the gated delta rule follows the formula, whatever the sizes and threads") {
  const int32_t position[] = {7, 0}, slots[] = {2, 0};
  on_every_target([&] {
    Philox random(3);
    for (const int64_t value_dim : {1, 7, 16, 33, 64, 70, 128}) {
      for (const int64_t key_dim : {1, 2, 5, 32}) {
        for (const int64_t group : {1, 3}) {
          CAPTURE(value_dim, key_dim, group);
          Problem p(4, 2, group, key_dim, value_dim, random);
          p.tiled = key_dim == 5;
          p.corrects = key_dim != 2 && (key_dim != 5 || group != 3);
          p.by_rows = (value_dim + key_dim + group) % 2 == 0;
          const Results from_zeros = run(p, 1, 0, 4, nullptr, nullptr, nullptr);
          check_formula(p, from_zeros, nullptr, nullptr);
          const Results from_states = run(p, 1, 0, 4, p.before.data(), position, slots);
          check_formula(p, from_states, position, slots);
          const Results divided = run(p, 3, 0, 4, p.before.data(), position, slots);
          REQUIRE(same_bits(divided.out, from_states.out));
          REQUIRE(same_bits(divided.after, from_states.after));
        }
      }
    }
  });
}

TEST_CASE("tokens of the gated delta rule get the same bits alone and together") {
  on_every_target([] {
    Philox random(4);
    Problem p(9, 2, 2, 24, 40, random);
    p.corrects = GENERATE(true, false);
    p.by_rows = GENERATE(true, false);
    const Results all = run(p, 1, 0, 9, nullptr, nullptr, nullptr);
    Floats states(static_cast<size_t>(p.kBatch * p.heads * p.key_dim * p.value_dim), NAN);
    for (int32_t t = 0; t < 9; ++t) {
      const int32_t position[] = {t, t};
      const Results one = run(p, 2, t, 1, states.data(), position, nullptr);
      states = one.after;
      const size_t row = static_cast<size_t>(p.heads * p.value_dim);
      for (size_t b = 0; b < 2; ++b) {
        const float* want = all.out.data() + (b * 9 + static_cast<size_t>(t)) * row;
        REQUIRE(std::memcmp(one.out.data() + b * row, want, row * sizeof(float)) == 0);
      }
    }
    REQUIRE(same_bits(states, all.after));
  });
}
