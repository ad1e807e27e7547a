// Cross-entropy of hidden · weightᵀ in chunks of rows: logits → loss → their gradient, softmax −
// one-hot, in place → its part of both gradients.
#include <algorithm>

#include "lib/base/round_up.h"
#include "lib/kernels/cross_entropy.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/tiles/amx_product.h"
#include "lib/kernels/tiles/tiled_cross_entropy.h"

namespace lumen::kernels {
namespace {

// A chunk of logits has at most about this many numbers (64 MiB): so many rows that packing the
// weight for them, and reading and writing its gradient once more, pays. It has no more rows than
// products pack the weight for once, nor than the gradient's sums take in one block.
constexpr int64_t kChunkFloats = int64_t{1} << 24;
constexpr int64_t kHeight = 2 * kTileRows;
constexpr int64_t kMinRows = 2 * kHeight, kMaxRows = kBlockDepth;
static_assert(kMaxRows % kHeight == 0 && kMaxRows <= kMaxAmxRows);

// Chunks are alike but for the tile's height: a short last one would cost as much packing.
int64_t chunk_rows(int64_t rows, int64_t classes) {
  const int64_t fitting =
      std::clamp(kChunkFloats / std::max<int64_t>(1, classes), kMinRows, kMaxRows);
  const int64_t chunks = std::max<int64_t>(1, divide_up(rows, fitting));
  return std::min(rows, round_up(divide_up(rows, chunks), kHeight));
}

size_t aligned(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

size_t logits_bytes(int64_t rows, int64_t classes) {
  return aligned(static_cast<size_t>(chunk_rows(rows, classes) * classes) * sizeof(float));
}

size_t losses_bytes(int64_t rows) {
  return aligned(static_cast<size_t>(rows) * sizeof(float));
}

// Gradients and losses by products of whole matrices.
void multiply_chunks(ThreadPool& pool, const LinearCrossEntropy& args, std::byte* workspace,
                     float* losses) {
  const int64_t chunk = chunk_rows(args.rows, args.classes), dim = args.dim, classes = args.classes;
  auto* logits = reinterpret_cast<float*>(workspace);
  workspace += logits_bytes(args.rows, classes);
  if (args.dweight && args.rows == 0) std::fill_n(args.dweight, classes * dim, 0.0f);
  for (int64_t row = 0; row < args.rows; row += chunk) {
    const int64_t rows = std::min(chunk, args.rows - row);
    const float* hidden = args.hidden + row * dim;
    gemm(pool, {.m = rows,
                .n = classes,
                .k = dim,
                .a = hidden,
                .a_row_stride = dim,
                .a_col_stride = 1,
                .b = args.weight,
                .b_row_stride = 1,
                .b_col_stride = dim,
                .c = logits,
                .c_stride = classes,
                .workspace = workspace,
                .bf16 = args.bf16});
    cross_entropy_in_place(
        pool, {.logits = {logits, rows, classes, classes}, .targets = args.targets + row},
        args.token_weights + row, args.logit_cap, losses + row, logits);
    if (args.dhidden) {
      gemm(pool, {.m = rows,
                  .n = dim,
                  .k = classes,
                  .a = logits,
                  .a_row_stride = classes,
                  .a_col_stride = 1,
                  .b = args.weight,
                  .b_row_stride = dim,
                  .b_col_stride = 1,
                  .c = args.dhidden + row * dim,
                  .c_stride = dim,
                  .workspace = workspace,
                  .bf16 = args.bf16});
    }
    if (args.dweight) {
      gemm(pool, {.m = classes,
                  .n = dim,
                  .k = rows,
                  .a = logits,
                  .a_row_stride = 1,
                  .a_col_stride = classes,
                  .b = hidden,
                  .b_row_stride = dim,
                  .b_col_stride = 1,
                  .c = args.dweight,
                  .c_stride = dim,
                  .workspace = workspace,
                  .accumulate = row > 0,
                  .bf16 = args.bf16});
    }
  }
}

}  // namespace

size_t linear_cross_entropy_workspace_bytes(int64_t rows, int64_t dim, int64_t classes, int threads,
                                            bool bf16) {
  const int64_t chunk = chunk_rows(rows, classes);
  const size_t products = std::max({gemm_workspace_bytes(chunk, classes, dim, threads),
                                    gemm_workspace_bytes(chunk, dim, classes, threads),
                                    gemm_workspace_bytes(classes, dim, chunk, threads)});
  const size_t chunks = logits_bytes(rows, classes) + products;
  return losses_bytes(rows) +
         (is_worth_tiled_loss(rows, dim, classes)
              ? std::max(chunks, tiled_loss_bytes(rows, dim, classes, threads, bf16))
              : chunks);
}

void linear_cross_entropy(ThreadPool& pool, const LinearCrossEntropy& args) {
  auto* losses = reinterpret_cast<float*>(args.workspace);
  std::byte* workspace = args.workspace + losses_bytes(args.rows);
  const TileUnit* const unit = args.bf16 ? bf16_unit() : tile_unit();
  if (unit == nullptr || !is_worth_tiled_loss(args.rows, args.dim, args.classes) ||
      !tiled_linear_cross_entropy(pool, *unit, args, workspace, losses)) {
    multiply_chunks(pool, args, workspace, losses);
  }
  double total = 0;
  for (int64_t row = 0; row < args.rows; ++row) {
    if (args.token_weights[row] != 0) total += double{args.token_weights[row]} * losses[row];
  }
  *args.loss = static_cast<float>(total);
}

}  // namespace lumen::kernels
