// The blocked matrix product on tiles (amx.h), behind `gemm` and behind `linear` with many rows:
// blocked_product's counterpart for bfloat16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/function_ref.h"
#include "lib/base/pool.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/panels.h"
#include "lib/kernels/products/blocked_product.h"
#include "lib/kernels/tiles/bf16_panels.h"

namespace lumen::kernels {

// A panel to be packed: rows [row, row + rows), at most kTileRows, of columns [k, k + depth), at
// most kBlockDepth, in the order of its operand.
struct PanelRequest {
  int64_t row, rows;
  int64_t k, depth;
  Bf16Panel panel;
  float* scratch;  // kScratchFloats of this thread
};

// b is packed anew for every so many rows of a, and C is added to for every so many columns.
inline constexpr int64_t kMaxAmxRows = 512;
inline constexpr int64_t kMaxPassDepth = 16 * kBlockDepth;

// c[i][j] = Σ_k a[i][k] · b[j][k] for m × n elements, k ≥ 1; k ≥ 64 for a unit with extra_depth.
// pack_a and pack_b supply the operands (a in PanelOrder::kRows, b in kPairs, or as panels of
// fixed_tiles.h, with what else they hold behind the columns); they run on the computing threads
// and must give the same values whenever asked.
struct AmxProduct {
  int64_t m, n, k;
  FunctionRef<PanelContent(const PanelRequest&)> pack_a;
  FunctionRef<PanelContent(const PanelRequest&)> pack_b;
  // Where panels of B from row `row` on are stored, if anywhere: those of the next strip are
  // fetched while one is multiplied. Null: nothing is known.
  const FunctionRef<StoredColumns(int64_t row, int64_t k, int64_t depth)>* stored_b = nullptr;
  // Columns of a request of A before other panels are asked for theirs, a multiple of kTileDepth:
  // few if columns, not rows, lie together (BlockedProduct).
  int64_t a_depth = kBlockDepth;
  int64_t b_depth = kBlockDepth;  // likewise, of the panels of a block of columns of C
  // 1: only the high parts are asked for. 3, 4: low parts too, where the product of two low parts
  // is left out or not.
  int products;
  float* c;
  int64_t c_stride;
  bool c_transposed = false;  // element (i, j) lies at c[j · c_stride + i]; no epilogue then
  // Not null: c is, and its numbers are rounded and stored here, in rows. k ≤ kMaxPassDepth and
  // neither c_transposed nor `accumulate` then.
  uint16_t* c_bf16 = nullptr;
  std::byte* workspace;      // amx_product_bytes(...), 64-byte aligned
  const Epilogue* epilogue;  // null if none; `epilogue_column` is added to its columns
  int64_t epilogue_column = 0;
  bool accumulate = false;  // c += instead of c =
  // Not null: b is two halves of n / 2 rows, and c [m, n / 2] what this makes of the products with
  // both. amx_product_combines(n / 2, k), c is in rows, and there is nothing else that changes it.
  const Combine* combine = nullptr;
};

// Whether halves of `rows` rows can be combined.
bool amx_product_combines(int64_t rows, int64_t k);

// Bytes of workspace for any n; never decreases with m.
size_t amx_product_bytes(int64_t m, int64_t k, int threads);

// Elements are summed over k in the same order and grouping whatever the number of threads is.
// Infinities and NaNs give what float32 gives. Does not allocate. noexcept.
void amx_product(ThreadPool& pool, const TileUnit& unit, const AmxProduct& product);
// The same, with the same bits, on the calling thread alone; the workspace is one thread's.
void amx_product_alone(const TileUnit& unit, const AmxProduct& product);

}  // namespace lumen::kernels
