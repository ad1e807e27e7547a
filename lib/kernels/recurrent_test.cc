#include "lib/kernels/recurrent.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/testing/every_target.h"
#include "lib/kernels/tiles/amx_emulation.h"
#include "lib/kernels/tiles/bf16_panels.h"
#include "lib/tensor/dtype.h"

using namespace lumen;
using namespace lumen::kernels;

// Values are checked against the operations' meanings (ops/op_test.cc).
namespace {

using Floats = std::vector<float>;

struct Problem {
  RecurrentShape shape;
  Floats projected, w, b, h0, c0, dout, dhn, dcn;
  std::vector<int32_t> lengths;

  Problem(Cell cell, int64_t batch, int64_t hidden, bool reverse, bool with_lengths, Philox& random)
      : shape{cell, batch, /*steps=*/5, hidden, reverse, nullptr} {
    const int64_t width = gates_of(cell) * hidden, rows = batch * shape.steps;
    for (auto [to, count] : {std::pair{&projected, rows * width},
                             {&w, width * hidden},
                             {&b, width},
                             {&h0, batch * hidden},
                             {&c0, batch * hidden},
                             {&dout, rows * hidden},
                             {&dhn, batch * hidden},
                             {&dcn, batch * hidden}}) {
      for (int64_t i = 0; i < count; ++i) to->push_back(0.3f * static_cast<float>(random.normal()));
    }
    for (int64_t i = 0; i < batch; ++i) {
      lengths.push_back(static_cast<int32_t>(random.below(static_cast<uint32_t>(shape.steps) + 1)));
    }
    if (with_lengths) shape.lengths = lengths.data();
  }
};

struct Workspace {
  explicit Workspace(size_t bytes) : memory(bytes / sizeof(Line) + 1) {}
  std::byte* data() { return reinterpret_cast<std::byte*>(memory.data()); }
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> memory;
};

// Where the results of both passes begin in those of `run`.
enum Result { kOut, kHn, kCn, kSaved, kDprojected, kDr, kDh0, kDc0, kResults };

struct Results {
  Floats all;
  int64_t begin[kResults + 1];
  float* of(Result result) { return all.data() + begin[result]; }
  int64_t total() const { return begin[kResults]; }
};

Results no_results(const RecurrentShape& s) {
  const int64_t state = s.batch * s.hidden, rows = s.batch * s.steps;
  const int64_t gates = rows * gates_of(s.cell) * s.hidden;
  const int64_t sizes[] = {rows * s.hidden, state, state, rows * saved_of(s.cell) * s.hidden,
                           gates,           gates, state, state};
  Results results;
  results.begin[0] = 0;
  for (int i = 0; i < kResults; ++i) results.begin[i + 1] = results.begin[i] + sizes[i];
  results.all.resize(static_cast<size_t>(results.total()));
  return results;
}

// How x-part, results, gradients and that of the first result are stored: kRounded as floats that
// are rounded to bfloat16 after each pass, kNarrow as bfloat16 numbers.
enum class Stored { kFloats, kRounded, kNarrow };

std::vector<uint16_t> narrow(const Floats& x) {
  std::vector<uint16_t> numbers(x.size());
  round_row(x.data(), static_cast<int64_t>(x.size()), numbers.data());
  return numbers;
}

Results run(const Problem& p, int threads, Stored stored = Stored::kFloats) {
  ThreadPool pool(threads);
  const RecurrentShape& s = p.shape;
  Results results = no_results(s);
  const bool bf16 = stored == Stored::kNarrow;
  const DType type = bf16 ? DType::kBF16 : DType::kF32;
  const std::vector<uint16_t> projected = narrow(p.projected), dout = narrow(p.dout);
  std::vector<uint16_t> numbers(results.all.size());
  const auto given = [&](const Floats& x, const std::vector<uint16_t>& rounded) {
    return bf16 ? reinterpret_cast<const float*>(rounded.data()) : x.data();
  };
  const auto at = [&](Result result) {
    return bf16 ? reinterpret_cast<float*>(numbers.data() + results.begin[result])
                : results.of(result);
  };
  const auto round = [&](Result first, int64_t end) {
    if (stored == Stored::kRounded) round_to_bf16(results.of(first), end - results.begin[first]);
  };
  Workspace forward(recurrent_forward_workspace_bytes(s));
  recurrent_forward(pool, s,
                    {.projected = given(p.projected, projected),
                     .w = p.w.data(),
                     .b = p.b.data(),
                     .h0 = p.h0.data(),
                     .c0 = p.c0.data(),
                     .out = at(kOut),
                     .hn = at(kHn),
                     .cn = at(kCn),
                     .saved = at(kSaved),
                     .projected_type = type,
                     .results_type = type},
                    forward.data());
  round(kOut, results.begin[kDprojected]);
  Workspace backward(recurrent_backward_workspace_bytes(s));
  recurrent_backward(pool, s,
                     {.w = p.w.data(),
                      .h0 = p.h0.data(),
                      .c0 = p.c0.data(),
                      .out = at(kOut),
                      .saved = at(kSaved),
                      .dout = given(p.dout, dout),
                      .dhn = p.dhn.data(),
                      .dcn = p.dcn.data(),
                      .dprojected = at(kDprojected),
                      .dr = s.cell == Cell::kGru ? at(kDr) : nullptr,
                      .dh0 = at(kDh0),
                      .dc0 = at(kDc0),
                      .results_type = type,
                      .dout_type = type,
                      .gradients_type = type},
                     backward.data());
  round(kDprojected, results.total());
  for (size_t i = 0; bf16 && i < numbers.size(); ++i) {
    results.all[i] = to_float(lumen::bf16{numbers[i]});
  }
  return results;
}

// Runs body() with float32 panels of rounded numbers, on every SIMD target, and on every unit for
// bfloat16 there is.
void on_every_unit(const std::function<void()>& body) {
  on_every_target(body);
  INFO("emulated tiles");
  const TileUnitScope scope(&kEmulatedTileUnit);
  body();
}

double as_bf16(float x) {
  return to_float(to_bf16(x));
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

// h' of `unit` from W h, with h and c before the step.
double next_state(const Problem& p, int64_t row, int64_t unit, const double* product, double h,
                  double c) {
  const int64_t hidden = p.shape.hidden, gates = gates_of(p.shape.cell);
  double x[4], r[4];
  for (int64_t g = 0; g < gates; ++g) {
    x[g] = p.projected[(row * gates + g) * hidden + unit];
    r[g] = product[g] + p.b[g * hidden + unit];
  }
  switch (p.shape.cell) {
    case Cell::kTanh:
      return std::tanh(x[0] + r[0]);
    case Cell::kRelu:
      return std::max(0.0, x[0] + r[0]);
    case Cell::kLstm: {
      const double next = sigmoid(x[1] + r[1]) * c + sigmoid(x[0] + r[0]) * std::tanh(x[2] + r[2]);
      return sigmoid(x[3] + r[3]) * std::tanh(next);
    }
    case Cell::kGru: {
      const double n = std::tanh(x[2] + sigmoid(x[0] + r[0]) * r[2]), z = sigmoid(x[1] + r[1]);
      return (1 - z) * n + z * h;
    }
  }
  return 0;
}

void check_near(double got, double want) {
  if (std::abs(got - want) > 1e-5 * (1 + std::abs(want))) CHECK(got == want);
}

// Every result is checked from what the kernel itself gave before it: a sum that is rounded the
// other way changes what comes after it.
void check_bf16_products(const Problem& p, Results& got) {
  const auto [cell, batch, steps, hidden, reverse, lengths, bf16] = p.shape;
  const int64_t gates = gates_of(cell), width = gates * hidden, saved = saved_of(cell) * hidden;
  std::vector<double> dh0(batch * hidden);
  for (int64_t row = 0; row < batch * steps; ++row) {
    const int64_t sample = row / steps;
    const bool first = row % steps == 0;
    const float* h = first ? &p.h0[sample * hidden] : got.of(kOut) + (row - 1) * hidden;
    const float* dprojected = got.of(kDprojected) + row * width;
    for (int64_t unit = 0; unit < hidden; ++unit) {
      double product[4] = {};
      for (int64_t g = 0; g < gates; ++g) {
        const int64_t at = g * hidden + unit;
        for (int64_t k = 0; k < hidden; ++k) {
          const double w = as_bf16(p.w[at * hidden + k]);
          product[g] += w * as_bf16(h[k]);
          if (first) dh0[sample * hidden + k] += as_bf16(dprojected[at]) * w;
        }
      }
      const double c = cell != Cell::kLstm ? 0
                       : first             ? p.c0[sample * hidden + unit]
                                           : got.of(kSaved)[(row - 1) * saved + 4 * hidden + unit];
      check_near(got.of(kOut)[row * hidden + unit], next_state(p, row, unit, product, h[unit], c));
    }
  }
  // Of a GRU the gradients of W h are other ones, and there is a way past W h.
  if (cell == Cell::kGru) return;
  for (size_t i = 0; i < dh0.size(); ++i) check_near(got.of(kDh0)[i], dh0[i]);
}

}  // namespace

TEST_CASE("recurrent layers give the same bits however threads divide samples or units") {
  // Two threads divide the samples of 16 and the units of 17; three of 1 and 16 the units.
  on_every_unit([] {
    Philox random(7);
    for (Cell cell : {Cell::kTanh, Cell::kRelu, Cell::kLstm, Cell::kGru}) {
      for (int64_t batch : {0, 1, 16, 17}) {
        const int64_t hidden = batch == 16 ? 150 : 37;
        const bool reverse = random.below(2) != 0, lengths = random.below(2) != 0;
        Problem problem(cell, batch, hidden, reverse, lengths, random);
        for (bool bf16 : {false, true}) {
          problem.shape.bf16 = bf16;
          const Floats expected = run(problem, 1).all;
          for (int threads : {2, 3}) {
            const Floats got = run(problem, threads).all;
            CAPTURE(static_cast<int>(cell), batch, threads, bf16);
            REQUIRE(got.size() == expected.size());
            const size_t bytes = got.size() * sizeof(float);
            REQUIRE((bytes == 0 || std::memcmp(got.data(), expected.data(), bytes) == 0));
          }
        }
      }
    }
  });
}

TEST_CASE("products of recurrent layers in bfloat16 multiply rounded numbers") {
  on_every_unit([] {
    Philox random(8);
    for (Cell cell : {Cell::kTanh, Cell::kRelu, Cell::kLstm, Cell::kGru}) {
      for (int64_t batch : {3, 45}) {
        Problem problem(cell, batch, /*hidden=*/batch == 3 ? 70 : 37, false, false, random);
        problem.shape.bf16 = true;
        CAPTURE(static_cast<int>(cell), batch);
        Results got = run(problem, 2);
        check_bf16_products(problem, got);
      }
    }
  });
}

TEST_CASE("products of recurrent layers in two parts are those of float32") {
  Philox random(10);
  for (Cell cell : {Cell::kTanh, Cell::kRelu, Cell::kLstm, Cell::kGru}) {
    Problem problem(cell, /*batch=*/25, /*hidden=*/70, false, false, random);
    for (float& w : problem.w) w *= 0.2f;  // errors do not grow from step to step
    Floats expected;
    {
      const ExactProductsScope exact;
      expected = run(problem, 2).all;
    }
    const TileUnitScope scope(&kEmulatedTileUnit);
    const Floats got = run(problem, 2).all;
    CAPTURE(static_cast<int>(cell));
    CHECK(got != expected);
    for (size_t i = 0; i < got.size(); ++i) {
      if (std::abs(got[i] - expected[i]) > 1e-5) REQUIRE(got[i] == expected[i]);
    }
  }
}

TEST_CASE("recurrent layers read and give bfloat16 as they would round it") {
  on_every_unit([] {
    Philox random(9);
    for (Cell cell : {Cell::kTanh, Cell::kRelu, Cell::kLstm, Cell::kGru}) {
      for (int64_t hidden : {1, 16, 37, 70}) {
        Problem problem(cell, /*batch=*/17, hidden, hidden == 16, hidden == 37, random);
        problem.shape.bf16 = true;
        for (Floats* x : {&problem.projected, &problem.dout}) {
          round_to_bf16(x->data(), static_cast<int64_t>(x->size()));
        }
        CAPTURE(static_cast<int>(cell), hidden);
        const Floats expected = run(problem, 1, Stored::kRounded).all;
        const Floats got = run(problem, 2, Stored::kNarrow).all;
        REQUIRE(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)) == 0);
      }
    }
  });
}
