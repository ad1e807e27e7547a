#include "lib/kernels/attention_backward.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/reference.h"
#include "lib/kernels/simd.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/testing/random_floats.h"
#include "lib/kernels/testing/random_weights.h"
#include "lib/kernels/tiles/amx_emulation.h"
#include "lib/kernels/tiles/bf16_dot.h"
#include "lib/kernels/tiles/bf16_panels.h"

using namespace lumen;
using namespace lumen::kernels;

namespace {

// Every result of both passes, one after the other where all are compared.
template <class Number>
struct Results {
  std::vector<Number> out, lse, dq, dk, dv;
};

struct Problem {
  int64_t batch, tokens, positions, heads, kv_heads, head_dim;
  int64_t start = 0;
  bool causal = true;
  int64_t window = 0;
  std::vector<int32_t> segments = {};  // of one sample; all are alike
  double dropout = 0;
  float cap = 0, max_bias = 0;

  std::vector<float> q = {}, k = {}, v = {}, dout = {}, dlse = {};
  // q, k, v and dout are given as bfloat16, which they must be, and dq, dk and dv are made so.
  bool narrow = false;

  int64_t queries() const { return batch * tokens * heads * head_dim; }
  int64_t keys() const { return batch * positions * kv_heads * head_dim; }
  int64_t rows() const { return batch * heads * tokens; }
  int64_t group() const { return heads / kv_heads; }
  float scale() const { return 1.3f / std::sqrt(static_cast<float>(head_dim)); }
  int64_t query(int64_t b, int64_t t, int64_t h) const {
    return ((b * tokens + t) * heads + h) * head_dim;
  }
  int64_t key(int64_t b, int64_t p, int64_t h) const {
    return ((b * positions + p) * kv_heads + h / group()) * head_dim;
  }
  int64_t row(int64_t b, int64_t t, int64_t h) const { return (b * heads + h) * tokens + t; }

  void fill() {
    Philox random(5);
    q = random_floats(random, queries());
    k = random_floats(random, keys());
    v = random_floats(random, keys());
    dout = random_floats(random, queries());
    dlse = random_floats(random, rows());
  }

  std::string describe() const {
    return "tokens " + std::to_string(tokens) + " positions " + std::to_string(positions) +
           " heads " + std::to_string(heads) + "/" + std::to_string(kv_heads) + " head_dim " +
           std::to_string(head_dim) + " causal " + std::to_string(causal) + " window " +
           std::to_string(window) + " segments " + std::to_string(segments.size()) + " dropout " +
           std::to_string(dropout) + " cap " + std::to_string(cap) + " max_bias " +
           std::to_string(max_bias);
  }

  bool sees(int64_t t, int64_t p) const {
    if (!segments.empty() && segments[size_t(t)] != segments[size_t(p)]) return false;
    return !causal || (p <= start + t && (window == 0 || p > start + t - window));
  }

  AttentionShape shape(bool bf16) const {
    AttentionShape s{.batch = batch,
                     .tokens = tokens,
                     .positions = positions,
                     .heads = heads,
                     .kv_heads = kv_heads,
                     .head_dim = head_dim,
                     .start = start,
                     .causal = causal,
                     .window = window,
                     .scale = scale(),
                     .cap = cap,
                     .max_bias = max_bias,
                     .q = {},
                     .k = {},
                     .v = {},
                     .segments = nullptr,
                     .segment_stride = 0,
                     .dropout = dropout,
                     .key = {11, 22, 33},
                     .bf16 = bf16};
    const int64_t query_row = heads * head_dim, key_row = kv_heads * head_dim;
    s.q = {q.data(), tokens * query_row, query_row, head_dim};
    s.k = {k.data(), positions * key_row, key_row, head_dim};
    s.v = {v.data(), positions * key_row, key_row, head_dim};
    if (!segments.empty()) s.segments = segments.data();
    return s;
  }

  // x, whose numbers are stored in `numbers`, if they are to be narrow.
  void store(HeadRows& x, std::vector<uint16_t>& numbers, const std::vector<float>& values) const {
    if (!narrow) return;
    numbers.resize(values.size());
    round_row(values.data(), static_cast<int64_t>(values.size()), numbers.data());
    x.data = reinterpret_cast<const float*>(numbers.data());
    x.bf16 = true;
  }

  // The bfloat16 numbers that are in the first half of `values`, behind which nothing was written.
  static void widen(std::vector<float>& values) {
    std::vector<uint16_t> numbers(2 * values.size());
    std::memcpy(numbers.data(), values.data(), 4 * values.size());
    for (size_t i = values.size() / 2 + 1; i < values.size(); ++i) REQUIRE(values[i] == -77.0f);
    for (size_t i = 0; i < values.size(); ++i) {
      const uint32_t bits = uint32_t{numbers[i]} << 16;
      std::memcpy(&values[i], &bits, 4);
    }
  }

  Results<float> run(int threads, bool bf16) const {
    AttentionShape s = shape(bf16);
    HeadRows dout_rows = {dout.data(), s.q.batch_stride, s.q.row_stride, s.q.head_stride};
    std::vector<uint16_t> numbers[4];
    store(s.q, numbers[0], q);
    store(s.k, numbers[1], k);
    store(s.v, numbers[2], v);
    store(dout_rows, numbers[3], dout);
    ThreadPool pool(threads);
    const size_t bytes = attention_training_workspace_bytes(s, threads);
    // Garbage in the workspace must not matter.
    std::vector<std::byte> memory(bytes + 64, std::byte{0xFF});
    Results<float> r;
    for (auto [values, count] : {std::pair{&r.out, queries()},
                                 {&r.lse, rows()},
                                 {&r.dq, queries()},
                                 {&r.dk, keys()},
                                 {&r.dv, keys()}}) {
      values->assign(static_cast<size_t>(count), -77.0f);
    }
    attention_forward(pool, s, r.out.data(), r.lse.data(), align_64(memory));
    std::fill(memory.begin(), memory.end(), std::byte{0xFF});
    const AttentionGradients gradients = {.out = r.out.data(),
                                          .lse = r.lse.data(),
                                          .dout = dout_rows,
                                          .dlse = dlse.data(),
                                          .dlse_batch_stride = heads * tokens,
                                          .dlse_head_stride = tokens,
                                          .dq = r.dq.data(),
                                          .dk = r.dk.data(),
                                          .dv = r.dv.data(),
                                          .bf16 = narrow};
    attention_backward(pool, s, gradients, align_64(memory));
    if (narrow) {
      for (auto* values : {&r.dq, &r.dk, &r.dv}) widen(*values);
    }
    return r;
  }

  // The factor of dropout for every query row and position.
  std::vector<float> factors() const {
    const int64_t columns = tokens * group();
    const int64_t column_groups = (columns + 15) / 16, key_groups = (positions + 3) / 4;
    std::vector<float> all(static_cast<size_t>(batch * kv_heads * column_groups * key_groups * 64),
                           1.0f);
    ThreadPool pool(1);
    const RandomKey random = shape(false).key;
    kernels::dropout(pool, random, static_cast<int64_t>(all.size()), dropout, all.data(),
                     all.data());
    std::vector<float> ordered;
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t t = 0; t < tokens; ++t) {
          const int64_t c = t * group() + h % group();
          for (int64_t p = 0; p < positions; ++p) {
            const int64_t tile =
                ((b * kv_heads + h / group()) * column_groups + c / 16) * key_groups + p / 4;
            ordered.push_back(all[static_cast<size_t>(tile * 64 + p % 4 * 16 + c % 16)]);
          }
        }
      }
    }
    return ordered;
  }

  // The formulas of attention_backward.h in double.
  Results<double> expected() const {
    Results<double> r{std::vector<double>(q.size()), std::vector<double>(dlse.size()),
                      std::vector<double>(q.size()), std::vector<double>(k.size()),
                      std::vector<double>(v.size())};
    const std::vector<float> f = factors();
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t t = 0; t < tokens; ++t) expect_row(b, t, h, f, r);
      }
    }
    return r;
  }

  void expect_row(int64_t b, int64_t t, int64_t h, const std::vector<float>& f,
                  Results<double>& r) const {
    const auto at = static_cast<size_t>(query(b, t, h)), row = size_t(this->row(b, t, h));
    const float* const factor = &f[row * size_t(positions)];
    std::vector<double> weight(static_cast<size_t>(positions)), dweight(weight.size());
    std::vector<double> slope(weight.size(), 1.0);
    double sum = 0, delta = -dlse[row];
    for (int64_t p = 0; p < positions; ++p) {
      const auto from = static_cast<size_t>(key(b, p, h));
      double score = 0;
      for (size_t i = 0; i < size_t(head_dim); ++i) {
        score += double{q[at + i]} * k[from + i];
        dweight[size_t(p)] += double{dout[at + i]} * v[from + i];
      }
      dweight[size_t(p)] *= factor[p];
      score = reference::soft_cap(double{scale()} * score, cap);
      if (cap != 0) slope[size_t(p)] = 1 - std::pow(score / cap, 2);
      if (max_bias != 0) {
        score += reference::bias_slope(heads, max_bias, h) * double(p - start - t);
      }
      weight[size_t(p)] = sees(t, p) ? std::exp(score) : 0;
      sum += weight[size_t(p)];
    }
    r.lse[row] = std::log(sum);
    for (int64_t p = 0; p < positions; ++p) {
      if (!sees(t, p)) continue;
      weight[size_t(p)] /= sum;
      delta += weight[size_t(p)] * dweight[size_t(p)];
    }
    for (int64_t p = 0; p < positions; ++p) {
      if (!sees(t, p)) continue;
      const auto from = static_cast<size_t>(key(b, p, h));
      const double w = weight[size_t(p)];
      const double ds = w * (dweight[size_t(p)] - delta) * slope[size_t(p)] * scale();
      for (size_t i = 0; i < size_t(head_dim); ++i) {
        r.out[at + i] += w * factor[p] * v[from + i];
        r.dq[at + i] += ds * k[from + i];
        r.dk[from + i] += ds * q[at + i];
        r.dv[from + i] += w * factor[p] * dout[at + i];
      }
    }
  }
};

// ‖a − b‖ / ‖b‖, where the numbers of b are finite; −inf must be −inf.
double distance(const std::vector<float>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double difference = 0, whole = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isinf(b[i])) {
      CHECK(a[i] == b[i]);
      continue;
    }
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    whole += b[i] * b[i];
  }
  return std::sqrt(difference / whole);
}

bool same_bits(const Results<float>& a, const Results<float>& b) {
  auto same = [](const std::vector<float>& x, const std::vector<float>& y) {
    return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
  };
  return same(a.out, b.out) && same(a.lse, b.lse) && same(a.dq, b.dq) && same(a.dk, b.dk) &&
         same(a.dv, b.dv);
}

void check_distances(const Results<float>& got, const Results<double>& want, double limit) {
  CHECK(distance(got.out, want.out) < limit);
  CHECK(distance(got.lse, want.lse) < limit);
  CHECK(distance(got.dq, want.dq) < limit);
  CHECK(distance(got.dk, want.dk) < limit);
  CHECK(distance(got.dv, want.dv) < limit);
}

// Runs body(bf16) with float32 on every target, with numbers of two parts and of one on every tile
// unit, and with bfloat16 in vectors where there are such.
template <class Body>
void with_all_products(const Body& body) {
  on_every_target([&] {
    const ExactProductsScope exact;
    body(false);
  });
  on_every_tile_unit([&] {
    for (const bool bf16 : {false, true}) body(bf16);
  });
  if (!has_bf16_dot()) return;
  INFO("bfloat16 in vectors");
  const TileUnitScope scope(native_dot_unit());
  body(true);
}

void check(Problem problem) {
  problem.fill();
  INFO(problem.describe());
  const Results<double> want = problem.expected();
  with_all_products([&](bool bf16) {
    const Results<float> got = problem.run(1, bf16);
    check_distances(got, want, bf16 ? 8e-3 : 2e-5);
    CHECK(same_bits(problem.run(3, bf16), got));
  });
}

std::vector<int32_t> documents(int64_t tokens, int64_t length) {
  std::vector<int32_t> of(static_cast<size_t>(tokens));
  for (size_t i = 0; i < of.size(); ++i) of[i] = static_cast<int32_t>(i) / int32_t(length);
  return of;
}

}  // namespace

TEST_CASE("attention for training and its gradients equal their formulas on tiles too") {
  check({.batch = 2, .tokens = 70, .positions = 70, .heads = 2, .kv_heads = 2, .head_dim = 32});
  for (const int64_t head_dim : {1, 5, 16, 24, 33, 48, 64, 80}) {
    check({.batch = 1,
           .tokens = 67,
           .positions = 67,
           .heads = 2,
           .kv_heads = 2,
           .head_dim = head_dim});
  }
  for (const int64_t tokens : {1, 16, 33, 79, 96, 127, 130, 270}) {
    check({.batch = 1,
           .tokens = tokens,
           .positions = tokens + 55,
           .heads = 2,
           .kv_heads = 1,
           .head_dim = 24,
           .start = 5});
  }
}

TEST_CASE("attention for training on tiles sees what it should, and drops") {
  struct Case {
    bool causal;
    int64_t window, document;
    double dropout;
    float cap = 0, max_bias = 0;
  };
  for (const Case& test : {Case{true, 1, 0, 0},
                           {true, 40, 0, 0.3},
                           {true, 0, 13, 0.3},
                           {true, 40, 70, 0},
                           {false, 0, 0, 0.3},
                           {false, 0, 70, 0},
                           {true, 0, 0, 0, 1.5f},
                           {true, 40, 70, 0.3, 0.7f},
                           {false, 0, 13, 0, 0.7f},
                           {true, 0, 0, 0, 0, 8},
                           {true, 40, 13, 0.3, 0, 3}}) {
    Problem problem = {
        .batch = 2, .tokens = 140, .positions = 140, .heads = 3, .kv_heads = 1, .head_dim = 8};
    problem.causal = test.causal;
    problem.window = test.window;
    if (test.document > 0) problem.segments = documents(140, test.document);
    problem.dropout = test.dropout;
    problem.cap = test.cap;
    problem.max_bias = test.max_bias;
    check(problem);
  }
}

TEST_CASE("attention for training: what a query does not see has no part in it") {
  Problem problem = {
      .batch = 1, .tokens = 150, .positions = 150, .heads = 2, .kv_heads = 2, .head_dim = 16};
  problem.segments = documents(150, 75);
  problem.fill();
  const auto half = static_cast<size_t>(problem.queries() / 2);
  Problem other = problem;
  for (auto* values : {&other.q, &other.k, &other.v, &other.dout}) {
    for (size_t i = half; i < values->size(); ++i) (*values)[i] *= -3;
  }
  Problem alone = problem;
  std::fill(alone.dout.begin(), alone.dout.begin() + int64_t(half), 0.0f);
  for (int64_t h = 0; h < 2; ++h) {
    std::fill_n(alone.dlse.begin() + h * 150, 75, 0.0f);
  }
  with_all_products([&](bool bf16) {
    const Results<float> a = problem.run(2, bf16), b = other.run(2, bf16);
    for (auto part :
         {&Results<float>::out, &Results<float>::dq, &Results<float>::dk, &Results<float>::dv}) {
      CHECK(std::equal((a.*part).begin(), (a.*part).begin() + int64_t(half), (b.*part).begin()));
    }
    const Results<float> c = alone.run(2, bf16);
    for (auto part : {&Results<float>::dq, &Results<float>::dk, &Results<float>::dv}) {
      CHECK(std::all_of((c.*part).begin(), (c.*part).begin() + int64_t(half),
                        [](float x) { return x == 0; }));
    }
  });
}

// Products of parts may make a NaN of an infinity, but nothing finite.
TEST_CASE("attention for training shows what is no number, in whatever it multiplies") {
  Problem problem = {
      .batch = 1, .tokens = 70, .positions = 70, .heads = 2, .kv_heads = 2, .head_dim = 24};
  problem.fill();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const auto values : {&Problem::q, &Problem::k, &Problem::v, &Problem::dout}) {
    for (const float wrong : {kNan, kInfinity, -kInfinity}) {
      Problem spoilt = problem;
      (spoilt.*values)[20 * 48 + 3] = wrong;
      const Results<double> want = spoilt.expected();
      with_all_products([&](bool bf16) {
        const Results<float> got = spoilt.run(2, bf16);
        auto shows = [](const std::vector<float>& x, const std::vector<double>& y) {
          for (size_t i = 0; i < x.size(); ++i) {
            if (!std::isfinite(y[i]) && std::isfinite(x[i])) return false;
          }
          return true;
        };
        INFO(wrong << " in input "
                   << (values == &Problem::q   ? 0
                       : values == &Problem::k ? 1
                       : values == &Problem::v ? 2
                                               : 3));
        CHECK(shows(got.out, want.out));
        CHECK(shows(got.dq, want.dq));
        CHECK(shows(got.dk, want.dk));
        CHECK(shows(got.dv, want.dv));
        // The other head is not concerned.
        CHECK(std::isfinite(got.out[24]));
        CHECK(std::isfinite(got.dv[24]));
      });
    }
  }
}

TEST_CASE("attention for training gives of bfloat16 numbers what it gives of the same floats") {
  const TileUnitScope scope(&kEmulatedTileUnit);
  on_every_target([] {
    for (const auto& [head_dim, cap] : {std::pair{5, 0.0f}, {32, 0.0f}, {48, 1.0f}}) {
      Problem problem = {.batch = 2,
                         .tokens = 40,
                         .positions = 40,
                         .heads = 4,
                         .kv_heads = 2,
                         .head_dim = head_dim};
      problem.cap = cap;
      problem.fill();
      for (auto* values : {&problem.q, &problem.k, &problem.v, &problem.dout}) {
        round_to_bf16(values->data(), static_cast<int64_t>(values->size()));
      }
      REQUIRE(attention_takes_bf16(problem.shape(true)));
      Results<float> expected = problem.run(1, true);
      for (auto* values : {&expected.dq, &expected.dk, &expected.dv}) {
        round_to_bf16(values->data(), static_cast<int64_t>(values->size()));
      }
      problem.narrow = true;
      CHECK(same_bits(problem.run(1, true), expected));
      CHECK(same_bits(problem.run(3, true), expected));
    }
  });
  const Problem small = {
      .batch = 1, .tokens = 31, .positions = 64, .heads = 2, .kv_heads = 2, .head_dim = 32};
  CHECK_FALSE(attention_takes_bf16(small.shape(true)));
}

TEST_CASE("attention for training rounds to bfloat16 only if it may") {
  Problem problem = {
      .batch = 1, .tokens = 64, .positions = 64, .heads = 2, .kv_heads = 2, .head_dim = 32};
  problem.fill();
  const Results<double> want = problem.expected();
  const TileUnitScope scope(&kEmulatedTileUnit);
  CHECK(distance(problem.run(1, false).out, want.out) > 2e-7);
  CHECK(distance(problem.run(1, true).out, want.out) > 1e-4);
  const ExactProductsScope exact;
  check_distances(problem.run(1, false), want, 2e-6);
  CHECK(same_bits(problem.run(1, true), problem.run(1, false)));
}
