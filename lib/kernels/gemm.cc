#include <algorithm>

#include "lib/kernels/amx_product.h"
#include "lib/kernels/blocked_product.h"
#include "lib/kernels/gemm_tile.h"
#include "lib/kernels/matmul.h"

namespace lumen::kernels {
namespace {

thread_local bool exact_products = false;

// Three products of parts and the packing of tiles that are partly empty pay from about here on.
bool is_worth_tiles(int64_t m, int64_t n, int64_t k) {
  return m >= 32 && n >= 16 && k >= 32;
}

void gemm_tiles(ThreadPool& pool, const TileUnit& unit, const GemmArgs& args) {
  auto pack_a = [&](const PanelRequest& want) {
    const float* corner = args.a + want.row * args.a_row_stride + want.k * args.a_col_stride;
    return pack_bf16_panel({corner, args.a_row_stride, args.a_col_stride}, want.rows, want.depth,
                           PanelOrder::kRows, want.panel);
  };
  auto pack_b = [&](const PanelRequest& want) {
    const float* corner = args.b + want.row * args.b_col_stride + want.k * args.b_row_stride;
    return pack_bf16_panel({corner, args.b_col_stride, args.b_row_stride}, want.rows, want.depth,
                           PanelOrder::kPairs, want.panel);
  };
  amx_product(pool, unit,
              {.m = args.m,
               .n = args.n,
               .k = args.k,
               .pack_a = pack_a,
               .pack_b = pack_b,
               .a_depth = args.a_col_stride == 1 ? kBlockDepth : kColumnDepth,
               .products = args.bf16 ? 1 : 4,
               .c = args.c,
               .c_stride = args.c_stride,
               .workspace = args.workspace,
               .epilogue = nullptr,
               .accumulate = args.accumulate});
}

}  // namespace

ExactProductsScope::ExactProductsScope(bool exact) : previous_(exact_products) {
  exact_products |= exact;
}
ExactProductsScope::~ExactProductsScope() {
  exact_products = previous_;
}
bool ExactProductsScope::active() {
  return exact_products;
}

size_t gemm_workspace_bytes(int64_t m, int64_t n, int64_t k, int threads) {
  const size_t bytes = blocked_product_bytes(m, k, threads);
  return is_worth_tiles(m, n, k) ? std::max(bytes, amx_product_bytes(m, k, threads)) : bytes;
}

void gemm(ThreadPool& pool, const GemmArgs& args) {
  if (is_worth_tiles(args.m, args.n, args.k)) {
    const TileUnit* const unit = args.bf16 ? bf16_unit() : tile_unit();
    if (unit != nullptr) return gemm_tiles(pool, *unit, args);
  }
  auto pack = [&](const float* x, int64_t row_stride, int64_t col_stride,
                  const StripRequest& want) {
    const float* corner = x + want.row * row_stride + want.k * col_stride;
    pack_strip({corner, row_stride, col_stride}, want.rows, want.padded_rows, want.depth,
               want.padded_rows, want.panel);
    if (args.bf16) round_to_bf16(want.panel, want.padded_rows * want.depth);
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
                         .a_depth = args.a_col_stride == 1 ? kBlockDepth : kColumnDepth,
                         .b_depth = args.b_row_stride == 1 ? kBlockDepth : kColumnDepth,
                         .c = args.c,
                         .c_stride = args.c_stride,
                         .workspace = args.workspace,
                         .epilogue = nullptr,
                         .accumulate = args.accumulate,
                         .a_rows = args.a_col_stride == 1 && !args.bf16 ? args.a : nullptr,
                         .a_row_stride = args.a_row_stride});
}

}  // namespace lumen::kernels
