#include "lib/kernels/weights/linear_tiles.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "lib/kernels/panels.h"
#include "lib/kernels/tiles/amx_product.h"
#include "lib/kernels/tiles/bf16_panels.h"
#include "lib/kernels/tiles/fixed_tiles.h"
#include "lib/kernels/weights/code_panel.h"
#include "lib/kernels/weights/linear_weights.h"

namespace lumen::kernels {
namespace {

// From this many columns on float16 panels are multiplied as fixed-point numbers (AmxProduct).
constexpr int64_t kFixedCols = 64;

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

// What multiplies many rows with `w`, or null.
const TileUnit* unit_for(const LinearArgs& args, const Weight& w) {
  const bool panels = w.layout != Layout::kRows;
  if (panels && w.dtype == DType::kF16 && w.cols >= kFixedCols && !args.bf16) {
    if (const TileUnit* unit = fixed_unit()) return unit;
  }
  const bool narrow = panels && w.dtype == DType::kBF16;
  return args.bf16 || narrow ? bf16_unit() : tile_unit();
}

}  // namespace

TileProduct tile_product_for(const LinearArgs& args, const Weight& w) {
  if (args.m < kTileUnitRows || w.cols == 0) return {};
  const TileUnit* const unit = unit_for(args, w);
  if (unit == nullptr) return {};
  return {unit, unit == native_fixed_unit() ? 1 : products_for(args, w.dtype)};
}

void linear_tiles(ThreadPool& pool, const TileProduct& product, const LinearArgs& args,
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
               .epilogue_column = column,
               .combine = args.combine});
}

}  // namespace lumen::kernels
