#include <algorithm>
#include <cstring>

#include "lib/base/check.h"
#include "lib/base/round_up.h"
#include "lib/kernels/convert.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/panels.h"
#include "lib/kernels/products/blocked_product.h"
#include "lib/kernels/products/few_rows.h"
#include "lib/kernels/products/gemm_tile.h"
#include "lib/kernels/tiles/amx.h"
#include "lib/kernels/tiles/amx_product.h"
#include "lib/kernels/weights/int16_product.h"
#include "lib/kernels/weights/int8_product.h"
#include "lib/kernels/weights/linear_tiles.h"
#include "lib/kernels/weights/linear_weights.h"

namespace lumen::kernels {
namespace {

// Columns of y finished before the epilogue sees them: a few KiB of output.
constexpr int64_t kPieceCols = 64;
// More of two halves: each starts with cold memory, a quarter of a microsecond.
constexpr int64_t kPieceColsOfHalves = 1024;

// ---- Few rows: dot products.

// The rows of x as few_rows.h has them.
FewRows round_rows(ThreadPool& pool, const LinearArgs& args) {
  const FewRows to = place_few_rows(args.x, args.x_stride, args.m, args.weights, args.workspace);
  // So much takes about as long as waking the other threads.
  constexpr int64_t kRowsAtOnce = 4, kBlocksAtOnce = 256;
  if (to.strips.memory) {
    pool.parallel_for(to.strips.cols / 32, divide_up(kBlocksAtOnce, args.m),
                      [&](int64_t begin, int64_t end, int) {
                        quantize_strip_rows(args.x, args.x_stride, begin, end, to.strips);
                      });
  }
  if (to.rows.codes) {
    pool.parallel_for(args.m, kRowsAtOnce, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) quantize_row(args.x + r * args.x_stride, r, to.rows);
    });
  }
  return to;
}

// Two calls with one x whose results are combined in the first one's y.
struct Halves {
  LinearArgs first, second;
};

void combine_rows(const Combine& combine, const Halves& halves, int64_t begin, int64_t end) {
  const auto& [first, second] = halves;
  for (int64_t r = 0; r < first.m; ++r) {
    float* const y = first.y + r * first.y_stride + begin;
    combine(y, second.y + r * second.y_stride + begin, end - begin, y);
  }
}

// `halves` are null without LinearArgs::combine.
void linear_few(ThreadPool& pool, const LinearArgs& args, const Halves* halves) {
  const int64_t cols = args.weights.front().cols;
  const FewRows rows = round_rows(pool, args);
  std::byte* const panels = args.workspace + few_rows_bytes(args.m, cols);
  const auto multiply = [&](const LinearArgs& by, int64_t begin, int64_t end, int thread) {
    std::byte* const panel = panels + static_cast<size_t>(thread) * most_panel_bytes(cols);
    for_each_part(by.weights, begin, end,
                  [&](const Weight& w, int64_t from, int64_t to, int64_t at) {
                    dot_few_rows(w, from, to, rows, panel, by.y + at, by.y_stride);
                  });
  };
  const auto piece = [&](int64_t begin, int64_t end, int thread) {
    if (halves) {
      multiply(halves->first, begin, end, thread);
      multiply(halves->second, begin, end, thread);
      return combine_rows(*args.combine, *halves, begin, end);
    }
    multiply(args, begin, end, thread);
    if (args.epilogue == nullptr) return;
    for (int64_t r = 0; r < args.m; ++r) {
      (*args.epilogue)(r, begin, end, args.y + r * args.y_stride + begin);
    }
  };
  const int64_t columns = halves ? args.weights.front().rows : total_rows(args.weights);
  const int64_t most = halves ? kPieceColsOfHalves : kPieceCols;
  // Sixteen floats are a cache line of y, no two threads write the same one, and a panel's rows. A
  // grain, the shortest piece, is a sixteenth of a thread's share, of long ones less.
  const int64_t sixteenth = round_up(divide_up(columns, 16 * pool.threads()), kPanelRows);
  const int64_t grain = std::min(sixteenth, halves ? kPieceColsOfHalves / 4 : kPieceCols);
  pool.parallel_guided(columns, grain, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t at = begin; at < end; at += most) piece(at, std::min(at + most, end), thread);
  });
}

// ---- Many rows of float weights: blocks of them expanded to float32.

// Rounds a packed strip if both operands are to be bfloat16.
void finish_strip(const LinearArgs& args, const StripRequest& want) {
  if (args.bf16) round_to_bf16(want.panel, want.padded_rows * want.depth);
}

void pack_activations(const LinearArgs& args, const StripRequest& want) {
  pack_strip({args.x + want.row * args.x_stride + want.k, args.x_stride, 1}, want.rows,
             want.padded_rows, want.depth, want.padded_rows, want.panel);
  finish_strip(args, want);
}

// Packs weight rows: of one float32 matrix as they are, else in pieces of 16 × 256, 16 KiB of
// floats that are still in L1 when they are transposed, into as many bytes of whole cache lines.
void pack_weights(std::span<const Weight> weights, const StripRequest& want) {
  if (weights.size() == 1 && weights.front().dtype == DType::kF32) {
    const int64_t cols = weights.front().cols;
    const float* x = static_cast<const float*>(weights.front().data) + want.row * cols + want.k;
    return pack_strip({x, cols, 1}, want.rows, want.padded_rows, want.depth, want.padded_rows,
                      want.panel);
  }
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

// `weights` are all float, all in rows or all in panels; their first row is column `column` of y.
void linear_many(ThreadPool& pool, const LinearArgs& args, std::span<const Weight> weights,
                 int64_t column) {
  auto pack_a = [&](const StripRequest& want) { pack_activations(args, want); };
  const bool panels = in_panels(weights.front().layout);
  auto pack_b = [&](const StripRequest& want) {
    panels ? pack_panels(weights, want) : pack_weights(weights, want);
    finish_strip(args, want);
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
                         .epilogue_column = column,
                         .a_rows = args.bf16 ? nullptr : args.x,
                         .a_row_stride = args.x_stride});
}

// What multiplies many rows with some weights.
using ManyRows = void (*)(ThreadPool& pool, const LinearArgs& args, std::span<const Weight> weights,
                          int64_t column);
struct Product {
  TileProduct tiles;
  ManyRows run;  // without them
  Layout layout;

  friend bool operator==(const Product&, const Product&) = default;
};

Product product_for(const LinearArgs& args, const Weight& w) {
  Product product = {.tiles = tile_product_for(args, w), .run = linear_many, .layout = w.layout};
  if (product.tiles.unit != nullptr) return product;
  if (is_quantized(w.dtype)) {
    product.run = takes_split_product(w) ? split_product : int8_product;
  } else if (takes_int16_product(w)) {
    product.run = int16_product;
  }
  return product;
}

// Calls product(weights, column) for the longest runs of weights of which `kind` says the same.
template <class Kind, class Product>
void for_each_run(std::span<const Weight> weights, Kind&& kind, Product&& product) {
  int64_t column = 0;
  for (size_t begin = 0, end = 0; begin < weights.size(); begin = end) {
    while (end < weights.size() && kind(weights[end]) == kind(weights[begin])) ++end;
    const auto run = weights.subspan(begin, end - begin);
    product(run, column);
    column += total_rows(run);
  }
}

}  // namespace

size_t linear_workspace_bytes(int64_t m, int64_t cols, int threads, bool as_panels, bool bf16) {
  size_t bytes = few_rows_bytes(m, cols);
  if (bf16) bytes = std::max(bytes, blocked_product_bytes(m, cols, threads));
  if (as_panels) bytes += static_cast<size_t>(threads) * most_panel_bytes(cols);
  if (m > kFewRowsOfNibbles) {
    bytes =
        std::max({bytes, int8_product_bytes(m, cols, threads),
                  int16_product_bytes(m, cols, threads), blocked_product_bytes(m, cols, threads)});
  }
  if (m >= kTileUnitRows) bytes = std::max(bytes, amx_product_bytes(m, cols, threads));
  return bytes;
}

bool linear_takes_bf16(int64_t m, int64_t cols) {
  return m >= kTileUnitRows && cols > 0 && bf16_unit() != nullptr;
}

bool linear_gives_bf16(int64_t m, int64_t cols) {
  return linear_takes_bf16(m, cols) && cols <= kMaxPassDepth;
}

// Both products at once where that saves a pass over them, else one after the other.
static void linear_combined(ThreadPool& pool, const LinearArgs& args) {
  const Weight &w = args.weights[0], &other = args.weights[1];
  LUMEN_CHECK(args.weights.size() == 2 && w.rows == other.rows && args.epilogue == nullptr &&
              args.y_type == DType::kF32);
  Halves halves = {.first = args, .second = args};
  auto& [first, second] = halves;
  first.workspace = second.workspace = args.workspace + combine_bytes(args.m, w.rows);
  first.combine = second.combine = nullptr;
  first.weights = args.weights.first(1);
  second.weights = args.weights.last(1);
  second.y = reinterpret_cast<float*>(args.workspace);
  second.y_stride = w.rows;

  LinearArgs both = args;
  both.workspace = first.workspace;
  const bool alike = is_quantized(w.dtype) == is_quantized(other.dtype);
  if (alike && args.m <= few_rows(args.weights) && !args.bf16) {
    return linear_few(pool, both, &halves);
  }
  const Product product = product_for(args, w);
  if (product.tiles.unit != nullptr && product == product_for(args, other) &&
      amx_product_combines(w.rows, w.cols)) {
    return linear_tiles(pool, product.tiles, both, args.weights, 0);
  }
  const auto combine = [&](int64_t row, int64_t begin, int64_t end, float* piece) {
    float* const y = args.y + row * args.y_stride + begin;
    (*args.combine)(y, piece, end - begin, y);
  };
  const Epilogue epilogue = combine;
  second.epilogue = &epilogue;
  linear(pool, first);
  linear(pool, second);
}

size_t combine_bytes(int64_t m, int64_t rows) {
  return static_cast<size_t>(round_up(m * rows * int64_t{sizeof(float)}, 64));
}

void linear(ThreadPool& pool, const LinearArgs& args) {
  if (args.m == 0 || args.weights.empty()) return;
  static_assert(kFewRowsPanels < kTileUnitRows);
  if (args.combine) return linear_combined(pool, args);
  if (args.m <= few_rows(args.weights) && !args.bf16) return linear_few(pool, args, nullptr);
  const auto kind = [&](const Weight& w) { return product_for(args, w); };
  for_each_run(args.weights, kind, [&](auto weights, int64_t column) {
    const Product product = kind(weights.front());
    if (product.tiles.unit != nullptr) {
      linear_tiles(pool, product.tiles, args, weights, column);
    } else {
      LUMEN_CHECK(args.x_type == DType::kF32 && args.y_type == DType::kF32);
      product.run(pool, args, weights, column);
    }
  });
}

}  // namespace lumen::kernels
