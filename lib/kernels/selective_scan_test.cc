#include "lib/kernels/selective_scan.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/testing/random_floats.h"
#include "lib/tensor/allocator.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

using Floats = std::vector<float>;

// Inputs inside wider rows, with memory of more rows than the batch has.
struct ScanProblem {
  ScanProblem(int64_t tokens_, int64_t channels_, int64_t state_, Philox& random)
      : tokens(tokens_),
        channels(channels_),
        state(state_),
        u(random_floats(random, kBatch * tokens * (channels + 3))),
        time(random_floats(random, kBatch * tokens * (channels + 3))),
        b(random_floats(random, kBatch * tokens * (state + 1))),
        c(random_floats(random, kBatch * tokens * (state + 1))),
        rates(random_floats(random, state * channels)),
        before(random_floats(random, 3 * state * channels)) {
    for (float& x : time) x = std::abs(x);
    for (float& x : rates) x = -std::abs(x);
    time[0] = 1e30f;  // forgets all
  }

  static constexpr int64_t kBatch = 2;
  int64_t tokens, channels, state;
  Floats u, time, b, c, rates, before;
};

struct ScanResults {
  Floats out, after;
};

// Tokens [first, first + count), from the states `before` if there are some.
ScanResults run_scan(const ScanProblem& p, int threads, int64_t first, int64_t count,
                     const float* before, const int32_t* position, const int32_t* slots) {
  ThreadPool pool(threads);
  ScanResults results{Floats(static_cast<size_t>(p.kBatch * count * p.channels), NAN),
                      Floats(static_cast<size_t>(p.kBatch * p.channels * p.state), NAN)};
  const Buffer workspace = allocate(selective_scan_workspace_bytes(p.state, threads));
  const auto rows = [&](const Floats& x, int64_t stride) -> ScanRows {
    return {x.data() + first * stride, p.tokens * stride, stride};
  };
  selective_scan(pool, {.batch = p.kBatch,
                        .tokens = count,
                        .channels = p.channels,
                        .state = p.state,
                        .u = rows(p.u, p.channels + 3),
                        .time = rows(p.time, p.channels + 3),
                        .b = rows(p.b, p.state + 1),
                        .c = rows(p.c, p.state + 1),
                        .rates = p.rates.data(),
                        .before = before,
                        .position = position,
                        .position_stride = 1,
                        .slots = slots,
                        .out = results.out.data(),
                        .after = results.after.data(),
                        .workspace = workspace.data});
  return results;
}

void check_near(float got, double want) {
  if (std::abs(got - want) > 2e-5 * (1 + std::abs(want))) REQUIRE(got == want);
}

void check_scan(const ScanProblem& p, const ScanResults& got, const int32_t* position,
                const int32_t* slots) {
  const auto at = [](const Floats& x, int64_t i) { return double(x[static_cast<size_t>(i)]); };
  for (int64_t b = 0; b < p.kBatch; ++b) {
    for (int64_t d = 0; d < p.channels; ++d) {
      std::vector<double> kept(static_cast<size_t>(p.state));
      for (int64_t n = 0; n < p.state; ++n) {
        if (position == nullptr || position[b] == 0) continue;
        kept[static_cast<size_t>(n)] = at(p.before, (slots[b] * p.state + n) * p.channels + d);
      }
      for (int64_t t = 0; t < p.tokens; ++t) {
        const int64_t token = b * p.tokens + t, row = token * (p.channels + 3) + d;
        double out = 0;
        for (int64_t n = 0; n < p.state; ++n) {
          double& s = kept[static_cast<size_t>(n)];
          s = std::exp(at(p.time, row) * at(p.rates, n * p.channels + d)) * s +
              at(p.u, row) * at(p.b, token * (p.state + 1) + n);
          out += s * at(p.c, token * (p.state + 1) + n);
        }
        check_near(got.out[static_cast<size_t>(token * p.channels + d)], out);
      }
      for (int64_t n = 0; n < p.state; ++n) {
        check_near(got.after[static_cast<size_t>((b * p.state + n) * p.channels + d)],
                   kept[static_cast<size_t>(n)]);
      }
    }
  }
}

bool same(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("the selective scan follows the formula, whatever the sizes and threads") {
  const int32_t position[] = {7, 0}, slots[] = {2, 0};
  on_every_target([&] {
    Philox random(3);
    for (const int64_t channels : {1, 7, 16, 33, 64, 70}) {
      for (const int64_t state : {1, 2, 5, 16}) {
        CAPTURE(channels, state);
        const ScanProblem p(4, channels, state, random);
        check_scan(p, run_scan(p, 1, 0, 4, nullptr, nullptr, nullptr), nullptr, nullptr);
        const ScanResults from_states = run_scan(p, 1, 0, 4, p.before.data(), position, slots);
        check_scan(p, from_states, position, slots);
        const ScanResults divided = run_scan(p, 3, 0, 4, p.before.data(), position, slots);
        REQUIRE(same(divided.out, from_states.out));
        REQUIRE(same(divided.after, from_states.after));
      }
    }
  });
}

TEST_CASE("tokens of the selective scan get the same bits alone and together") {
  on_every_target([] {
    Philox random(4);
    const ScanProblem p(9, 40, 6, random);
    const ScanResults all = run_scan(p, 1, 0, 9, nullptr, nullptr, nullptr);
    Floats states(static_cast<size_t>(p.kBatch * p.state * p.channels), NAN);
    for (int32_t t = 0; t < 9; ++t) {
      const int32_t position[] = {t, t};
      const ScanResults one = run_scan(p, 2, t, 1, states.data(), position, nullptr);
      states = one.after;
      const auto row = static_cast<size_t>(p.channels);
      for (size_t b = 0; b < 2; ++b) {
        const float* want = all.out.data() + (b * 9 + static_cast<size_t>(t)) * row;
        REQUIRE(std::memcmp(one.out.data() + b * row, want, row * sizeof(float)) == 0);
      }
    }
    REQUIRE(same(states, all.after));
  });
}
