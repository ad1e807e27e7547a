#include "lib/kernels/blocked_product.h"

#include <algorithm>

#include "lib/base/round_up.h"
#include "lib/kernels/gemm_tile.h"

namespace lumen::kernels {
namespace {

// Sizes are derived in README.md. A block of B, kBlockDepth × kBlockCols floats, is 256 KiB and
// stays in L2 while the strips of A pass by; the packed rows of A are at most 17 MB.
constexpr int64_t kBlockCols = 128;
constexpr int64_t kMaxRows = 516;  // a multiple of every tile height
constexpr int64_t kMaxDepth = 16 * kBlockDepth;

constexpr int64_t kBlockFloats = kBlockCols * kBlockDepth;
constexpr int64_t kThreadFloats = kBlockFloats + kScratchFloats;

static_assert(kMaxRows % kMaxTileRows == 0 && kBlockCols % kMaxTileCols == 0);

// One pass: rows [row, row + rows) of C, columns [k, k + depth) of the operands.
struct Pass {
  const BlockedProduct& product;
  GemmTile tile;
  float* packed_a;  // per block of kBlockDepth columns, the strips of all rows
  float* thread_memory;
  int64_t row, rows, k, depth;

  int64_t padded_rows() const { return round_up(rows, tile.step); }
  bool is_first() const { return k == 0; }
  bool is_last() const { return k + depth == product.k; }
  float* block_of(int thread) const { return thread_memory + thread * kThreadFloats; }
  float* scratch_of(int thread) const { return block_of(thread) + kBlockFloats; }

  // Packs the strips of A that start in rows [begin, end) of the pass.
  void pack_a(int64_t begin, int64_t end, int thread) const {
    for (int64_t at = 0; at < depth; at += kBlockDepth) {
      const int64_t block_depth = std::min(kBlockDepth, depth - at);
      float* block = packed_a + at * padded_rows();
      for (int64_t part = 0; part < block_depth; part += product.a_depth) {
        for (int64_t i = begin; i < end; i += tile.rows) {
          const int64_t height = strip_height(tile, rows, i);
          product.pack_a({.row = row + i,
                          .rows = std::min(height, rows - i),
                          .padded_rows = height,
                          .k = k + at + part,
                          .depth = std::min(product.a_depth, block_depth - part),
                          .panel = block + i * block_depth + part * height,
                          .scratch = scratch_of(thread)});
        }
      }
    }
  }

  // Computes columns [begin, end) of rows [first, last) of the pass; `first` starts a strip.
  void multiply(int64_t first, int64_t last, int64_t begin, int64_t end, int thread) const {
    for (int64_t j = begin; j < end; j += kBlockCols) {
      const int64_t cols = std::min(kBlockCols, end - j);
      for (int64_t at = 0; at < depth; at += kBlockDepth) {
        const int64_t block_depth = std::min(kBlockDepth, depth - at);
        pack_b(j, cols, at, block_depth, thread);
        multiply_panels(packed_a + at * padded_rows() + first * block_depth, last - first,
                        block_of(thread), cols, block_depth,
                        product.accumulate || !is_first() || at > 0,
                        product.c + (row + first) * product.c_stride + j, product.c_stride);
      }
      if (product.epilogue != nullptr && is_last()) {
        const int64_t column = product.epilogue_column + j;
        for (int64_t i = first; i < last; ++i) (*product.epilogue)(row + i, column, column + cols);
      }
    }
  }

  void pack_b(int64_t j, int64_t cols, int64_t at, int64_t block_depth, int thread) const {
    for (int64_t part = 0; part < block_depth; part += product.b_depth) {
      for (int64_t strip = 0; strip < cols; strip += tile.cols) {
        product.pack_b({.row = j + strip,
                        .rows = std::min(tile.cols, cols - strip),
                        .padded_rows = tile.cols,
                        .k = k + at + part,
                        .depth = std::min(product.b_depth, block_depth - part),
                        .panel = block_of(thread) + strip * block_depth + part * tile.cols,
                        .scratch = scratch_of(thread)});
      }
    }
  }

  void run(ThreadPool& pool) const {
    pool.parallel_for(rows, tile.rows,
                      [&](int64_t begin, int64_t end, int thread) { pack_a(begin, end, thread); });
    // Columns are divided among the threads, or rows where there are few columns.
    if (product.n >= tile.cols * pool.threads() || product.n >= rows) {
      pool.parallel_pieces(
          product.n, tile.cols, kBlockCols,
          [&](int64_t begin, int64_t end, int thread) { multiply(0, rows, begin, end, thread); });
    } else {
      pool.parallel_for(rows, tile.rows, [&](int64_t begin, int64_t end, int thread) {
        multiply(begin, end, 0, product.n, thread);
      });
    }
  }
};

// What a product over nothing gives.
void clear(const BlockedProduct& product) {
  for (int64_t i = 0; i < product.m; ++i) {
    if (!product.accumulate) std::fill_n(product.c + i * product.c_stride, product.n, 0.0f);
    if (product.epilogue != nullptr) {
      (*product.epilogue)(i, product.epilogue_column, product.epilogue_column + product.n);
    }
  }
}

}  // namespace

size_t blocked_product_bytes(int64_t m, int64_t k, int threads) {
  const int64_t rows = round_up(std::min(m, kMaxRows), kMaxTileRows);
  return (rows * std::min(k, kMaxDepth) + threads * kThreadFloats) * sizeof(float);
}

void blocked_product(ThreadPool& pool, const BlockedProduct& product) {
  if (product.m == 0 || product.n == 0) return;
  if (product.k == 0) return clear(product);
  auto* memory = reinterpret_cast<float*>(product.workspace);
  for (int64_t row = 0; row < product.m; row += kMaxRows) {
    for (int64_t k = 0; k < product.k; k += kMaxDepth) {
      const Pass pass{.product = product,
                      .tile = gemm_tile(),
                      .packed_a = memory + pool.threads() * kThreadFloats,
                      .thread_memory = memory,
                      .row = row,
                      .rows = std::min(kMaxRows, product.m - row),
                      .k = k,
                      .depth = std::min(kMaxDepth, product.k - k)};
      pass.run(pool);
    }
  }
}

}  // namespace lumen::kernels
