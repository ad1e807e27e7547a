#include "lib/kernels/products/few_rows.h"

#include <algorithm>

#include "lib/base/round_up.h"
#include "lib/kernels/panels.h"
#include "lib/kernels/simd.h"
#include "lib/kernels/tiles/amx.h"
#include "lib/kernels/weights/dot_rows.h"
#include "lib/kernels/weights/panel_dot.h"
#include "lib/kernels/weights/panel_dot_tiles.h"

namespace lumen::kernels {
namespace {

// From this many rows on few rows are multiplied with quantised panels on int8 tiles, where there
// are any: with the same bits.
constexpr int64_t kInt8TileRows = 5;

void dot(const Weight& w, int64_t from, int64_t to, const FewRows& x, float* y, int64_t y_stride) {
  const bool panels = in_panels(w.layout);
  if (is_quantized(w.dtype)) {
    if (!panels) return dot_rows_quantized(w, from, to, x.rows, x.m, y, y_stride);
    const auto dot_quantized = x.on_tiles ? dot_panels_tiles : dot_panels_quantized;
    dot_quantized(w, from, to, x.strips, y, y_stride);
  } else {
    const auto dot_float = panels ? dot_panels_float : dot_rows_float;
    dot_float(w, from, to, x.x, x.x_stride, x.m, y, y_stride);
  }
}

bool multiplies_in_pairs() {
  return uses_avx2() && !uses_native_dot();
}

}  // namespace

int64_t few_rows(std::span<const Weight> weights) {
  const int64_t rows = few_rows_of_experts(weights);
  const bool nibbles = std::all_of(weights.begin(), weights.end(), [](const Weight& w) {
    return w.dtype == DType::kQ4_0 && w.layout != Layout::kRows;
  });
  return nibbles && multiplies_in_pairs() ? kFewRowsOfNibbles : rows;
}

int64_t few_rows_of_experts(std::span<const Weight> weights) {
  const bool panels = std::all_of(weights.begin(), weights.end(),
                                  [](const Weight& w) { return w.layout != Layout::kRows; });
  if (!panels) return kFewRows;
  const bool in_pairs =
      multiplies_in_pairs() && std::all_of(weights.begin(), weights.end(),
                                           [](const Weight& w) { return is_quantized(w.dtype); });
  return in_pairs ? kFewRowsInPairs : kFewRowsPanels;
}

size_t few_rows_bytes(int64_t m, int64_t cols) {
  m = std::min(m, kFewRowsPanels);
  const size_t bytes = strip_rows_bytes(m, cols) + quantized_rows_bytes(m, cols);
  return static_cast<size_t>(round_up(static_cast<int64_t>(bytes), 64));
}

FewRows place_few_rows(const float* x, int64_t x_stride, int64_t m, std::span<const Weight> weights,
                       std::byte* memory) {
  const int64_t cols = weights.front().cols;
  bool panels = false, rows = false;
  for (const Weight& w : weights) {
    if (!is_quantized(w.dtype)) continue;
    (w.layout == Layout::kRows ? rows : panels) = true;
  }
  FewRows to{.x = x, .x_stride = x_stride, .m = m};
  if (panels) {
    to.on_tiles = m >= kInt8TileRows && few_rows(weights) == kFewRowsPanels && uses_int8_tiles();
    to.strips = (to.on_tiles ? tile_strips : panel_strips)(memory, m, cols);
  }
  if (rows) to.rows = place_quantized_rows(memory + strip_rows_bytes(m, cols), m, cols);
  return to;
}

void round_few_rows(const FewRows& rows) {
  if (rows.strips.memory) {
    quantize_strip_rows(rows.x, rows.x_stride, 0, rows.strips.cols / 32, rows.strips);
  }
  if (!rows.rows.codes) return;
  for (int64_t r = 0; r < rows.m; ++r) quantize_row(rows.x + r * rows.x_stride, r, rows.rows);
}

size_t most_panel_bytes(int64_t cols) {
  return static_cast<size_t>(round_up(kPanelRows * row_bytes(DType::kF32, cols), 64));
}

void dot_few_rows(const Weight& w, int64_t begin, int64_t end, const FewRows& x, std::byte* panel,
                  float* y, int64_t y_stride) {
  if (w.layout != Layout::kRowsAsPanels) return dot(w, begin, end, x, y, y_stride);
  for (int64_t row = begin; row < end;) {
    const int64_t index = row / kPanelRows, first = index * kPanelRows;
    const int64_t stop = std::min(end, first + kPanelRows);
    pack_panel(w, index, panel);
    const Weight packed{panel, w.dtype, std::min(kPanelRows, w.rows - first), w.cols,
                        Layout::kPanels};
    dot(packed, row - first, stop - first, x, y + row - begin, y_stride);
    row = stop;
  }
}

}  // namespace lumen::kernels
