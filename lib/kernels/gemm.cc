#include <algorithm>
#include <utility>

#include "lib/base/check.h"
#include "lib/base/round_up.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/products/blocked_product.h"
#include "lib/kernels/products/gemm_tile.h"
#include "lib/kernels/products/strided_product.h"
#include "lib/kernels/tiles/amx_product.h"

namespace lumen::kernels {
namespace {

thread_local bool exact_products = false;

// Three products of parts and the packing of tiles that are partly empty pay from about here on.
bool is_worth_tiles(int64_t m, int64_t n, int64_t k) {
  return m >= 32 && n >= 16 && k >= 32;
}

// Workspace of a product on tiles whose operands may be swapped.
size_t tiles_bytes(int64_t m, int64_t n, int64_t k, int threads) {
  return std::max(amx_product_bytes(m, k, threads), amx_product_bytes(n, k, threads));
}

PanelSource panels_of_a(const GemmArgs& args) {
  return {args.a, args.a_row_stride, args.a_col_stride, args.a_type == DType::kBF16};
}
PanelSource panels_of_b(const GemmArgs& args) {  // its columns are packed
  return {args.b, args.b_col_stride, args.b_row_stride, args.b_type == DType::kBF16};
}
// Whether not rows but columns of both operands lie together, as in the gradient of a weight.
bool has_columns(const GemmArgs& args) {
  return args.a_row_stride == 1 && args.a_col_stride != 1 && args.b_col_stride == 1;
}

// Calls run(the product on tiles).
template <class Run>
void with_product(const GemmArgs& args, const Run& run) {
  const bool rounds_c = args.c_type == DType::kBF16;
  PanelSource a = panels_of_a(args), b = panels_of_b(args);
  // Panels of B are made of columns that lie together as they are, those of A are turned, which
  // cᵀ = bᵀ aᵀ does to the smaller operand.
  const bool swapped =
      has_columns(args) && args.m > args.n && args.epilogue == nullptr && !rounds_c;
  if (swapped) std::swap(a, b);
  auto pack = [](const PanelSource& x, const PanelRequest& want, PanelOrder order) {
    return pack_bf16_panel(x.at(want.row, want.k), want.rows, want.depth, order, want.panel);
  };
  auto pack_a = [&](const PanelRequest& want) { return pack(a, want, PanelOrder::kRows); };
  auto pack_b = [&](const PanelRequest& want) { return pack(b, want, PanelOrder::kPairs); };
  run(AmxProduct{.m = swapped ? args.n : args.m,
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

// Gradients of weights, sums over the rows of both operands, are made of the sums over either half
// of them, which are added: so each of two threads reads the rows that it has just computed, in its
// own cache. Of a C that stays in that cache, and of halves so deep that they are worth a strip.
constexpr int64_t kLeastHalf = 256, kMostHalvedBytes = 1 << 20;

bool may_be_halved(int64_t m, int64_t n, int64_t k) {
  return k >= 2 * kLeastHalf && m * n * int64_t{sizeof(float)} <= kMostHalvedBytes;
}
bool is_halved(const GemmArgs& args) {
  return may_be_halved(args.m, args.n, args.k) && has_columns(args) && args.epilogue == nullptr &&
         args.c_type != DType::kBF16;
}

// The workspace: sums of the second half, then that of the products, or of each of two threads.
size_t second_bytes(int64_t m, int64_t n) {
  return static_cast<size_t>(round_up(m * n * int64_t{sizeof(float)}, 64));
}
size_t own_bytes(int64_t m, int64_t n, int64_t k) {
  return static_cast<size_t>(round_up(static_cast<int64_t>(tiles_bytes(m, n, k, 1)), 64));
}
size_t halves_bytes(int64_t m, int64_t n, int64_t k, int threads) {
  return second_bytes(m, n) + std::max(tiles_bytes(m, n, k, threads), 2 * own_bytes(m, n, k));
}

void gemm_halves(ThreadPool& pool, const TileUnit& unit, const GemmArgs& args) {
  auto* const second_sums = reinterpret_cast<float*>(args.workspace);
  GemmArgs first = args;
  first.k = round_up(divide_up(args.k, 2), kTileDepth);
  first.workspace = args.workspace + second_bytes(args.m, args.n);
  GemmArgs second = first;
  second.k = args.k - first.k;
  second.a = panels_of_a(args).at(0, first.k).x;
  second.b = panels_of_b(args).at(0, first.k).x;
  second.c = second_sums;
  second.c_stride = args.n;
  second.accumulate = false;
  if (pool.threads() == 2) {
    second.workspace += own_bytes(args.m, args.n, args.k);
    pool.run([&](int thread, int) {
      with_product(thread == 0 ? first : second,
                   [&](const AmxProduct& product) { amx_product_alone(unit, product); });
    });
  } else {
    for (const GemmArgs& half : {first, second}) {
      with_product(half, [&](const AmxProduct& product) { amx_product(pool, unit, product); });
    }
  }
  pool.parallel_for(args.m, kTileRows, [&](int64_t begin, int64_t end, int) {
    move_sums(second_sums + begin * args.n, args.n, end - begin, args.n, true,
              args.c + begin * args.c_stride, args.c_stride);
  });
}

void gemm_tiles(ThreadPool& pool, const TileUnit& unit, const GemmArgs& args) {
  if (is_halved(args)) return gemm_halves(pool, unit, args);
  with_product(args, [&](const AmxProduct& product) { amx_product(pool, unit, product); });
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
  if (!is_worth_tiles(m, n, k)) return bytes;
  if (may_be_halved(m, n, k)) return std::max(bytes, halves_bytes(m, n, k, threads));
  return std::max(bytes, tiles_bytes(m, n, k, threads));
}

void gemm(ThreadPool& pool, const GemmArgs& args) {
  if (is_worth_tiles(args.m, args.n, args.k)) {
    const TileUnit* const unit = args.bf16 ? bf16_unit() : tile_unit();
    if (unit != nullptr) return gemm_tiles(pool, *unit, args);
  }
  for (DType type : {args.a_type, args.b_type, args.c_type}) LUMEN_CHECK(type == DType::kF32);
  strided_product(pool, StridedProduct<float>{.m = args.m,
                                              .n = args.n,
                                              .k = args.k,
                                              .a = args.a,
                                              .a_row_stride = args.a_row_stride,
                                              .a_col_stride = args.a_col_stride,
                                              .b = args.b,
                                              .b_row_stride = args.b_row_stride,
                                              .b_col_stride = args.b_col_stride,
                                              .c = args.c,
                                              .c_stride = args.c_stride,
                                              .workspace = args.workspace,
                                              .accumulate = args.accumulate,
                                              .epilogue = args.epilogue,
                                              .rounds = args.bf16});
}

size_t gemm_f64_workspace_bytes(int64_t m, int64_t k, int threads) {
  return blocked_product_f64_bytes(m, k, threads);
}

void gemm_f64(ThreadPool& pool, const StridedProduct<double>& product) {
  strided_product(pool, product);
}

}  // namespace lumen::kernels
