#include "lib/kernels/recurrent.h"

#include <algorithm>
#include <cstring>

#include "lib/base/round_up.h"
#include "lib/kernels/gemm_tile.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/recurrent_cell.h"

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

// One step after another. Threads divide the units: each multiplies and computes its own units of
// all gates, then packs them for the next step, whose panel is another one, so that one fork-join
// per step is enough.
struct Steps {
  explicit Steps(const RecurrentShape& shape)
      : s(shape), width(gates_of(shape.cell) * shape.hidden) {}

  int64_t time(int64_t step) const { return s.reverse ? s.steps - 1 - step : step; }
  bool exists(int64_t b, int64_t t) const { return !s.lengths || t < s.lengths[b]; }
  // The time of the step before, −1 at the first.
  int64_t before(int64_t b, int64_t t) const {
    if (!s.reverse) return t - 1;
    return t + 1 < s.steps && exists(b, t + 1) ? t + 1 : -1;
  }
  int64_t row(int64_t b, int64_t t) const { return b * s.steps + t; }
  int64_t padded_batch() const { return round_up(s.batch, kMaxTileRows); }
  int64_t padded_units() const { return round_up(s.hidden, kMaxTileCols); }

  // Gate by gate strips of B with depth `hidden`: column u, depth k is from[g][u · row_stride + k ·
  // col_stride].
  void pack_weights(ThreadPool& pool, const float* w, int64_t row_stride, int64_t col_stride,
                    float* panel) const {
    const int64_t strips = (s.hidden + tile.cols - 1) / tile.cols;
    pool.parallel_for(gates_of(s.cell) * strips, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t at = begin; at < end; ++at) {
        const int64_t g = at / strips, u = at % strips * tile.cols;
        pack_strip({w + g * s.hidden * s.hidden + u * row_stride, row_stride, col_stride},
                   std::min(tile.cols, s.hidden - u), tile.cols, s.hidden, tile.cols,
                   panel + (g * padded_units() + u) * s.hidden);
      }
    });
  }

  // Units [begin, end) of x [batch, hidden], rows x_stride apart, as part of the depth of A.
  void pack_units(const float* x, int64_t x_stride, int64_t begin, int64_t end,
                  float* panel) const {
    for (int64_t i = 0; i < s.batch;) {
      const int64_t height = strip_height(tile, s.batch, i);
      pack_strip({x + i * x_stride + begin, x_stride, 1}, std::min(height, s.batch - i), height,
                 end - begin, height, panel + i * s.hidden + begin * height);
      i += height;
    }
  }

  RecurrentShape s;
  int64_t width;  // of all gates
  GemmTile tile = gemm_tile();
};

struct ForwardMemory {
  ForwardMemory(const Steps& steps, std::byte* workspace) {
    Memory memory(workspace);
    const RecurrentShape& s = steps.s;
    weights = memory.take(gates_of(s.cell) * steps.padded_units() * s.hidden);
    for (float*& panel : h_panels) panel = memory.take(steps.padded_batch() * s.hidden);
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
    weights = memory.take(gates * steps.padded_units() * s.hidden);
    for (float*& panel : panels) panel = memory.take(gates * steps.padded_batch() * s.hidden);
    // But in a GRU, the gradients of the gates' two parts are the same.
    dproduct = s.cell == Cell::kGru ? memory.take(rows * steps.width) : nullptr;
    h_before = memory.take(rows * s.hidden);
    const size_t gemm = gemm_workspace_bytes(steps.width, s.hidden, rows, threads);
    product = reinterpret_cast<std::byte*>(memory.take(static_cast<int64_t>(gemm / 4) + 16));
    bytes = memory.bytes();
  }
  float* weights;
  float* panels[2];
  float *dproduct, *h_before;
  std::byte* product;
  size_t bytes;
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

  // Adds to dh what comes through the product with the gates' gradients in `panel`.
  void multiply(const float* panel, int64_t begin, int64_t end) const {
    const int64_t rows = steps_.padded_batch() * s_.hidden;
    for (int64_t gate = 0; gate < gates_of(s_.cell); ++gate) {
      multiply_panels(panel + gate * rows, s_.batch,
                      memory_.weights + (gate * steps_.padded_units() + begin) * s_.hidden,
                      end - begin, s_.hidden, true, g_.dh0 + begin, s_.hidden);
    }
  }

  // Units [begin, end) of all samples at time t; packs the gates' gradients.
  void compute(int64_t t, int64_t begin, int64_t end, float* panel) const {
    for (int64_t b = 0; b < s_.batch; ++b) row(b, t, begin, end);
    const int64_t rows = steps_.padded_batch() * s_.hidden;
    for (int64_t gate = 0; gate < gates_of(s_.cell); ++gate) {
      steps_.pack_units(dproduct_ + t * steps_.width + gate * s_.hidden, s_.steps * steps_.width,
                        begin, end, panel + gate * rows);
    }
  }

 private:
  void row(int64_t b, int64_t t, int64_t begin, int64_t end) const {
    const int64_t at = steps_.row(b, t), hidden = s_.hidden;
    float* dprojected = g_.dprojected + at * steps_.width + begin;
    float* dproduct = dproduct_ + at * steps_.width + begin;
    float* h_before = memory_.h_before + at * hidden + begin;
    if (!steps_.exists(b, t)) {
      for (int64_t gate = 0; gate < gates_of(s_.cell); ++gate) {
        std::fill_n(dprojected + gate * hidden, end - begin, 0.0f);
        std::fill_n(dproduct + gate * hidden, end - begin, 0.0f);
      }
      std::fill_n(h_before, end - begin, 0.0f);
      return;
    }
    const int64_t before = steps_.before(b, t), saved = saved_of(s_.cell) * hidden;
    const float* h = before < 0 ? g_.h0 + b * hidden : g_.out + steps_.row(b, before) * hidden;
    const float* c = nullptr;
    if (s_.cell == Cell::kLstm) {
      c = begin +
          (before < 0 ? g_.c0 + b * hidden : g_.saved + steps_.row(b, before) * saved + 4 * hidden);
    }
    std::memcpy(h_before, h + begin, static_cast<size_t>(end - begin) * sizeof(float));
    recurrent_cell::backward(s_.cell, {.hidden = hidden,
                                       .units = end - begin,
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
                                       .db = g_.db + begin});
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
  const int64_t hidden = shape.hidden, state = shape.batch * hidden;
  const int64_t saved = saved_of(shape.cell) * hidden;
  const bool lstm = shape.cell == Cell::kLstm;
  // The states at the end are the states on the way.
  std::copy_n(f.h0, state, f.hn);
  if (lstm) std::copy_n(f.c0, state, f.cn);
  steps.pack_weights(pool, f.w, hidden, 1, memory.weights);
  steps.pack_units(f.hn, hidden, 0, hidden, memory.h_panels[0]);
  for (int64_t step = 0; step < shape.steps; ++step) {
    const int64_t t = steps.time(step);
    const float* panel = memory.h_panels[step % 2];
    pool.parallel_for(hidden, steps.tile.cols, [&](int64_t begin, int64_t end, int) {
      for (int64_t gate = 0; gate < gates_of(shape.cell); ++gate) {
        multiply_panels(
            panel, shape.batch, memory.weights + (gate * steps.padded_units() + begin) * hidden,
            end - begin, hidden, false, memory.product + gate * hidden + begin, steps.width);
      }
      for (int64_t b = 0; b < shape.batch; ++b) {
        const int64_t at = steps.row(b, t);
        if (!steps.exists(b, t)) {
          std::fill_n(f.out + at * hidden + begin, end - begin, 0.0f);
          for (int64_t i = 0; i < saved; i += hidden) {
            std::fill_n(f.saved + at * saved + i + begin, end - begin, 0.0f);
          }
          continue;
        }
        recurrent_cell::forward(shape.cell, {.hidden = hidden,
                                             .units = end - begin,
                                             .next = shape.steps * hidden,
                                             .product = memory.product + b * steps.width + begin,
                                             .projected = f.projected + at * steps.width + begin,
                                             .b = f.b + begin,
                                             .h = f.hn + b * hidden + begin,
                                             .c = lstm ? f.cn + b * hidden + begin : nullptr,
                                             .saved = f.saved + at * saved + begin,
                                             .out = f.out + at * hidden + begin});
      }
      steps.pack_units(f.hn, hidden, begin, end, memory.h_panels[(step + 1) % 2]);
    });
  }
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
  std::fill_n(g.db, width, 0.0f);
  // Column u of gate g, depth k: w[g · hidden + k][u].
  steps.pack_weights(pool, g.w, 1, hidden, memory.weights);
  for (int64_t step = shape.steps - 1; step >= -1; --step) {
    pool.parallel_for(hidden, steps.tile.cols, [&](int64_t begin, int64_t end, int) {
      if (step + 1 < shape.steps) backward.multiply(memory.panels[(step + 1) % 2], begin, end);
      if (step < 0) return;
      backward.compute(steps.time(step), begin, end, memory.panels[step % 2]);
    });
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
              .workspace = memory.product});
}

}  // namespace lumen::kernels
