#include "lib/kernels/recurrent.h"

#include <algorithm>

#include "lib/base/function_ref.h"
#include "lib/base/round_up.h"
#include "lib/kernels/cache_sizes.h"
#include "lib/kernels/memory_pieces.h"
#include "lib/kernels/recurrent/recurrent_cell.h"
#include "lib/kernels/recurrent/recurrent_product.h"
#include "lib/kernels/tiles/bf16_panels.h"

namespace lumen::kernels {
namespace {

// Units whose products are computed before their cells: those of some samples stay in the caches.
constexpr int64_t kUnitBlock = 128;

// One step after another. Either threads divide the samples, and each goes through all steps by
// itself; or they divide the units: each multiplies and computes its own units of all gates, then
// packs them for the next step, whose panel is another one, so that one fork-join per step is
// enough. The second where there are few samples, or where the weights of all units, which every
// step reads, would not stay in the second cache.
struct Steps {
  explicit Steps(const RecurrentShape& shape)
      : s(shape),
        width(gates_of(shape.cell) * shape.hidden),
        product(shape.batch, shape.hidden, shape.bf16) {}

  int64_t time(int64_t step) const { return s.reverse ? s.steps - 1 - step : step; }
  bool exists(int64_t b, int64_t t) const { return !s.lengths || t < s.lengths[b]; }
  // The time of the step before, −1 at the first.
  int64_t before(int64_t b, int64_t t) const {
    if (!s.reverse) return t - 1;
    return t + 1 < s.steps && exists(b, t + 1) ? t + 1 : -1;
  }
  int64_t row(int64_t b, int64_t t) const { return b * s.steps + t; }
  int64_t sample_blocks() const { return divide_up(s.batch, kSampleBlock); }
  int64_t matrices_floats() const { return gates_of(s.cell) * product.matrix_floats(); }

  // Runs body(step, samples, units) for the steps first, first + by, … (`count` of them), each for
  // all samples and units and after the step before it.
  void for_each_step(ThreadPool& pool, int64_t first, int64_t count, int64_t by,
                     FunctionRef<void(int64_t step, Range samples, Range units)> body) const {
    auto in_blocks = [&](int64_t step, Range samples, Range units) {
      const int64_t most = round_up(kUnitBlock, product.unit_step());
      for (int64_t u = units.begin; u < units.end; u += most) {
        body(step, samples, {u, std::min(units.end, u + most)});
      }
    };
    if (divides_samples(pool.threads())) {
      pool.parallel_for(sample_blocks(), 1, [&](int64_t begin, int64_t end, int) {
        const Range samples{begin * kSampleBlock, std::min(s.batch, end * kSampleBlock)};
        product.enter();
        for (int64_t i = 0; i < count; ++i) in_blocks(first + i * by, samples, {0, s.hidden});
        product.leave();
      });
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      pool.parallel_for(s.hidden, product.unit_step(), [&](int64_t begin, int64_t end, int) {
        product.enter();
        in_blocks(first + i * by, {0, s.batch}, {begin, end});
        product.leave();
      });
    }
  }

  RecurrentShape s;
  int64_t width;  // of all gates
  RecurrentProduct product;

 private:
  bool divides_samples(int threads) const {
    const int64_t most = divide_up(sample_blocks(), threads);  // blocks of one thread
    const bool evenly = 8 * most * threads <= 9 * sample_blocks();
    const int64_t bytes = product.matrix_bytes(gates_of(s.cell));
    return evenly && (threads == 1 || bytes <= second_cache_bytes() / 4 * 3);
  }
};

// Rows of floats in which a step computes what is stored as bfloat16: one for `samples` samples,
// which take turns.
struct StepRows {
  StepRows(MemoryPieces& memory, const RecurrentShape& s, int64_t width, int64_t samples)
      : samples_per_row(samples),
        stride(width + kPad),
        first(s.bf16 ? memory.take(divide_up(s.batch, samples) * stride) : nullptr) {}

  static constexpr int64_t kPad = 16;  // rows would share a few sets of the first cache
  int64_t samples_per_row, stride;
  float* first;
};

// A result [batch, steps, arrays · hidden]. A step computes it where it lies, or in `rows`.
struct StepResult {
  const Steps& steps;
  int64_t arrays;
  float* result;
  bool bf16;
  StepRows rows;

  int64_t width() const { return arrays * steps.s.hidden; }
  Numbers stored(int64_t b, int64_t t) const {
    return Numbers{result, bf16}.at(steps.row(b, t) * width());
  }
  float* computed(int64_t b, int64_t t) const {
    return bf16 ? rows.first + b / rows.samples_per_row * rows.stride
                : result + steps.row(b, t) * width();
  }
  // Between one sample's and the next one's.
  int64_t computed_stride() const { return bf16 ? rows.stride : steps.s.steps * width(); }

  // Stores what was computed.
  void store(int64_t b, int64_t t, Range units) const {
    if (!bf16) return;
    const int64_t hidden = steps.s.hidden;
    round_rows(computed(b, t) + units.begin, hidden, arrays, units.size(),
               bf16_numbers(result) + steps.row(b, t) * width() + units.begin, hidden);
  }
  void store_zeros(int64_t b, int64_t t, Range units) const {
    for (int64_t i = 0; i < arrays; ++i) {
      std::fill_n(computed(b, t) + i * steps.s.hidden + units.begin, units.size(), 0.0f);
    }
    store(b, t, units);
  }
};

struct ForwardMemory {
  ForwardMemory(const Steps& steps, std::byte* workspace)
      : memory(reinterpret_cast<float*>(workspace)),
        weights(memory.take(steps.matrices_floats())),
        h_panels{memory.take(steps.product.rows_floats()),
                 memory.take(steps.product.rows_floats())},
        product(memory.take(steps.s.batch * steps.width)),
        h(memory.take(steps.s.batch * steps.s.hidden)),
        c(memory.take(steps.s.batch * steps.s.hidden)),
        out(memory, steps.s, steps.s.hidden, kSampleBlock),
        saved(memory, steps.s, saved_of(steps.s.cell) * steps.s.hidden, kSampleBlock) {}
  MemoryPieces memory;
  float* weights;
  float* h_panels[2];
  float* product;
  float *h, *c;  // states on the way, where the last ones are stored as bfloat16
  StepRows out, saved;
};

struct BackwardMemory {
  BackwardMemory(const Steps& steps, std::byte* workspace)
      : memory(reinterpret_cast<float*>(workspace)),
        weights(memory.take(steps.matrices_floats())),
        panels{memory.take(gates_of(steps.s.cell) * steps.product.rows_floats()),
               memory.take(gates_of(steps.s.cell) * steps.product.rows_floats())},
        dh(memory.take(steps.s.batch * steps.s.hidden)),
        dc(memory.take(steps.s.batch * steps.s.hidden)),
        dprojected(memory, steps.s, steps.width, 1),
        dr(memory, steps.s, steps.width, 1) {}
  MemoryPieces memory;
  float* weights;
  float* panels[2];
  float *dh, *dc;
  StepRows dprojected, dr;
};

class ForwardSteps {
 public:
  ForwardSteps(const Steps& steps, const RecurrentForward& f, const ForwardMemory& memory)
      : steps_(steps),
        s_(steps.s),
        f_(f),
        memory_(memory),
        bf16_(f.results_type == DType::kBF16),
        h_(bf16_ ? memory.h : f.hn),
        c_(bf16_ ? memory.c : f.cn),
        out_{steps, 1, f.out, bf16_, memory.out},
        saved_{steps, saved_of(steps.s.cell), f.saved, bf16_, memory.saved} {}

  // Packs the first states.
  void begin(Range samples, Range units) const {
    steps_.product.pack_units(h_, s_.hidden, samples, units, memory_.h_panels[0]);
  }

  void run(int64_t step, Range samples, Range units) const {
    const float* panel = memory_.h_panels[step % 2];
    for (int64_t gate = 0; gate < gates_of(s_.cell); ++gate) {
      steps_.product.multiply(panel, memory_.weights + gate * steps_.product.matrix_floats(),
                              samples, units, false, memory_.product + gate * s_.hidden,
                              steps_.width);
    }
    for (int64_t b = samples.begin; b < samples.end; ++b) row(b, steps_.time(step), units);
    steps_.product.pack_units(h_, s_.hidden, samples, units, memory_.h_panels[(step + 1) % 2]);
  }

  // The states at the end are the states on the way.
  void set_states() const {
    const int64_t state = s_.batch * s_.hidden;
    std::copy_n(f_.h0, state, h_);
    if (s_.cell == Cell::kLstm) std::copy_n(f_.c0, state, c_);
  }
  void store_states() const {
    if (!bf16_) return;
    const int64_t state = s_.batch * s_.hidden;
    round_row(h_, state, bf16_numbers(f_.hn));
    if (s_.cell == Cell::kLstm) round_row(c_, state, bf16_numbers(f_.cn));
  }

 private:
  void row(int64_t b, int64_t t, Range units) const {
    const int64_t hidden = s_.hidden, begin = units.begin;
    if (!steps_.exists(b, t)) {
      out_.store_zeros(b, t, units);
      saved_.store_zeros(b, t, units);
      return;
    }
    const Numbers projected{f_.projected, f_.projected_type == DType::kBF16};
    recurrent_cell::forward(s_.cell,
                            {.hidden = hidden,
                             .units = units.size(),
                             .next = s_.steps * hidden,
                             .product = memory_.product + b * steps_.width + begin,
                             .b = f_.b + begin,
                             .projected = projected.at(steps_.row(b, t) * steps_.width + begin),
                             .h = h_ + b * hidden + begin,
                             .c = s_.cell == Cell::kLstm ? c_ + b * hidden + begin : nullptr,
                             .saved = saved_.computed(b, t) + begin,
                             .out = out_.computed(b, t) + begin,
                             .results = saved_.stored(b, t).at(begin)});
    saved_.store(b, t, units);
    out_.store(b, t, units);
  }

  const Steps& steps_;
  const RecurrentShape& s_;
  const RecurrentForward& f_;
  const ForwardMemory& memory_;
  bool bf16_;
  float *h_, *c_;  // the states
  StepResult out_, saved_;
};

class BackwardSteps {
 public:
  BackwardSteps(const Steps& steps, const RecurrentBackward& g, const BackwardMemory& memory)
      : steps_(steps),
        s_(steps.s),
        g_(g),
        memory_(memory),
        bf16_(g.gradients_type == DType::kBF16),
        dh_(bf16_ ? memory.dh : g.dh0),
        dc_(bf16_ ? memory.dc : g.dc0),
        dprojected_{steps, gates_of(steps.s.cell), g.dprojected, bf16_, memory.dprojected},
        dr_{steps, gates_of(steps.s.cell), g.dr, bf16_, memory.dr} {}

  // Adds to dh what comes through the product of the step after this one, then computes this one,
  // −1 being that before the first, and packs its gates' gradients.
  void run(int64_t step, Range samples, Range units) const {
    const RecurrentProduct& product = steps_.product;
    if (step + 1 < s_.steps) {
      const float* panel = memory_.panels[(step + 1) % 2];
      for (int64_t gate = 0; gate < gates_of(s_.cell); ++gate) {
        product.multiply(panel + gate * product.rows_floats(),
                         memory_.weights + gate * product.matrix_floats(), samples, units, true,
                         dh_, s_.hidden);
      }
    }
    if (step < 0) return;
    const int64_t t = steps_.time(step);
    for (int64_t b = samples.begin; b < samples.end; ++b) row(b, t, units);
    const StepResult& of_product = g_.dr ? dr_ : dprojected_;
    for (int64_t gate = 0; gate < gates_of(s_.cell); ++gate) {
      product.pack_units(of_product.computed(0, t) + gate * s_.hidden, of_product.computed_stride(),
                         samples, units, memory_.panels[step % 2] + gate * product.rows_floats());
    }
  }

  // The gradients of the first states are those of the states on the way.
  void set_states() const {
    const int64_t state = s_.batch * s_.hidden;
    std::copy_n(g_.dhn, state, dh_);
    if (s_.cell == Cell::kLstm) std::copy_n(g_.dcn, state, dc_);
  }
  void store_states() const {
    if (!bf16_) return;
    const int64_t state = s_.batch * s_.hidden;
    round_row(dh_, state, bf16_numbers(g_.dh0));
    if (s_.cell == Cell::kLstm) round_row(dc_, state, bf16_numbers(g_.dc0));
  }

 private:
  void row(int64_t b, int64_t t, Range units) const {
    const int64_t hidden = s_.hidden, begin = units.begin, at = steps_.row(b, t) * hidden + begin;
    if (!steps_.exists(b, t)) {
      dprojected_.store_zeros(b, t, units);
      if (g_.dr) dr_.store_zeros(b, t, units);
      return;
    }
    const bool lstm = s_.cell == Cell::kLstm, narrow = g_.results_type == DType::kBF16;
    const int64_t before = steps_.before(b, t), saved = saved_of(s_.cell) * hidden;
    const Numbers out{g_.out, narrow}, all_saved{g_.saved, narrow};
    Numbers h{g_.h0 + b * hidden + begin}, c{lstm ? g_.c0 + b * hidden + begin : nullptr};
    if (before >= 0) {
      h = out.at(steps_.row(b, before) * hidden + begin);
      if (lstm) c = all_saved.at(steps_.row(b, before) * saved + 4 * hidden + begin);
    }
    recurrent_cell::backward(s_.cell,
                             {.hidden = hidden,
                              .units = units.size(),
                              .next = s_.steps * hidden,
                              .saved = all_saved.at(steps_.row(b, t) * saved + begin),
                              .out = out.at(at),
                              .h = h,
                              .c = c,
                              .dout = Numbers{g_.dout, g_.dout_type == DType::kBF16}.at(at),
                              .dh = dh_ + b * hidden + begin,
                              .dc = lstm ? dc_ + b * hidden + begin : nullptr,
                              .dprojected = dprojected_.computed(b, t) + begin,
                              .dr = g_.dr ? dr_.computed(b, t) + begin : nullptr,
                              .results = dprojected_.stored(b, t).at(begin)});
    dprojected_.store(b, t, units);
    if (g_.dr) dr_.store(b, t, units);
  }

  const Steps& steps_;
  const RecurrentShape& s_;
  const RecurrentBackward& g_;
  const BackwardMemory& memory_;
  bool bf16_;
  float *dh_, *dc_;  // gradients of the states
  StepResult dprojected_, dr_;
};

}  // namespace

bool recurrent_gives_bf16() {
  return bf16_unit() != nullptr;
}

size_t recurrent_forward_workspace_bytes(const RecurrentShape& shape) {
  return static_cast<size_t>(ForwardMemory(Steps(shape), nullptr).memory.taken()) * sizeof(float);
}

size_t recurrent_backward_workspace_bytes(const RecurrentShape& shape) {
  return static_cast<size_t>(BackwardMemory(Steps(shape), nullptr).memory.taken()) * sizeof(float);
}

void recurrent_forward(ThreadPool& pool, const RecurrentShape& shape, const RecurrentForward& f,
                       std::byte* workspace) {
  const Steps steps(shape);
  const ForwardMemory memory(steps, workspace);
  const ForwardSteps forward(steps, f, memory);
  forward.set_states();
  steps.product.pack_matrices(pool, f.w, gates_of(shape.cell), shape.hidden, 1, memory.weights);
  steps.for_each_step(pool, -1, shape.steps + 1, 1, [&](int64_t step, Range samples, Range units) {
    step < 0 ? forward.begin(samples, units) : forward.run(step, samples, units);
  });
  forward.store_states();
}

void recurrent_backward(ThreadPool& pool, const RecurrentShape& shape, const RecurrentBackward& g,
                        std::byte* workspace) {
  const Steps steps(shape);
  const BackwardMemory memory(steps, workspace);
  const BackwardSteps backward(steps, g, memory);
  backward.set_states();
  // Column u of gate g, depth k: w[g · hidden + k][u].
  steps.product.pack_matrices(pool, g.w, gates_of(shape.cell), 1, shape.hidden, memory.weights);
  steps.for_each_step(
      pool, shape.steps - 1, shape.steps + 1, -1,
      [&](int64_t step, Range samples, Range units) { backward.run(step, samples, units); });
  backward.store_states();
}

}  // namespace lumen::kernels
