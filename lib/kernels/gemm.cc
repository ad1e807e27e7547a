#include "lib/kernels/blocked_product.h"
#include "lib/kernels/gemm_tile.h"
#include "lib/kernels/matmul.h"

namespace lumen::kernels {

size_t gemm_workspace_bytes(int64_t m, int64_t, int64_t k, int threads) {
  return blocked_product_bytes(m, k, threads);
}

void gemm(ThreadPool& pool, const GemmArgs& args) {
  auto pack = [](const float* x, int64_t row_stride, int64_t col_stride, const StripRequest& want) {
    const float* corner = x + want.row * row_stride + want.k * col_stride;
    pack_strip({corner, row_stride, col_stride}, want.rows, want.padded_rows, want.depth,
               want.padded_rows, want.panel);
  };
  auto pack_a = [&](const StripRequest& want) {
    pack(args.a, args.a_row_stride, args.a_col_stride, want);
  };
  // Strips of B run along its columns: its transpose is what gets packed.
  auto pack_b = [&](const StripRequest& want) {
    pack(args.b, args.b_col_stride, args.b_row_stride, want);
  };
  blocked_product(pool, {.m = args.m,
                         .n = args.n,
                         .k = args.k,
                         .pack_a = pack_a,
                         .pack_b = pack_b,
                         .c = args.c,
                         .c_stride = args.c_stride,
                         .workspace = args.workspace,
                         .epilogue = nullptr,
                         .accumulate = args.accumulate});
}

}  // namespace lumen::kernels
