#include <algorithm>

#include "lib/kernels/blocked_product.h"
#include "lib/kernels/convert.h"
#include "lib/kernels/dot_rows.h"
#include "lib/kernels/gemm_tile.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/panel_dot.h"
#include "lib/kernels/panels.h"
#include "lib/kernels/quantize_rows.h"

namespace lumen::kernels {
namespace {

// Up to this many rows of x the weights are used as they are stored, row by row; beyond it,
// expanding blocks of them to float pays. A float row is read again for every four rows of x,
// while the codes of a quantised row are a quarter of its size and unpack in registers.
constexpr int64_t kFewRowsFloat = 8;
constexpr int64_t kFewRowsQuantized = 24;

// Quantised panels are multiplied as they are whatever the number of rows, so many at a time: their
// codes, 1.9 bytes per element with scales and sums, are what stays in L2 while panels pass by.
constexpr int64_t kManyRowsPanels = 512;

// Columns of y finished before the epilogue sees them: a few KiB of output.
constexpr int64_t kPieceCols = 64;

int64_t total_rows(std::span<const Weight> weights) {
  int64_t total = 0;
  for (const Weight& w : weights) total += w.rows;
  return total;
}

int64_t few_rows(std::span<const Weight> weights) {
  const bool any_float = std::any_of(weights.begin(), weights.end(),
                                     [](const Weight& w) { return !is_quantized(w.dtype); });
  return any_float ? kFewRowsFloat : kFewRowsQuantized;
}

// Calls body(weight, begin, end, column) for the rows of the weights that make up columns [begin,
// end) of y, in order; `column` is where they start in y.
template <class Body>
void for_each_part(std::span<const Weight> weights, int64_t begin, int64_t end, Body&& body) {
  int64_t first = 0;  // column of the weight's row 0
  for (const Weight& w : weights) {
    const int64_t from = std::max(begin, first), to = std::min(end, first + w.rows);
    if (from < to) body(w, from - first, to - first, from);
    first += w.rows;
  }
}

// ---- Few rows: dot products.

void dot(const Weight& w, int64_t from, int64_t to, const LinearArgs& args,
         const QuantizedRows& quantized, float* y) {
  const bool panels = w.layout == Layout::kPanels;
  if (is_quantized(w.dtype)) {
    const auto dot_quantized = panels ? dot_panels_quantized : dot_rows_quantized;
    dot_quantized(w, from, to, quantized, args.m, y, args.y_stride);
  } else {
    const auto dot_float = panels ? dot_panels_float : dot_rows_float;
    dot_float(w, from, to, args.x, args.x_stride, args.m, y, args.y_stride);
  }
}

// All of args.m rows at once. The first row of `weights` is column `column` of y; `row` is what the
// epilogue is told of row 0.
void linear_few(ThreadPool& pool, const LinearArgs& args, std::span<const Weight> weights,
                int64_t column, int64_t row) {
  const int64_t cols = weights.front().cols;
  const bool any_quantized = std::any_of(weights.begin(), weights.end(),
                                         [](const Weight& w) { return is_quantized(w.dtype); });
  QuantizedRows quantized{};
  if (any_quantized) {
    quantized = place_quantized_rows(args.workspace, args.m, cols);
    // Four rows take about as long as waking the other threads.
    pool.parallel_for(args.m, 4, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) quantize_row(args.x + r * args.x_stride, r, quantized);
    });
  }
  const auto piece = [&](int64_t begin, int64_t end) {
    for_each_part(weights, begin, end, [&](const Weight& w, int64_t from, int64_t to, int64_t at) {
      dot(w, from, to, args, quantized, args.y + column + at);
    });
    if (args.epilogue == nullptr) return;
    for (int64_t r = 0; r < args.m; ++r) (*args.epilogue)(row + r, column + begin, column + end);
  };
  // Sixteen floats are a cache line of y, no two threads write the same one, and a panel's rows.
  pool.parallel_for(total_rows(weights), kPanelRows, [&](int64_t begin, int64_t end, int) {
    for (int64_t j = begin; j < end; j += kPieceCols) piece(j, std::min(j + kPieceCols, end));
  });
}

void linear_many_panels(ThreadPool& pool, const LinearArgs& args, std::span<const Weight> weights,
                        int64_t column) {
  LinearArgs part = args;
  for (int64_t row = 0; row < args.m; row += kManyRowsPanels) {
    part.x = args.x + row * args.x_stride;
    part.y = args.y + row * args.y_stride;
    part.m = std::min(kManyRowsPanels, args.m - row);
    linear_few(pool, part, weights, column, row);
  }
}

// ---- Many rows: blocks of weights expanded to float.

// Packs rows of x, rounded as quantised weights want them if `rounded`.
void pack_activations(const LinearArgs& args, bool rounded, const StripRequest& want) {
  const float* x = args.x + want.row * args.x_stride + want.k;
  if (!rounded) {
    pack_strip({x, args.x_stride, 1}, want.rows, want.padded_rows, want.depth, want.padded_rows,
               want.panel);
    return;
  }
  for (int64_t i = 0; i < want.rows; ++i) {
    round_row(x + i * args.x_stride, want.depth, want.scratch + i * want.depth);
  }
  pack_strip({want.scratch, want.depth, 1}, want.rows, want.padded_rows, want.depth,
             want.padded_rows, want.panel);
}

// Rows [row, row + rows) of the weights, columns [k, k + depth), as floats [rows, depth]. What
// follows in each row comes next, too short for the processor to foresee: it is fetched ahead.
void expand_weights(std::span<const Weight> weights, int64_t row, int64_t rows, int64_t k,
                    int64_t depth, float* to) {
  for_each_part(weights, row, row + rows, [&](const Weight& w, int64_t from, int64_t end, int64_t) {
    const int64_t stride = row_bytes(w.dtype, w.cols);
    const int64_t bytes = row_bytes(w.dtype, depth);
    const auto* x = static_cast<const char*>(w.data) + from * stride + row_bytes(w.dtype, k);
    for (int64_t j = from; j < end; ++j, x += stride, to += depth) {
      for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(x + bytes + i);
      to_float(w.dtype, x, to, depth);
    }
  });
}

// Packs rows of float panels, which hold their columns as the product wants them.
void pack_float_panels(std::span<const Weight> weights, const StripRequest& want) {
  for_each_part(weights, want.row, want.row + want.rows,
                [&](const Weight& w, int64_t from, int64_t end, int64_t column) {
                  StripRequest part = want;
                  part.row = from;
                  part.rows = end - from;
                  part.panel += column - want.row;
                  pack_panel_strip(w, part);
                });
  for (int64_t k = 0; k < want.depth; ++k) {
    std::fill(want.panel + k * want.padded_rows + want.rows,
              want.panel + (k + 1) * want.padded_rows, 0.0f);
  }
}

// Packs weight rows in pieces of 16 × 256: 16 KiB of floats that are still in L1 when they are
// transposed, into as many bytes of whole cache lines.
void pack_weights(std::span<const Weight> weights, const StripRequest& want) {
  constexpr int64_t kRows = 16, kDepth = 256;
  static_assert(kRows * kDepth <= kScratchFloats && kBlockDepth % kDepth == 0);
  for (int64_t at = 0; at < want.depth; at += kDepth) {
    const int64_t depth = std::min(kDepth, want.depth - at);
    for (int64_t i = 0; i < want.padded_rows; i += kRows) {
      const int64_t rows = std::clamp<int64_t>(want.rows - i, 0, kRows);
      expand_weights(weights, want.row + i, rows, want.k + at, depth, want.scratch);
      pack_strip({want.scratch, depth, 1}, rows, std::min(kRows, want.padded_rows - i), depth,
                 want.padded_rows, want.panel + at * want.padded_rows + i);
    }
  }
}

// `weights` are all quantised or all float, all in rows or all in panels; their first row is column
// `column` of y.
void linear_many(ThreadPool& pool, const LinearArgs& args, std::span<const Weight> weights,
                 int64_t column) {
  const bool rounded = is_quantized(weights.front().dtype);
  auto pack_a = [&](const StripRequest& want) { pack_activations(args, rounded, want); };
  const bool panels = weights.front().layout == Layout::kPanels;
  auto pack_b = [&](const StripRequest& want) {
    panels ? pack_float_panels(weights, want) : pack_weights(weights, want);
  };
  blocked_product(pool, {.m = args.m,
                         .n = total_rows(weights),
                         .k = weights.front().cols,
                         .pack_a = pack_a,
                         .pack_b = pack_b,
                         .c = args.y + column,
                         .c_stride = args.y_stride,
                         .workspace = args.workspace,
                         .epilogue = args.epilogue,
                         .epilogue_column = column});
}

}  // namespace

size_t linear_workspace_bytes(int64_t m, int64_t cols, int threads) {
  const size_t rows = quantized_rows_bytes(std::min(m, kManyRowsPanels), cols);
  return m <= kFewRowsFloat ? rows : std::max(rows, blocked_product_bytes(m, cols, threads));
}

void linear(ThreadPool& pool, const LinearArgs& args) {
  if (args.m == 0 || args.weights.empty()) return;
  if (args.m <= few_rows(args.weights)) return linear_few(pool, args, args.weights, 0, 0);
  int64_t column = 0;
  // Weights next to each other that are treated alike make one product.
  for (size_t begin = 0; begin < args.weights.size();) {
    const Weight& first = args.weights[begin];
    size_t end = begin + 1;
    while (end < args.weights.size() && args.weights[end].layout == first.layout &&
           is_quantized(args.weights[end].dtype) == is_quantized(first.dtype)) {
      ++end;
    }
    const auto run = args.weights.subspan(begin, end - begin);
    const bool quantized_panels = is_quantized(first.dtype) && first.layout == Layout::kPanels;
    quantized_panels ? linear_many_panels(pool, args, run, column)
                     : linear_many(pool, args, run, column);
    column += total_rows(run);
    begin = end;
  }
}

}  // namespace lumen::kernels
