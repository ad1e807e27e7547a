#include <algorithm>
#include <utility>

#include "lib/base/check.h"
#include "lib/kernels/amx_product.h"
#include "lib/kernels/blocked_product.h"
#include "lib/kernels/cache_sizes.h"
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
  const bool rounds_c = args.c_type == DType::kBF16;
  PanelSource a = {args.a, args.a_row_stride, args.a_col_stride, args.a_type == DType::kBF16};
  // Its columns are packed.
  PanelSource b = {args.b, args.b_col_stride, args.b_row_stride, args.b_type == DType::kBF16};
  // Panels of B are made of columns that lie together as they are, those of A are turned, which
  // cᵀ = bᵀ aᵀ does to the smaller operand.
  const bool swapped = a.row_stride == 1 && a.col_stride != 1 && b.row_stride == 1 &&
                       args.m > args.n && args.epilogue == nullptr && !rounds_c;
  if (swapped) std::swap(a, b);
  auto pack = [](const PanelSource& x, const PanelRequest& want, PanelOrder order) {
    return pack_bf16_panel(x.at(want.row, want.k), want.rows, want.depth, order, want.panel);
  };
  auto pack_a = [&](const PanelRequest& want) { return pack(a, want, PanelOrder::kRows); };
  auto pack_b = [&](const PanelRequest& want) { return pack(b, want, PanelOrder::kPairs); };
  amx_product(pool, unit,
              {.m = swapped ? args.n : args.m,
               .n = swapped ? args.m : args.n,
               .k = args.k,
               .pack_a = pack_a,
               .pack_b = pack_b,
               .a_depth = a.col_stride == 1 ? kBlockDepth : kColumnDepth,
               .b_depth = b.row_stride == 1 ? kColumnDepth : kBlockDepth,
               .products = args.bf16 ? 1 : 4,
               .c = rounds_c ? nullptr : args.c,
               .c_stride = args.c_stride,
               .c_transposed = swapped,
               .c_bf16 = rounds_c ? bf16_numbers(args.c) : nullptr,
               .workspace = args.workspace,
               .epilogue = args.epilogue,
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

bool gemm_takes_bf16(int64_t m, int64_t n, int64_t k) {
  return is_worth_tiles(m, n, k) && bf16_unit() != nullptr;
}

bool gemm_gives_bf16(int64_t m, int64_t n, int64_t k) {
  return gemm_takes_bf16(m, n, k) && k <= kMaxPassDepth;
}

size_t gemm_workspace_bytes(int64_t m, int64_t n, int64_t k, int threads) {
  const size_t bytes = blocked_product_bytes(m, k, threads);
  return is_worth_tiles(m, n, k)
             ? std::max({bytes, amx_product_bytes(m, k, threads), amx_product_bytes(n, k, threads)})
             : bytes;
}

void gemm(ThreadPool& pool, const GemmArgs& args) {
  if (is_worth_tiles(args.m, args.n, args.k)) {
    const TileUnit* const unit = args.bf16 ? bf16_unit() : tile_unit();
    if (unit != nullptr) return gemm_tiles(pool, *unit, args);
  }
  for (DType type : {args.a_type, args.b_type, args.c_type}) LUMEN_CHECK(type == DType::kF32);
  auto is_large = [&](int64_t rows) {
    return rows * args.k * static_cast<int64_t>(sizeof(float)) > second_cache_bytes();
  };
  const StripSource a = {args.a, args.a_row_stride, args.a_col_stride, is_large(args.m)};
  // Strips of B run along its columns: its transpose is what gets packed.
  const StripSource b = {args.b, args.b_col_stride, args.b_row_stride, is_large(args.n)};
  auto pack = [&](StripSource from, const StripRequest& want) {
    from.x += want.row * from.row_stride + want.k * from.col_stride;
    pack_strip(from, want.rows, want.padded_rows, want.depth, want.padded_rows, want.panel);
    if (args.bf16) round_to_bf16(want.panel, want.padded_rows * want.depth);
  };
  auto pack_a = [&](const StripRequest& want) { pack(a, want); };
  auto pack_b = [&](const StripRequest& want) { pack(b, want); };
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
                         .epilogue = args.epilogue,
                         .accumulate = args.accumulate,
                         .a_rows = args.a_col_stride == 1 && !args.bf16 ? args.a : nullptr,
                         .a_row_stride = args.a_row_stride});
}

}  // namespace lumen::kernels
