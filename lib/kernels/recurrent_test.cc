#include "lib/kernels/recurrent.h"

#include <cstring>
#include <vector>

#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/every_target.h"

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

// All results of both passes, one after another.
Floats run(const Problem& p, int threads) {
  ThreadPool pool(threads);
  const RecurrentShape& s = p.shape;
  const int64_t state = s.batch * s.hidden, rows = s.batch * s.steps;
  const int64_t width = gates_of(s.cell) * s.hidden;
  const std::vector<int64_t> sizes = {rows * s.hidden,
                                      state,
                                      state,
                                      rows * saved_of(s.cell) * s.hidden,
                                      rows * width,
                                      width * s.hidden,
                                      width,
                                      state,
                                      state};
  int64_t total = 0;
  for (int64_t size : sizes) total += size;
  Floats results(static_cast<size_t>(total));
  std::vector<float*> at = {results.data()};
  for (int64_t size : sizes) at.push_back(at.back() + size);
  Workspace forward(recurrent_forward_workspace_bytes(s, threads));
  recurrent_forward(pool, s,
                    {.projected = p.projected.data(),
                     .w = p.w.data(),
                     .b = p.b.data(),
                     .h0 = p.h0.data(),
                     .c0 = p.c0.data(),
                     .out = at[0],
                     .hn = at[1],
                     .cn = at[2],
                     .saved = at[3]},
                    forward.data());
  Workspace backward(recurrent_backward_workspace_bytes(s, threads));
  recurrent_backward(pool, s,
                     {.w = p.w.data(),
                      .h0 = p.h0.data(),
                      .c0 = p.c0.data(),
                      .out = at[0],
                      .saved = at[3],
                      .dout = p.dout.data(),
                      .dhn = p.dhn.data(),
                      .dcn = p.dcn.data(),
                      .dprojected = at[4],
                      .dw = at[5],
                      .db = at[6],
                      .dh0 = at[7],
                      .dc0 = at[8]},
                     backward.data());
  return results;
}

}  // namespace

TEST_CASE("recurrent layers give the same bits however threads divide samples or units") {
  // Two threads divide the samples of 16 and the units of 17; three of 1 and 16 the units.
  on_every_target([] {
    Philox random(7);
    for (Cell cell : {Cell::kTanh, Cell::kRelu, Cell::kLstm, Cell::kGru}) {
      for (int64_t batch : {0, 1, 16, 17}) {
        const int64_t hidden = batch == 16 ? 150 : 37;
        const bool reverse = random.below(2) != 0, lengths = random.below(2) != 0;
        const Problem problem(cell, batch, hidden, reverse, lengths, random);
        const Floats expected = run(problem, 1);
        for (int threads : {2, 3}) {
          const Floats got = run(problem, threads);
          CAPTURE(static_cast<int>(cell), batch, threads);
          REQUIRE(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)) == 0);
        }
      }
    }
  });
}
