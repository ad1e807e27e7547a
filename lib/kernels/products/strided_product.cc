#include "lib/kernels/products/strided_product.h"

#include <algorithm>
#include <type_traits>

#include "lib/base/round_up.h"
#include "lib/kernels/cache_sizes.h"
#include "lib/kernels/products/blocked_product.h"
#include "lib/kernels/products/gemm_tile.h"
#include "lib/kernels/products/small_product.h"
#include "lib/kernels/products/vector_product.h"
#include "lib/kernels/streaming.h"
#include "lib/kernels/tiles/bf16_panels.h"

namespace lumen::kernels {
namespace {

// Multiplications that are worth a thread.
constexpr int64_t kGrain = 32768;

int64_t grain_of(int64_t multiplications) {
  return std::max<int64_t>(1, kGrain / std::max<int64_t>(1, multiplications));
}

template <typename T>
constexpr int64_t block_depth() {
  return kBlockDepth * static_cast<int64_t>(sizeof(float)) / static_cast<int64_t>(sizeof(T));
}

// Numbers that the workspace holds at least, whatever m is.
template <typename T>
int64_t room_for(const ThreadPool& pool) {
  const size_t bytes = std::is_same_v<T, float> ? blocked_product_bytes(0, 0, pool.threads())
                                                : blocked_product_f64_bytes(0, 0, pool.threads());
  return static_cast<int64_t>(bytes / sizeof(T));
}

// y[i] (+)= Σ_k a[i][k] · x[k]: what both kinds of products with a vector come to.
template <typename T>
struct VectorProduct {
  int64_t rows, depth;
  const T* a;
  int64_t row_stride, col_stride;
  const T* x;
  int64_t x_stride;
  T* y;
  int64_t y_stride;
  bool is_row;  // y is a row of C, else a column
  const StridedProduct<T>& product;

  void finish(int64_t begin, int64_t end) const {
    if (product.epilogue == nullptr) return;
    if (is_row) return (*product.epilogue)(0, begin, end, y + begin);
    for (int64_t i = begin; i < end; ++i) (*product.epilogue)(i, 0, 1, y + i * y_stride);
  }
  // Whether the sums of a block are added to what y holds: blocks are taken in order.
  bool adds(int64_t block) const { return block > 0 || product.accumulate; }
  void put(int64_t i, int64_t block, T sum) const {
    T& to = y[i * y_stride];
    to = adds(block) ? to + sum : sum;
  }
  // Element i of y from the sums of its blocks, so far apart.
  void add_up(int64_t i, const T* sums, int64_t apart, int64_t blocks) const {
    for (int64_t block = 0; block < blocks; ++block) put(i, block, sums[block * apart]);
  }
};

template <typename T>
VectorProduct<T> with_column(const StridedProduct<T>& p) {
  return {p.m,        p.k,   p.a, p.a_row_stride, p.a_col_stride, p.b, p.b_row_stride, p.c,
          p.c_stride, false, p};
}
template <typename T>
VectorProduct<T> with_row(const StridedProduct<T>& p) {
  return {p.n, p.k, p.b, p.b_col_stride, p.b_row_stride, p.a, p.a_col_stride, p.c, 1, true, p};
}

// Rows of A and the vector lie together.
template <typename T>
void multiply_rows_by_vector(ThreadPool& pool, const VectorProduct<T>& v) {
  const int64_t blocks = divide_up(v.depth, kRowBlock);
  auto dot = [&](int64_t row, int64_t rows, int64_t block, T* sums) {
    const int64_t k = block * kRowBlock;
    dot_rows_with(v.a + row * v.row_stride + k, v.row_stride, rows, v.x + k,
                  std::min(kRowBlock, v.depth - k), sums);
  };
  if (blocks > 1 && v.rows < 8 * pool.threads() && v.rows * blocks <= room_for<T>(pool)) {
    T* const sums = reinterpret_cast<T*>(v.product.workspace);
    pool.parallel_for(v.rows * blocks, grain_of(kRowBlock), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        dot(i / blocks, 1, i % blocks, sums + i);
      }
    });
    for (int64_t i = 0; i < v.rows; ++i) v.add_up(i, sums + i * blocks, 1, blocks);
    return v.finish(0, v.rows);
  }
  pool.parallel_for(v.rows, grain_of(v.depth), [&](int64_t begin, int64_t end, int) {
    constexpr int64_t kRows = 16;
    T sums[kRows];
    for (int64_t i = begin; i < end; i += kRows) {
      const int64_t count = std::min(kRows, end - i);
      for (int64_t block = 0; block < blocks; ++block) {
        dot(i, count, block, sums);
        for (int64_t t = 0; t < count; ++t) v.put(i + t, block, sums[t]);
      }
    }
    v.finish(begin, end);
  });
}

// Columns of A lie together: what blocked_product adds up, to the bit.
template <typename T>
void multiply_columns_by_vector(ThreadPool& pool, const VectorProduct<T>& v) {
  constexpr int64_t kDepth = block_depth<T>();
  constexpr int64_t kLine = 64 / sizeof(T);
  const int64_t blocks = divide_up(v.depth, kDepth);
  auto sum = [&](int64_t at, int64_t cols, int64_t block, bool add, T* y) {
    const int64_t k = block * kDepth;
    sum_rows_times(v.a + k * v.col_stride + at, v.col_stride, cols, v.x + k * v.x_stride,
                   v.x_stride, std::min(kDepth, v.depth - k), add, y);
  };
  if (pool.threads() > 1 && v.rows < pool.threads() * 8 * kLine && v.rows <= kColumnChunk &&
      v.rows * blocks <= room_for<T>(pool)) {
    T* const sums = reinterpret_cast<T*>(v.product.workspace);
    pool.parallel_for(blocks, grain_of(v.rows * kDepth), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) sum(0, v.rows, i, false, sums + i * v.rows);
    });
    for (int64_t i = 0; i < v.rows; ++i) v.add_up(i, sums + i, v.rows, blocks);
    return v.finish(0, v.rows);
  }
  const int64_t grain = round_up(grain_of(v.depth), kLine);
  pool.parallel_for(v.rows, grain, [&](int64_t begin, int64_t end, int) {
    T room[kColumnChunk];
    for (int64_t at = begin; at < end; at += kColumnChunk) {
      const int64_t cols = std::min(kColumnChunk, end - at);
      if (v.y_stride == 1) {
        for (int64_t i = 0; i < blocks; ++i) {
          sum(at, cols, i, v.adds(i), v.y + at);
        }
        continue;
      }
      for (int64_t i = 0; i < blocks; ++i) {
        sum(at, cols, i, false, room);
        for (int64_t j = 0; j < cols; ++j) v.put(at + j, i, room[j]);
      }
    }
    v.finish(begin, end);
  });
}

// False if the numbers of the operands lie in another way.
template <typename T>
bool multiply_by_vector(ThreadPool& pool, const VectorProduct<T>& v) {
  if (v.col_stride == 1 && v.x_stride == 1) {
    multiply_rows_by_vector(pool, v);
  } else if (v.row_stride == 1) {
    multiply_columns_by_vector(pool, v);
  } else {
    return false;
  }
  return true;
}

// A column of numbers by a row of them, whose numbers lie together.
template <typename T>
struct OuterProduct {
  int64_t rows, cols;
  const T* column;
  int64_t column_stride;
  const T* row;
  T* c;
  int64_t c_stride;
};

template <typename T>
void multiply_outer(ThreadPool& pool, const OuterProduct<T>& outer, const StridedProduct<T>& p) {
  const bool past_caches = !p.accumulate && p.epilogue == nullptr &&
                           streams(outer.rows * outer.cols * static_cast<int64_t>(sizeof(T)));
  auto fill = [&](int64_t i, int64_t begin, int64_t end) {
    T* const piece = outer.c + i * outer.c_stride + begin;
    scale_row(outer.column[i * outer.column_stride], outer.row + begin, end - begin, p.accumulate,
              past_caches, piece);
    if (p.epilogue != nullptr) (*p.epilogue)(i, begin, end, piece);
  };
  const bool splits_rows = outer.rows >= pool.threads();
  pool.parallel_for(
      splits_rows ? outer.rows : outer.cols, grain_of(splits_rows ? outer.cols : outer.rows),
      [&](int64_t begin, int64_t end, int) {
        for (int64_t i = splits_rows ? begin : 0; i < (splits_rows ? end : outer.rows); ++i) {
          splits_rows ? fill(i, 0, outer.cols) : fill(i, begin, end);
        }
        if (past_caches) finish_streams();
      });
}

// False if this is no such product, or one of numbers that do not lie together.
template <typename T>
bool multiply_outer(ThreadPool& pool, const StridedProduct<T>& p) {
  if (p.k != 1) return false;
  if (p.n == 1 && p.c_stride == 1 && p.a_row_stride == 1 && p.epilogue == nullptr) {
    multiply_outer<T>(pool, {1, p.m, p.b, 0, p.a, p.c, p.m}, p);
  } else if (p.b_col_stride == 1) {
    multiply_outer<T>(pool, {p.m, p.n, p.a, p.a_row_stride, p.b, p.c, p.c_stride}, p);
  } else {
    return false;
  }
  return true;
}

// Part of a product of at most kSmallCols columns: c = the sums over columns [k, k + depth) of A,
// each one chain. Rows of B are read where they lie, columns are turned first, some at a time.
template <typename T>
void multiply_in_registers(const StridedProduct<T>& p, int64_t k, int64_t depth, T* c,
                           int64_t c_stride) {
  constexpr int64_t kPart = 32;
  T turned[kPart * kSmallCols];
  SmallProduct<T> part{.m = p.m,
                       .n = p.n,
                       .depth = depth,
                       .a = p.a + k * p.a_col_stride,
                       .a_row_stride = p.a_row_stride,
                       .a_col_stride = p.a_col_stride,
                       .b = p.b + k * p.b_row_stride,
                       .b_stride = p.b_row_stride,
                       .go_on = false,
                       .c = c,
                       .c_stride = c_stride};
  if (p.b_col_stride == 1) return small_product(part);
  part.b = turned;
  part.b_stride = p.n;
  for (int64_t at = 0; at < depth; at += kPart, part.go_on = true) {
    part.depth = std::min(kPart, depth - at);
    part.a = p.a + (k + at) * p.a_col_stride;
    pack_strip(StripSourceOf<T>{p.b + (k + at) * p.b_row_stride, p.b_col_stride, p.b_row_stride},
               p.n, p.n, part.depth, p.n, turned);
    small_product(part);
  }
}

// Whether packing the operands would take longer than their product.
template <typename T>
bool is_small(const StridedProduct<T>& p) {
  constexpr int64_t kMost = 32;
  return p.m <= kMost && p.n <= kSmallCols && p.k <= kMost && !p.accumulate;
}

template <typename T>
void multiply_small(const StridedProduct<T>& p) {
  multiply_in_registers(p, 0, p.k, p.c, p.c_stride);
  for (int64_t i = 0; p.epilogue != nullptr && i < p.m; ++i) {
    (*p.epilogue)(i, 0, p.n, p.c + i * p.c_stride);
  }
}

// A small C of a deep product: its sums over blocks of the depth are computed side by side and
// added in order, to the bits of blocked_product. False if it is another product.
template <typename T>
bool multiply_deep(ThreadPool& pool, const StridedProduct<T>& p) {
  constexpr int64_t kMostRows = 32, kDepth = block_depth<T>();
  const int64_t blocks = divide_up(p.k, kDepth), size = p.m * p.n;
  if (p.m > kMostRows || p.n > kSmallCols || blocks < 8 || size * blocks > room_for<T>(pool)) {
    return false;
  }
  T* const sums = reinterpret_cast<T*>(p.workspace);
  pool.parallel_for(blocks, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      multiply_in_registers(p, i * kDepth, std::min(kDepth, p.k - i * kDepth), sums + i * size,
                            p.n);
    }
  });
  for (int64_t i = 0; i < p.m; ++i) {
    T* const row = p.c + i * p.c_stride;
    if (!p.accumulate) std::copy_n(sums + i * p.n, p.n, row);
    for (int64_t block = p.accumulate ? 0 : 1; block < blocks; ++block) {
      const T* const more = sums + block * size + i * p.n;
      for (int64_t j = 0; j < p.n; ++j) row[j] += more[j];
    }
    if (p.epilogue != nullptr) (*p.epilogue)(i, 0, p.n, row);
  }
  return true;
}

void run(ThreadPool& pool, const BlockedProduct& product) {
  blocked_product(pool, product);
}
void run(ThreadPool& pool, const BlockedProductOf<double>& product) {
  blocked_product_f64(pool, product);
}

template <typename T>
void multiply_blocks(ThreadPool& pool, const StridedProduct<T>& p) {
  auto is_large = [&](int64_t rows) {
    return rows * p.k * static_cast<int64_t>(sizeof(T)) > second_cache_bytes();
  };
  const StripSourceOf<T> a = {p.a, p.a_row_stride, p.a_col_stride, is_large(p.m)};
  // Strips of B run along its columns: its transpose is what gets packed.
  const StripSourceOf<T> b = {p.b, p.b_col_stride, p.b_row_stride, is_large(p.n)};
  auto pack = [&](StripSourceOf<T> from, const StripRequestOf<T>& want) {
    from.x += want.row * from.row_stride + want.k * from.col_stride;
    pack_strip(from, want.rows, want.padded_rows, want.depth, want.padded_rows, want.panel);
    if constexpr (std::is_same_v<T, float>) {
      if (p.rounds) round_to_bf16(want.panel, want.padded_rows * want.depth);
    }
  };
  auto pack_a = [&](const StripRequestOf<T>& want) { pack(a, want); };
  auto pack_b = [&](const StripRequestOf<T>& want) { pack(b, want); };
  run(pool, BlockedProductOf<T>{.m = p.m,
                                .n = p.n,
                                .k = p.k,
                                .pack_a = pack_a,
                                .pack_b = pack_b,
                                .a_depth = p.a_col_stride == 1 ? block_depth<T>() : kColumnDepth,
                                .b_depth = p.b_row_stride == 1 ? block_depth<T>() : kColumnDepth,
                                .c = p.c,
                                .c_stride = p.c_stride,
                                .workspace = p.workspace,
                                .epilogue = p.epilogue,
                                .accumulate = p.accumulate,
                                .a_rows = p.a_col_stride == 1 && !p.rounds ? p.a : nullptr,
                                .a_row_stride = p.a_row_stride});
}

template <typename T>
void multiply(ThreadPool& pool, const StridedProduct<T>& p) {
  if (p.m > 0 && p.n > 0 && p.k > 0 && !p.rounds) {
    if (multiply_outer(pool, p)) return;
    if (p.n == 1 && multiply_by_vector(pool, with_column(p))) return;
    if (p.m == 1 && multiply_by_vector(pool, with_row(p))) return;
    if (is_small(p)) return multiply_small(p);
    if (multiply_deep(pool, p)) return;
  }
  multiply_blocks(pool, p);
}

}  // namespace

void strided_product(ThreadPool& pool, const StridedProduct<float>& product) {
  multiply(pool, product);
}
void strided_product(ThreadPool& pool, const StridedProduct<double>& product) {
  multiply(pool, product);
}

}  // namespace lumen::kernels
