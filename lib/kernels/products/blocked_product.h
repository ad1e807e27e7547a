// The blocked matrix product behind `gemm` and behind `linear` with many rows: what is packed, how
// it is divided into cache-sized blocks and among the threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/function_ref.h"
#include "lib/base/pool.h"
#include "lib/kernels/matmul.h"

namespace lumen::kernels {

// Part of a matrix to be packed: rows [row, row + rows), padded to padded_rows, of columns [k, k +
// depth), in strips as pack_strip makes them.
template <typename T>
struct StripRequestOf {
  int64_t row, rows, padded_rows;
  int64_t k, depth;
  T* panel;    // [depth][padded_rows]
  T* scratch;  // of this thread, as large as kScratchFloats floats
};
using StripRequest = StripRequestOf<float>;

// At most this many consecutive columns are asked for at once; half as many of float64.
inline constexpr int64_t kBlockDepth = 512;
// As many where columns lie together.
inline constexpr int64_t kColumnDepth = 32;
// Room for sixteen rows of a request.
inline constexpr int64_t kScratchFloats = 16 * kBlockDepth;

// c[i][j] = Σ_k a[i][k] · b[j][k] for m × n elements. pack_a and pack_b supply the operands; they
// run on the computing threads and must give the same values whenever asked.
template <typename T>
struct BlockedProductOf {
  int64_t m, n, k;
  FunctionRef<void(const StripRequestOf<T>&)> pack_a;
  FunctionRef<void(const StripRequestOf<T>&)> pack_b;
  // Columns of a request, before other strips are asked for theirs: few if columns, not rows, lie
  // together, so that rows are read along their lines.
  int64_t a_depth = kBlockDepth, b_depth = kBlockDepth;
  T* c;
  int64_t c_stride;
  std::byte* workspace;           // blocked_product_bytes(...), 64-byte aligned
  const EpilogueOf<T>* epilogue;  // null if none; `epilogue_column` is added to its columns
  int64_t epilogue_column = 0;
  bool accumulate = false;  // c += instead of c =
  // Not null: a[i][k] is a_rows[i · a_row_stride + k]. Only the last rows are asked of pack_a then,
  // if the others can be multiplied where they lie.
  const T* a_rows = nullptr;
  int64_t a_row_stride = 0;
};
using BlockedProduct = BlockedProductOf<float>;

// Bytes of workspace for any n; never decreases with m.
size_t blocked_product_bytes(int64_t m, int64_t k, int threads);
size_t blocked_product_f64_bytes(int64_t m, int64_t k, int threads);

// Every element is summed over k in the same order and grouping whatever m, n and the number of
// threads are. Does not allocate. noexcept.
void blocked_product(ThreadPool& pool, const BlockedProduct& product);
void blocked_product_f64(ThreadPool& pool, const BlockedProductOf<double>& product);

}  // namespace lumen::kernels
