#include "lib/kernels/recurrent.h"

#include <algorithm>
#include <cstring>

#include "lib/base/function_ref.h"
#include "lib/base/round_up.h"
#include "lib/kernels/bf16_panels.h"
#include "lib/kernels/cache_sizes.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/recurrent_cell.h"
#include "lib/kernels/recurrent_product.h"

namespace lumen::kernels {
namespace {

// Takes consecutive pieces of memory, each 64-byte aligned.
class Memory {
 public:
  explicit Memory(std::byte* begin) : begin_(reinterpret_cast<float*>(begin)) {}
  // Null if only the bytes are counted.
  float* take(int64_t floats) {
    float* piece = begin_ == nullptr ? nullptr : begin_ + used_;
    used_ += round_up(floats, 16);
    return piece;
  }
  size_t bytes() const { return static_cast<size_t>(used_) * sizeof(float); }

 private:
  float* begin_;
  int64_t used_ = 0;
};

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

struct ForwardMemory {
  ForwardMemory(const Steps& steps, std::byte* workspace) {
    Memory memory(workspace);
    const RecurrentShape& s = steps.s;
    weights = memory.take(steps.matrices_floats());
    for (float*& panel : h_panels) panel = memory.take(steps.product.rows_floats());
    product = memory.take(s.batch * steps.width);
    bytes = memory.bytes();
  }
  float* weights;
  float* h_panels[2];
  float* product;
  size_t bytes;
};

struct BackwardMemory {
  BackwardMemory(const Steps& steps, int threads, std::byte* workspace) {
    Memory memory(workspace);
    const RecurrentShape& s = steps.s;
    const int64_t gates = gates_of(s.cell), rows = s.batch * s.steps;
    weights = memory.take(steps.matrices_floats());
    for (float*& panel : panels) panel = memory.take(gates * steps.product.rows_floats());
    // But in a GRU, the gradients of the gates' two parts are the same.
    dproduct = s.cell == Cell::kGru ? memory.take(rows * steps.width) : nullptr;
    h_before = memory.take(rows * s.hidden);
    db = memory.take(steps.sample_blocks() * steps.width);
    const size_t gemm = gemm_workspace_bytes(steps.width, s.hidden, rows, threads);
    product = reinterpret_cast<std::byte*>(memory.take(static_cast<int64_t>(gemm / 4) + 16));
    bytes = memory.bytes();
  }
  float* weights;
  float* panels[2];
  float *dproduct, *h_before;
  float* db;  // [sample blocks, width]
  std::byte* product;
  size_t bytes;
};

class ForwardSteps {
 public:
  ForwardSteps(const Steps& steps, const RecurrentForward& f, const ForwardMemory& memory)
      : steps_(steps), s_(steps.s), f_(f), memory_(memory) {}

  // Packs the first states.
  void begin(Range samples, Range units) const {
    steps_.product.pack_units(f_.hn, s_.hidden, samples, units, memory_.h_panels[0]);
  }

  void run(int64_t step, Range samples, Range units) const {
    const float* panel = memory_.h_panels[step % 2];
    for (int64_t gate = 0; gate < gates_of(s_.cell); ++gate) {
      steps_.product.multiply(panel, memory_.weights + gate * steps_.product.matrix_floats(),
                              samples, units, false, memory_.product + gate * s_.hidden,
                              steps_.width);
    }
    for (int64_t b = samples.begin; b < samples.end; ++b) row(b, steps_.time(step), units);
    steps_.product.pack_units(f_.hn, s_.hidden, samples, units, memory_.h_panels[(step + 1) % 2]);
  }

 private:
  void row(int64_t b, int64_t t, Range units) const {
    const int64_t at = steps_.row(b, t), hidden = s_.hidden, begin = units.begin;
    const int64_t saved = saved_of(s_.cell) * hidden;
    if (!steps_.exists(b, t)) {
      std::fill_n(f_.out + at * hidden + begin, units.size(), 0.0f);
      for (int64_t i = 0; i < saved; i += hidden) {
        std::fill_n(f_.saved + at * saved + i + begin, units.size(), 0.0f);
      }
      return;
    }
    const bool narrow = f_.projected_type == DType::kBF16;
    const int64_t first = at * steps_.width + begin;
    recurrent_cell::forward(
        s_.cell,
        {.hidden = hidden,
         .units = units.size(),
         .next = s_.steps * hidden,
         .product = memory_.product + b * steps_.width + begin,
         .projected = narrow ? reinterpret_cast<const float*>(bf16_numbers(f_.projected) + first)
                             : f_.projected + first,
         .b = f_.b + begin,
         .h = f_.hn + b * hidden + begin,
         .c = s_.cell == Cell::kLstm ? f_.cn + b * hidden + begin : nullptr,
         .saved = f_.saved + at * saved + begin,
         .out = f_.out + at * hidden + begin,
         .projected_bf16 = narrow});
  }

  const Steps& steps_;
  const RecurrentShape& s_;
  const RecurrentForward& f_;
  const ForwardMemory& memory_;
};

class BackwardSteps {
 public:
  BackwardSteps(const Steps& steps, const RecurrentBackward& g, const BackwardMemory& memory)
      : steps_(steps),
        s_(steps.s),
        g_(g),
        memory_(memory),
        dproduct_(memory.dproduct ? memory.dproduct : g.dprojected) {}

  // Of all steps: [batch, steps, width].
  const float* dproduct() const { return dproduct_; }

  // Adds to dh what comes through the product of the step after this one, then computes this one,
  // −1 being that before the first, and packs its gates' gradients.
  void run(int64_t step, Range samples, Range units) const {
    const RecurrentProduct& product = steps_.product;
    if (step + 1 < s_.steps) {
      const float* panel = memory_.panels[(step + 1) % 2];
      for (int64_t gate = 0; gate < gates_of(s_.cell); ++gate) {
        product.multiply(panel + gate * product.rows_floats(),
                         memory_.weights + gate * product.matrix_floats(), samples, units, true,
                         g_.dh0, s_.hidden);
      }
    }
    if (step < 0) return;
    const int64_t t = steps_.time(step);
    for (int64_t b = samples.begin; b < samples.end; ++b) row(b, t, units);
    for (int64_t gate = 0; gate < gates_of(s_.cell); ++gate) {
      product.pack_units(dproduct_ + t * steps_.width + gate * s_.hidden, s_.steps * steps_.width,
                         samples, units, memory_.panels[step % 2] + gate * product.rows_floats());
    }
  }

 private:
  void row(int64_t b, int64_t t, Range units) const {
    const int64_t at = steps_.row(b, t), hidden = s_.hidden, begin = units.begin;
    float* dprojected = g_.dprojected + at * steps_.width + begin;
    float* dproduct = dproduct_ + at * steps_.width + begin;
    float* h_before = memory_.h_before + at * hidden + begin;
    if (!steps_.exists(b, t)) {
      for (int64_t gate = 0; gate < gates_of(s_.cell); ++gate) {
        std::fill_n(dprojected + gate * hidden, units.size(), 0.0f);
        std::fill_n(dproduct + gate * hidden, units.size(), 0.0f);
      }
      std::fill_n(h_before, units.size(), 0.0f);
      return;
    }
    const int64_t before = steps_.before(b, t), saved = saved_of(s_.cell) * hidden;
    const float* h = before < 0 ? g_.h0 + b * hidden : g_.out + steps_.row(b, before) * hidden;
    const float* c = nullptr;
    if (s_.cell == Cell::kLstm) {
      c = begin +
          (before < 0 ? g_.c0 + b * hidden : g_.saved + steps_.row(b, before) * saved + 4 * hidden);
    }
    std::memcpy(h_before, h + begin, static_cast<size_t>(units.size()) * sizeof(float));
    recurrent_cell::backward(s_.cell, {.hidden = hidden,
                                       .units = units.size(),
                                       .next = s_.steps * hidden,
                                       .saved = g_.saved + at * saved + begin,
                                       .out = g_.out + at * hidden + begin,
                                       .h = h + begin,
                                       .c = c,
                                       .dout = g_.dout + at * hidden + begin,
                                       .dh = g_.dh0 + b * hidden + begin,
                                       .dc = c ? g_.dc0 + b * hidden + begin : nullptr,
                                       .dprojected = dprojected,
                                       .dproduct = dproduct,
                                       .db = memory_.db + b / kSampleBlock * steps_.width + begin});
  }

  const Steps& steps_;
  const RecurrentShape& s_;
  const RecurrentBackward& g_;
  const BackwardMemory& memory_;
  float* dproduct_;
};

}  // namespace

size_t recurrent_forward_workspace_bytes(const RecurrentShape& shape, int) {
  return ForwardMemory(Steps(shape), nullptr).bytes;
}

size_t recurrent_backward_workspace_bytes(const RecurrentShape& shape, int threads) {
  return BackwardMemory(Steps(shape), threads, nullptr).bytes;
}

void recurrent_forward(ThreadPool& pool, const RecurrentShape& shape, const RecurrentForward& f,
                       std::byte* workspace) {
  const Steps steps(shape);
  const ForwardMemory memory(steps, workspace);
  const ForwardSteps forward(steps, f, memory);
  const int64_t hidden = shape.hidden, state = shape.batch * hidden;
  // The states at the end are the states on the way.
  std::copy_n(f.h0, state, f.hn);
  if (shape.cell == Cell::kLstm) std::copy_n(f.c0, state, f.cn);
  steps.product.pack_matrices(pool, f.w, gates_of(shape.cell), hidden, 1, memory.weights);
  steps.for_each_step(pool, -1, shape.steps + 1, 1, [&](int64_t step, Range samples, Range units) {
    step < 0 ? forward.begin(samples, units) : forward.run(step, samples, units);
  });
}

void recurrent_backward(ThreadPool& pool, const RecurrentShape& shape, const RecurrentBackward& g,
                        std::byte* workspace) {
  const Steps steps(shape);
  const BackwardMemory memory(steps, pool.threads(), workspace);
  const BackwardSteps backward(steps, g, memory);
  const int64_t hidden = shape.hidden, state = shape.batch * hidden, width = steps.width;
  const int64_t rows = shape.batch * shape.steps;
  // The gradients of the first states are those of the states on the way.
  std::copy_n(g.dhn, state, g.dh0);
  if (shape.cell == Cell::kLstm) std::copy_n(g.dcn, state, g.dc0);
  std::fill_n(memory.db, steps.sample_blocks() * width, 0.0f);
  // Column u of gate g, depth k: w[g · hidden + k][u].
  steps.product.pack_matrices(pool, g.w, gates_of(shape.cell), 1, hidden, memory.weights);
  steps.for_each_step(
      pool, shape.steps - 1, shape.steps + 1, -1,
      [&](int64_t step, Range samples, Range units) { backward.run(step, samples, units); });
  std::fill_n(g.db, width, 0.0f);
  for (int64_t block = 0; block < steps.sample_blocks(); ++block) {
    for (int64_t i = 0; i < width; ++i) g.db[i] += memory.db[block * width + i];
  }
  if (rows == 0) {
    std::fill_n(g.dw, width * hidden, 0.0f);
    return;
  }
  gemm(pool, {.m = width,
              .n = hidden,
              .k = rows,
              .a = backward.dproduct(),
              .a_row_stride = 1,
              .a_col_stride = width,
              .b = memory.h_before,
              .b_row_stride = hidden,
              .b_col_stride = 1,
              .c = g.dw,
              .c_stride = hidden,
              .workspace = memory.product,
              .bf16 = shape.bf16});
}

}  // namespace lumen::kernels
