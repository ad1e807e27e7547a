#include <algorithm>
#include <cstring>
#include <optional>

#include "lib/base/check.h"
#include "lib/base/round_up.h"
#include "lib/kernels/amx.h"
#include "lib/kernels/amx_product.h"
#include "lib/kernels/blocked_product.h"
#include "lib/kernels/code_panel.h"
#include "lib/kernels/convert.h"
#include "lib/kernels/dot_rows.h"
#include "lib/kernels/fixed_tiles.h"
#include "lib/kernels/gemm_tile.h"
#include "lib/kernels/int16_product.h"
#include "lib/kernels/int8_product.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/panel_dot.h"
#include "lib/kernels/panel_dot_tiles.h"
#include "lib/kernels/panels.h"
#include "lib/kernels/quantize_rows.h"

namespace lumen::kernels {
namespace {

// Up to this many rows of x the weights are used as they are kept; beyond it, taking blocks of them
// apart pays. Eight tokens can be verified at once and must get the bits that each alone gets.
constexpr int64_t kFewRows = 8;
// Of weights in panels: expanding a block takes as long as 12 rows of products with it.
constexpr int64_t kFewRowsPanels = 24;

// From this many rows on few rows are multiplied with quantised panels on int8 tiles, where there
// are any: with the same bits.
constexpr int64_t kInt8TileRows = 5;

// From this many rows on tiles are used where there are any. Below, expanding the weights to
// bfloat16 takes longer than the int8 products that it would save.
constexpr int64_t kTileUnitRows = 32;
// From this many columns on float16 panels are multiplied as fixed-point numbers (AmxProduct).
constexpr int64_t kFixedCols = 64;

// Columns of y finished before the epilogue sees them: a few KiB of output.
constexpr int64_t kPieceCols = 64;

int64_t total_rows(std::span<const Weight> weights) {
  int64_t total = 0;
  for (const Weight& w : weights) total += w.rows;
  return total;
}

int64_t few_rows(std::span<const Weight> weights) {
  const bool panels = std::all_of(weights.begin(), weights.end(),
                                  [](const Weight& w) { return w.layout != Layout::kRows; });
  return panels ? kFewRowsPanels : kFewRows;
}

// Calls body(weight, begin, end, column) for the rows of the weights that make up columns [begin,
// end) of y, in order; `column` is where they start in y.
template <class Body>
void for_each_part(std::span<const Weight> weights, int64_t begin, int64_t end, Body&& body) {
  int64_t first = 0;  // column of the weight's row 0
  for (const Weight& w : weights) {
    const int64_t from = std::max(begin, first), to = std::min(end, first + w.rows);
    if (from < to) body(w, from - first, to - first, from);
    first += w.rows;
  }
}

// ---- Few rows: dot products.

// The rows of x rounded for quantised weights: of tiles if those are used.
struct RoundedRows {
  bool on_tiles;
  TileRows tiles;
  QuantizedRows rows;
};

void dot(const Weight& w, int64_t from, int64_t to, const LinearArgs& args, const RoundedRows& x,
         float* y) {
  const bool panels = in_panels(w.layout);
  if (is_quantized(w.dtype)) {
    if (x.on_tiles) return dot_panels_tiles(w, from, to, x.tiles, y, args.y_stride);
    const auto dot_quantized = panels ? dot_panels_quantized : dot_rows_quantized;
    dot_quantized(w, from, to, x.rows, args.m, y, args.y_stride);
  } else {
    const auto dot_float = panels ? dot_panels_float : dot_rows_float;
    dot_float(w, from, to, args.x, args.x_stride, args.m, y, args.y_stride);
  }
}

// The same of rows that are multiplied like panels: each panel is made in `panel`, which stays in
// L1 or L2.
void dot_as_panels(const Weight& w, int64_t from, int64_t to, const LinearArgs& args,
                   const RoundedRows& x, std::byte* panel, float* y) {
  for (int64_t row = from; row < to;) {
    const int64_t index = row / kPanelRows, first = index * kPanelRows;
    const int64_t end = std::min(to, first + kPanelRows);
    pack_panel(w, index, panel);
    const Weight packed{panel, w.dtype, std::min(kPanelRows, w.rows - first), w.cols,
                        Layout::kPanels};
    dot(packed, row - first, end - first, args, x, y + row - from);
    row = end;
  }
}

// Bytes of a panel of the widest type.
size_t most_panel_bytes(int64_t cols) {
  return static_cast<size_t>(round_up(kPanelRows * row_bytes(DType::kF32, cols), 64));
}

size_t few_rows_bytes(int64_t m, int64_t cols) {
  m = std::min(m, kFewRowsPanels);
  const size_t bytes = std::max(quantized_rows_bytes(m, cols), tile_rows_bytes(m, cols));
  return static_cast<size_t>(round_up(static_cast<int64_t>(bytes), 64));
}

RoundedRows round_rows(ThreadPool& pool, const LinearArgs& args) {
  const std::span<const Weight> weights = args.weights;
  const int64_t cols = weights.front().cols;
  RoundedRows to{};
  const auto quantized = [](const Weight& w) { return is_quantized(w.dtype); };
  if (std::none_of(weights.begin(), weights.end(), quantized)) return to;
  to.on_tiles = args.m >= kInt8TileRows && few_rows(weights) == kFewRowsPanels && uses_int8_tiles();
  // So much takes about as long as waking the other threads.
  constexpr int64_t kRowsAtOnce = 4, kBlocksAtOnce = 16;
  if (to.on_tiles) {
    to.tiles = {args.workspace, args.m, cols};
    pool.parallel_for(cols / 32, kBlocksAtOnce, [&](int64_t begin, int64_t end, int) {
      quantize_tile_rows(args.x, args.x_stride, begin, end, to.tiles);
    });
  } else {
    to.rows = place_quantized_rows(args.workspace, args.m, cols);
    pool.parallel_for(args.m, kRowsAtOnce, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) quantize_row(args.x + r * args.x_stride, r, to.rows);
    });
  }
  return to;
}

void linear_few(ThreadPool& pool, const LinearArgs& args) {
  const std::span<const Weight> weights = args.weights;
  const int64_t cols = weights.front().cols;
  const RoundedRows rounded = round_rows(pool, args);
  std::byte* const panels = args.workspace + few_rows_bytes(args.m, cols);
  const auto piece = [&](int64_t begin, int64_t end, int thread) {
    for_each_part(weights, begin, end, [&](const Weight& w, int64_t from, int64_t to, int64_t at) {
      if (w.layout == Layout::kRowsAsPanels) {
        std::byte* const panel = panels + static_cast<size_t>(thread) * most_panel_bytes(cols);
        return dot_as_panels(w, from, to, args, rounded, panel, args.y + at);
      }
      dot(w, from, to, args, rounded, args.y + at);
    });
    if (args.epilogue == nullptr) return;
    for (int64_t r = 0; r < args.m; ++r) {
      (*args.epilogue)(r, begin, end, args.y + r * args.y_stride + begin);
    }
  };
  // Sixteen floats are a cache line of y, no two threads write the same one, and a panel's rows.
  pool.parallel_pieces(total_rows(weights), kPanelRows, kPieceCols, piece);
}

// ---- Many rows of float weights: blocks of them expanded to float32.

// Rounds a packed strip if both operands are to be bfloat16.
void finish_strip(const LinearArgs& args, const StripRequest& want) {
  if (args.bf16) round_to_bf16(want.panel, want.padded_rows * want.depth);
}

void pack_activations(const LinearArgs& args, const StripRequest& want) {
  pack_strip({args.x + want.row * args.x_stride + want.k, args.x_stride, 1}, want.rows,
             want.padded_rows, want.depth, want.padded_rows, want.panel);
  finish_strip(args, want);
}

// Rows [row, row + rows) of the weights, columns [k, k + depth), as floats [rows, depth]. What
// follows in each row comes next, too short for the processor to foresee: it is fetched ahead.
void expand_weights(std::span<const Weight> weights, int64_t row, int64_t rows, int64_t k,
                    int64_t depth, float* to) {
  for_each_part(weights, row, row + rows, [&](const Weight& w, int64_t from, int64_t end, int64_t) {
    const int64_t stride = row_bytes(w.dtype, w.cols);
    const int64_t bytes = row_bytes(w.dtype, depth);
    const auto* x = static_cast<const char*>(w.data) + from * stride + row_bytes(w.dtype, k);
    for (int64_t j = from; j < end; ++j, x += stride, to += depth) {
      for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(x + bytes + i);
      to_float(w.dtype, x, to, depth);
    }
  });
}

// Packs rows of panels, which hold their columns as the product wants them.
void pack_panels(std::span<const Weight> weights, const StripRequest& want) {
  for_each_part(weights, want.row, want.row + want.rows,
                [&](const Weight& w, int64_t from, int64_t end, int64_t column) {
                  StripRequest part = want;
                  part.row = from;
                  part.rows = end - from;
                  part.panel += column - want.row;
                  pack_panel_strip(w, part);
                });
  for (int64_t k = 0; k < want.depth; ++k) {
    std::fill(want.panel + k * want.padded_rows + want.rows,
              want.panel + (k + 1) * want.padded_rows, 0.0f);
  }
}

// Packs weight rows: of one float32 matrix as they are, else in pieces of 16 × 256, 16 KiB of
// floats that are still in L1 when they are transposed, into as many bytes of whole cache lines.
void pack_weights(std::span<const Weight> weights, const StripRequest& want) {
  if (weights.size() == 1 && weights.front().dtype == DType::kF32) {
    const int64_t cols = weights.front().cols;
    const float* x = static_cast<const float*>(weights.front().data) + want.row * cols + want.k;
    return pack_strip({x, cols, 1}, want.rows, want.padded_rows, want.depth, want.padded_rows,
                      want.panel);
  }
  constexpr int64_t kRows = 16, kDepth = 256;
  static_assert(kRows * kDepth <= kScratchFloats && kBlockDepth % kDepth == 0);
  for (int64_t at = 0; at < want.depth; at += kDepth) {
    const int64_t depth = std::min(kDepth, want.depth - at);
    for (int64_t i = 0; i < want.padded_rows; i += kRows) {
      const int64_t rows = std::clamp<int64_t>(want.rows - i, 0, kRows);
      expand_weights(weights, want.row + i, rows, want.k + at, depth, want.scratch);
      pack_strip({want.scratch, depth, 1}, rows, std::min(kRows, want.padded_rows - i), depth,
                 want.padded_rows, want.panel + at * want.padded_rows + i);
    }
  }
}

// `weights` are all float, all in rows or all in panels; their first row is column `column` of y.
void linear_many(ThreadPool& pool, const LinearArgs& args, std::span<const Weight> weights,
                 int64_t column) {
  auto pack_a = [&](const StripRequest& want) { pack_activations(args, want); };
  const bool panels = in_panels(weights.front().layout);
  auto pack_b = [&](const StripRequest& want) {
    panels ? pack_panels(weights, want) : pack_weights(weights, want);
    finish_strip(args, want);
  };
  blocked_product(pool, {.m = args.m,
                         .n = total_rows(weights),
                         .k = weights.front().cols,
                         .pack_a = pack_a,
                         .pack_b = pack_b,
                         .c = args.y + column,
                         .c_stride = args.y_stride,
                         .workspace = args.workspace,
                         .epilogue = args.epilogue,
                         .epilogue_column = column,
                         .a_rows = args.bf16 ? nullptr : args.x,
                         .a_row_stride = args.x_stride});
}

// ---- Many rows on tiles: blocks of weights expanded to bfloat16.

// AmxProduct::products. A float16 is exactly the sum of two bfloat16; two low parts of float32 lose
// bits, as much as leaving out their product would. Quantised weights have no more bits than a
// bfloat16 but for the rounding of code · scale, and their activations are rounded more coarsely
// elsewhere.
int products_for(const LinearArgs& args, DType dtype) {
  if (args.bf16) return 1;
  return dtype == DType::kF32 ? 4 : dtype == DType::kF16 ? 3 : 1;
}

// Columns of weights that are expanded at a time.
constexpr int64_t kPanelDepth = 256;
static_assert(kBlockDepth % kPanelDepth == 0);

// Rows [row, row + want.rows) of a bfloat16 matrix, in panels from one's first row on.
void copy_panel(const Weight& w, int64_t row, const PanelRequest& want) {
  uint16_t* const to = want.panel.high;
  if (!in_panels(w.layout)) {
    const PanelSource rows = {static_cast<const float*>(w.data), w.cols, 1, true};
    pack_bf16_panel(rows.at(row, want.k), want.rows, want.depth, PanelOrder::kPairs, {to, nullptr});
  } else {  // in the order of the tile
    pack_panel(w, row / kPanelRows, want.k, want.depth, reinterpret_cast<std::byte*>(to));
    std::fill(to + kTileRows * want.depth, to + kTileRows * padded_depth(want.depth), uint16_t{0});
  }
}

// The same of a quantised matrix.
void round_panel(const Weight& w, int64_t row, const PanelRequest& want) {
  static_assert(kTileRows * kPanelDepth * 2 <= kScratchFloats * int64_t{sizeof(float)});
  const CodeForm form = code_form(w.dtype);
  auto* const codes = reinterpret_cast<uint8_t*>(want.scratch);
  float* const scales = want.scratch + kTileRows * kPanelDepth / int64_t{sizeof(float)};
  const CodePanel taken_apart = {codes, scales, scales + kTileRows * kPanelDepth / 16};
  for (int64_t at = 0; at < want.depth; at += kPanelDepth) {
    const int64_t depth = std::min(kPanelDepth, want.depth - at);
    expand_codes(w, row, want.rows, want.k + at, depth, 0, taken_apart);
    round_codes(taken_apart, form, depth, want.panel.high + at * kTileRows);
  }
}

// The same of a float32 matrix in rows.
PanelContent split_panel(const Weight& w, int64_t row, const PanelRequest& want) {
  const float* x = static_cast<const float*>(w.data) + row * w.cols + want.k;
  return pack_bf16_panel({x, w.cols, 1}, want.rows, want.depth, PanelOrder::kPairs, want.panel);
}

// By way of floats: whatever the weights are and however they meet in the panel.
PanelContent pack_floats(std::span<const Weight> weights, const PanelRequest& want) {
  static_assert(kTileRows * kPanelDepth <= kScratchFloats);
  const Bf16Panel& panel = want.panel;
  const bool panels = in_panels(weights.front().layout);
  PanelContent content = PanelContent::kOnePart;
  for (int64_t at = 0; at < want.depth; at += kPanelDepth) {
    const int64_t depth = std::min(kPanelDepth, want.depth - at), behind = at * kTileRows;
    const Bf16Panel rest = {panel.high + behind, panel.low ? panel.low + behind : nullptr};
    if (panels) {
      pack_panels(weights, {.row = want.row,
                            .rows = want.rows,
                            .padded_rows = kTileRows,
                            .k = want.k + at,
                            .depth = depth,
                            .panel = want.scratch,
                            .scratch = nullptr});
    } else {
      expand_weights(weights, want.row, want.rows, want.k + at, depth, want.scratch);
    }
    const auto source =
        panels ? StripSource{want.scratch, 1, kTileRows} : StripSource{want.scratch, depth, 1};
    content =
        std::max(content, pack_bf16_panel(source, want.rows, depth, PanelOrder::kPairs, rest));
  }
  return content;
}

// The panel of want.rows rows of one matrix, if there is a short way to it.
std::optional<PanelContent> pack_rows_of_one(const Weight& w, int64_t row,
                                             const PanelRequest& want) {
  if (in_panels(w.layout) && row % kPanelRows != 0) return std::nullopt;
  if (w.dtype == DType::kBF16) {
    copy_panel(w, row, want);
    return PanelContent::kOnePart;
  }
  if (is_quantized(w.dtype)) {
    round_panel(w, row, want);
    return PanelContent::kOnePart;
  }
  if (w.dtype == DType::kF32 && !in_panels(w.layout)) return split_panel(w, row, want);
  return std::nullopt;
}

// Up to sixteen rows of the weights, `want.k` a block boundary: the one place that knows how they
// are stored.
PanelContent pack_weight_panel(std::span<const Weight> weights, const PanelRequest& want) {
  std::optional<PanelContent> content;
  for_each_part(weights, want.row, want.row + want.rows,
                [&](const Weight& w, int64_t from, int64_t to, int64_t) {
                  if (to - from == want.rows) content = pack_rows_of_one(w, from, want);
                });
  return content ? *content : pack_floats(weights, want);
}

// Rows of float16 panels that meet in one, [depth][16].
void gather_halves(std::span<const Weight> weights, const PanelRequest& want, uint16_t* to) {
  alignas(64) uint16_t panel[kTileRows * kBlockDepth];
  std::fill_n(to, kTileRows * want.depth, uint16_t{0});
  for_each_part(weights, want.row, want.row + want.rows,
                [&](const Weight& w, int64_t from, int64_t end, int64_t column) {
                  uint16_t* lanes = to + column - want.row;
                  for (int64_t row = from, rows; row < end; row += rows, lanes += rows) {
                    const int64_t lane = row % kPanelRows;
                    rows = std::min(kPanelRows - lane, end - row);
                    pack_panel(w, row / kPanelRows, want.k, want.depth,
                               reinterpret_cast<std::byte*>(panel));
                    for (int64_t k = 0; k < want.depth; ++k) {
                      std::copy_n(panel + k * kTileRows + lane, rows, lanes + k * kTileRows);
                    }
                  }
                });
}

// Up to sixteen rows of float16 weights as fixed-point numbers.
void pack_fixed_weights(std::span<const Weight> weights, const PanelRequest& want) {
  static_assert(kTileRows == kPanelRows);
  auto* const halves = reinterpret_cast<uint16_t*>(want.scratch);
  const uint16_t* panel = nullptr;
  for_each_part(weights, want.row, want.row + want.rows,
                [&](const Weight& w, int64_t from, int64_t to, int64_t) {
                  if (from % kPanelRows != 0 || to - from != want.rows) return;
                  const int64_t index = from / kPanelRows;
                  if (w.layout == Layout::kPanels) {
                    const auto stored = stored_columns(w, index, want.k, want.depth);
                    panel = reinterpret_cast<const uint16_t*>(stored.bytes.data());
                  } else {
                    pack_panel(w, index, want.k, want.depth, reinterpret_cast<std::byte*>(halves));
                    panel = halves;
                  }
                });
  if (panel == nullptr) {
    gather_halves(weights, want, halves);
    panel = halves;
  }
  pack_fixed_columns(panel, want.depth, want.panel.high);
}

// What multiplies many rows with some weights.
using ManyRows = void (*)(ThreadPool& pool, const LinearArgs& args, std::span<const Weight> weights,
                          int64_t column);
struct Product {
  const TileUnit* unit;  // or null
  int products;          // on it
  ManyRows run;          // without it
  Layout layout;

  friend bool operator==(const Product&, const Product&) = default;
};

// `weights` are all multiplied as `product` says; their first row is column `column` of y.
void linear_tiles(ThreadPool& pool, const Product& product, const LinearArgs& args,
                  std::span<const Weight> weights, int64_t column) {
  const bool fixed = product.unit == native_fixed_unit();
  const bool rounds_y = args.y_type == DType::kBF16;
  const PanelSource x = {args.x, args.x_stride, 1, args.x_type == DType::kBF16};
  auto pack_a = [&](const PanelRequest& want) {
    if (!fixed) {
      return pack_bf16_panel(x.at(want.row, want.k), want.rows, want.depth, PanelOrder::kRows,
                             want.panel);
    }
    pack_fixed_rows(args.x + want.row * args.x_stride + want.k, args.x_stride, want.rows,
                    want.depth, want.panel.high);
    return PanelContent::kOnePart;
  };
  auto pack_b = [&](const PanelRequest& want) {
    if (!fixed) return pack_weight_panel(weights, want);
    pack_fixed_weights(weights, want);
    return PanelContent::kOnePart;
  };
  auto stored_b = [&](int64_t row, int64_t k, int64_t depth) {
    StoredColumns stored{};
    for_each_part(weights, row, row + 1, [&](const Weight& w, int64_t from, int64_t, int64_t) {
      stored = stored_columns(w, from / kPanelRows, k, depth);
    });
    return stored;
  };
  const FunctionRef<StoredColumns(int64_t, int64_t, int64_t)> stored = stored_b;
  amx_product(pool, *product.unit,
              {.m = args.m,
               .n = total_rows(weights),
               .k = weights.front().cols,
               .pack_a = pack_a,
               .pack_b = pack_b,
               .stored_b = &stored,
               .products = product.products,
               .c = rounds_y ? nullptr : args.y + column,
               .c_stride = args.y_stride,
               .c_bf16 = rounds_y ? bf16_numbers(args.y) + column : nullptr,
               .workspace = args.workspace,
               .epilogue = args.epilogue,
               .epilogue_column = column});
}

// What multiplies many rows with `w` on tiles, or null.
const TileUnit* unit_for(const LinearArgs& args, const Weight& w) {
  const bool panels = w.layout != Layout::kRows;
  if (panels && w.dtype == DType::kF16 && w.cols >= kFixedCols && !args.bf16) {
    if (const TileUnit* unit = fixed_unit()) return unit;
  }
  const bool narrow = panels && w.dtype == DType::kBF16;
  return args.bf16 || narrow ? bf16_unit() : tile_unit();
}

Product product_for(const LinearArgs& args, const Weight& w) {
  Product product = {.unit = nullptr, .products = 0, .run = linear_many, .layout = w.layout};
  if (args.m >= kTileUnitRows && w.cols > 0) product.unit = unit_for(args, w);
  if (product.unit != nullptr) {
    product.products = product.unit == native_fixed_unit() ? 1 : products_for(args, w.dtype);
  } else if (is_quantized(w.dtype)) {
    product.run = int8_product;
  } else if (takes_int16_product(w)) {
    product.run = int16_product;
  }
  return product;
}

// Calls product(weights, column) for the longest runs of weights of which `kind` says the same.
template <class Kind, class Product>
void for_each_run(std::span<const Weight> weights, Kind&& kind, Product&& product) {
  int64_t column = 0;
  for (size_t begin = 0, end = 0; begin < weights.size(); begin = end) {
    while (end < weights.size() && kind(weights[end]) == kind(weights[begin])) ++end;
    const auto run = weights.subspan(begin, end - begin);
    product(run, column);
    column += total_rows(run);
  }
}

}  // namespace

size_t linear_workspace_bytes(int64_t m, int64_t cols, int threads, bool as_panels, bool bf16) {
  size_t bytes = few_rows_bytes(m, cols);
  if (bf16) bytes = std::max(bytes, blocked_product_bytes(m, cols, threads));
  if (as_panels) bytes += static_cast<size_t>(threads) * most_panel_bytes(cols);
  if (m > kFewRows) {
    bytes =
        std::max({bytes, int8_product_bytes(m, cols, threads),
                  int16_product_bytes(m, cols, threads), blocked_product_bytes(m, cols, threads)});
  }
  if (m >= kTileUnitRows) bytes = std::max(bytes, amx_product_bytes(m, cols, threads));
  return bytes;
}

bool linear_takes_bf16(int64_t m, int64_t cols) {
  return m >= kTileUnitRows && cols > 0 && bf16_unit() != nullptr;
}

bool linear_gives_bf16(int64_t m, int64_t cols) {
  return linear_takes_bf16(m, cols) && cols <= kMaxPassDepth;
}

void linear(ThreadPool& pool, const LinearArgs& args) {
  if (args.m == 0 || args.weights.empty()) return;
  static_assert(kFewRowsPanels < kTileUnitRows);
  if (args.m <= few_rows(args.weights) && !args.bf16) return linear_few(pool, args);
  const auto kind = [&](const Weight& w) { return product_for(args, w); };
  for_each_run(args.weights, kind, [&](auto weights, int64_t column) {
    const Product product = kind(weights.front());
    LUMEN_CHECK(product.unit != nullptr ||
                (args.x_type == DType::kF32 && args.y_type == DType::kF32));
    if (product.unit != nullptr) {
      linear_tiles(pool, product, args, weights, column);
    } else {
      product.run(pool, args, weights, column);
    }
  });
}

}  // namespace lumen::kernels
