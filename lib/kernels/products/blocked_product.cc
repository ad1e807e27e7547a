#include "lib/kernels/products/blocked_product.h"

#include <algorithm>

#include "lib/base/round_up.h"
#include "lib/kernels/cache_sizes.h"
#include "lib/kernels/products/gemm_tile.h"

namespace lumen::kernels {
namespace {

// Sizes are derived in ../README.md. A block of B, kBlockDepth × kBlockCols floats, is 256 KiB and
// stays in L2 while the strips of A pass by; the packed rows of A are at most 4 MiB.
constexpr int64_t kBlockCols = 128;
constexpr int64_t kMaxRows = 2064;  // that are packed at once: a multiple of every tile's height
static_assert(kBlockCols % kMaxTileCols == 0 && kMaxRows % kMaxTileRows == 0);

// Numbers of type T: as many bytes for either type.
template <typename T>
constexpr int64_t numbers(int64_t floats) {
  return floats * static_cast<int64_t>(sizeof(float)) / static_cast<int64_t>(sizeof(T));
}

template <typename T>
struct Sizes {
  static constexpr int64_t kDepth = numbers<T>(kBlockDepth);
  static constexpr int64_t kMaxDepth = 16 * kDepth;
  static constexpr int64_t kPacked = kMaxRows * kDepth;
  static constexpr int64_t kBlock = kBlockCols * kDepth;
  static constexpr int64_t kHeader = numbers<T>(16);  // a line: the column whose block is packed
  static constexpr int64_t kThread = kHeader + kBlock + numbers<T>(kScratchFloats);
};

GemmTile tile_for(const BlockedProduct&) {
  return gemm_tile();
}
GemmTile tile_for(const BlockedProductOf<double>&) {
  return gemm_tile_f64();
}

// One pass: rows [row, row + rows) of C, columns [k, k + depth) of the operands.
template <typename T>
struct Pass {
  static constexpr int64_t kDepth = Sizes<T>::kDepth;

  const BlockedProductOf<T>& product;
  GemmTile tile;
  T* packed_a;  // per block of kDepth columns, the strips of all rows that are packed
  T* thread_memory;
  int64_t row, rows, k, depth;
  int64_t in_place;  // so many of the rows are multiplied where they lie

  int64_t padded_rows() const { return round_up(rows - in_place, tile.step); }
  bool is_first() const { return k == 0; }
  bool is_last() const { return k + depth == product.k; }
  T* block_of(int thread) const {
    return thread_memory + thread * Sizes<T>::kThread + Sizes<T>::kHeader;
  }
  T* scratch_of(int thread) const { return block_of(thread) + Sizes<T>::kBlock; }
  // The first column of the block of B that `thread` has packed, or -1.
  int64_t& packed_column(int thread) const {
    return *reinterpret_cast<int64_t*>(thread_memory + thread * Sizes<T>::kThread);
  }

  // Packs the strips of A that start in rows [begin, end) of the pass.
  void pack_a(int64_t begin, int64_t end, int thread) const {
    for (int64_t at = 0; at < depth; at += kDepth) {
      const int64_t block_depth = std::min(kDepth, depth - at);
      T* block = packed_a + at * padded_rows();
      for (int64_t part = 0; part < block_depth; part += product.a_depth) {
        for (int64_t i = begin; i < end; i += tile.rows) {
          const int64_t height = strip_height(tile, rows, i);
          product.pack_a({.row = row + i,
                          .rows = std::min(height, rows - i),
                          .padded_rows = height,
                          .k = k + at + part,
                          .depth = std::min(product.a_depth, block_depth - part),
                          .panel = block + (i - in_place) * block_depth + part * height,
                          .scratch = scratch_of(thread)});
        }
      }
    }
  }

  // Computes columns [j, j + cols) of rows [first, last) of the pass; `first` starts a strip.
  void multiply(int64_t first, int64_t last, int64_t j, int64_t cols, int thread) const {
    for (int64_t at = 0; at < depth; at += kDepth) {
      const int64_t block_depth = std::min(kDepth, depth - at);
      if (depth > kDepth || packed_column(thread) != j) {
        pack_b(j, cols, at, block_depth, thread);
        packed_column(thread) = j;
      }
      const bool add = product.accumulate || !is_first() || at > 0;
      T* c = product.c + row * product.c_stride + j;
      const int64_t middle = std::clamp(in_place, first, last);
      if (first < middle) {
        multiply_rows(product.a_rows + (row + first) * product.a_row_stride + k + at,
                      product.a_row_stride, middle - first, block_of(thread), cols, block_depth,
                      add, c + first * product.c_stride, product.c_stride);
      }
      if (middle < last) {
        multiply_panels(packed_a + at * padded_rows() + (middle - in_place) * block_depth,
                        last - middle, block_of(thread), cols, block_depth, add,
                        c + middle * product.c_stride, product.c_stride);
      }
    }
    if (product.epilogue != nullptr && is_last()) {
      const int64_t column = product.epilogue_column + j;
      T* piece = product.c + (row + first) * product.c_stride + j;
      for (int64_t i = first; i < last; ++i, piece += product.c_stride) {
        (*product.epilogue)(row + i, column, column + cols, piece);
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
    pool.parallel_pieces(rows - in_place, tile.rows, 8 * tile.rows,
                         [&](int64_t begin, int64_t end, int thread) {
                           pack_a(in_place + begin, in_place + end, thread);
                         });
    for (int thread = 0; thread < pool.threads(); ++thread) packed_column(thread) = -1;
    // Pieces are chunks of rows of a block of columns, those of one block one after another, so
    // that a thread packs its block once.
    const Pieces split = pieces(pool.threads());
    const int64_t width = round_up(divide_up(product.n, split.blocks), tile.cols);
    const int64_t height = round_up(divide_up(rows, split.chunks), tile.rows);
    pool.parallel_pieces(
        split.blocks * split.chunks, 1, 1, [&](int64_t piece, int64_t, int thread) {
          const int64_t j = piece / split.chunks * width, first = piece % split.chunks * height;
          if (j < product.n && first < rows) {
            multiply(first, std::min(first + height, rows), j, std::min(width, product.n - j),
                     thread);
          }
        });
  }

  // Blocks of columns and chunks of rows: some for every thread, and as many for each. A chunk
  // beyond the first costs another packing of each block, unless the block is all of the depth.
  struct Pieces {
    int64_t blocks, chunks;
  };
  Pieces pieces(int64_t threads) const {
    constexpr int64_t kStripsPerChunk = 4;
    int64_t blocks = divide_up(product.n, kBlockCols), chunks = 1;
    int64_t most = std::max<int64_t>(rows / (kStripsPerChunk * tile.rows), 1);
    int64_t wanted = (depth > kDepth ? 2 : 4) * threads;
    if (blocks * most < threads) {  // little work: down to single tiles
      blocks = std::min(divide_up(product.n, tile.cols), threads);
      most = divide_up(rows, tile.rows);
      wanted = threads;
    }
    while (chunks < most && (blocks * chunks < wanted || blocks * chunks % threads != 0)) ++chunks;
    return {blocks, chunks};
  }
};

// What a product over nothing gives.
template <typename T>
void clear(const BlockedProductOf<T>& product) {
  for (int64_t i = 0; i < product.m; ++i) {
    if (!product.accumulate) std::fill_n(product.c + i * product.c_stride, product.n, T{0});
    if (product.epilogue != nullptr) {
      (*product.epilogue)(i, product.epilogue_column, product.epilogue_column + product.n,
                          product.c + i * product.c_stride);
    }
  }
}

// Whether rows of A are multiplied where they lie: not if they are so far apart that those of a
// tile share one set of the first cache, which has too few lines for them.
template <typename T>
bool takes_rows(const GemmTile& tile, const BlockedProductOf<T>& product) {
  constexpr int64_t kSetStride = 4096 / sizeof(T);
  return tile.takes_rows && product.a_rows != nullptr &&
         (product.a_row_stride % kSetStride != 0 || tile.rows <= first_cache_ways());
}

// Columns of one pass over `rows` rows of A: so many that the packed rows stay in L2 if C is small;
// a large C, which every pass reads and writes again, should see few passes.
template <typename T>
int64_t pass_depth(const BlockedProductOf<T>& product, int64_t rows, bool in_place) {
  constexpr int64_t kSmallProduct = numbers<T>(1 << 20), kCached = numbers<T>(1 << 19);
  constexpr int64_t kDepth = Sizes<T>::kDepth, kMaxDepth = Sizes<T>::kMaxDepth;
  const bool is_small = product.m * product.n <= kSmallProduct;
  if (in_place) return is_small ? kDepth : kMaxDepth;
  const int64_t packed = is_small ? kCached : Sizes<T>::kPacked;
  return std::clamp(packed / round_up(rows, kMaxTileRows) / kDepth * kDepth, kDepth, kMaxDepth);
}

template <typename T>
void multiply(ThreadPool& pool, const BlockedProductOf<T>& product) {
  if (product.m == 0 || product.n == 0) return;
  if (product.k == 0) return clear(product);
  auto* memory = reinterpret_cast<T*>(product.workspace);
  const GemmTile tile = tile_for(product);
  const bool in_place = takes_rows(tile, product);
  const int64_t most = in_place ? product.m : kMaxRows;
  for (int64_t row = 0; row < product.m; row += most) {
    const int64_t rows = std::min(most, product.m - row);
    const int64_t depth = pass_depth(product, rows, in_place);
    for (int64_t k = 0; k < product.k; k += depth) {
      const Pass<T> pass{.product = product,
                         .tile = tile,
                         .packed_a = memory + pool.threads() * Sizes<T>::kThread,
                         .thread_memory = memory,
                         .row = row,
                         .rows = rows,
                         .k = k,
                         .depth = std::min(depth, product.k - k),
                         .in_place = in_place ? rows / tile.rows * tile.rows : 0};
      pass.run(pool);
    }
  }
}

template <typename T>
size_t bytes_for(int64_t m, int64_t k, int threads) {
  const int64_t rows = std::min(round_up(m, kMaxTileRows), kMaxRows);
  return (std::min(rows * k, Sizes<T>::kPacked) + threads * Sizes<T>::kThread) * sizeof(T);
}

}  // namespace

size_t blocked_product_bytes(int64_t m, int64_t k, int threads) {
  return bytes_for<float>(m, k, threads);
}
size_t blocked_product_f64_bytes(int64_t m, int64_t k, int threads) {
  return bytes_for<double>(m, k, threads);
}

void blocked_product(ThreadPool& pool, const BlockedProduct& product) {
  multiply(pool, product);
}
void blocked_product_f64(ThreadPool& pool, const BlockedProductOf<double>& product) {
  multiply(pool, product);
}

}  // namespace lumen::kernels
