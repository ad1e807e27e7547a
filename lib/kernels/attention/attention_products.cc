#include "lib/kernels/attention/attention_products.h"

#include <algorithm>

#include "lib/base/check.h"
#include "lib/base/round_up.h"

namespace lumen::kernels {

namespace {

// bfloat16 numbers of one part of a panel.
int64_t panel_numbers(int64_t depth) {
  return kTileRows * padded_depth(depth);
}

}  // namespace

// On tiles an operand is its panels of sixteen rows (columns, on the right) one behind the other,
// each its high parts, then its low parts if there are two.
Bf16Panel AttentionProducts::panel_of(float* operand, int64_t row, int64_t depth) const {
  const int64_t part = panel_numbers(depth);
  uint16_t* const high = bf16_numbers(operand) + row / kTileRows * parts_ * part;
  return {high, parts_ == 2 ? high + part : nullptr};
}

void AttentionProducts::enter() const {
  if (unit_) unit_->enter();
}

void AttentionProducts::leave() const {
  if (unit_) unit_->leave();
}

// Two parts take the room of a float.
int64_t AttentionProducts::left_floats(int64_t rows, int64_t depth) {
  return std::max(round_up(rows, kMaxTileRows) * depth,
                  round_up(rows, kTileRows) * padded_depth(depth));
}

int64_t AttentionProducts::right_floats(int64_t cols, int64_t depth) {
  return round_up(cols, kMaxTileCols) * padded_depth(depth);
}

int64_t AttentionProducts::strip_floats(int64_t depth) const {
  return unit_ ? width() * padded_depth(depth) * parts_ / 2 : width() * depth;
}

void AttentionProducts::pack_left(const PanelSource& from, const LeftColumns& columns,
                                  float* left) const {
  const auto& [rows, all_rows, begin, cols, depth] = columns;
  LUMEN_CHECK(unit_ || !from.bf16);
  for (int64_t i = 0; i < all_rows;) {
    const int64_t height = unit_ ? kTileRows : strip_height(tile_, all_rows, i);
    const int64_t used = std::clamp<int64_t>(rows - i, 0, height);
    const PanelSource source = from.at(i, 0);
    if (unit_) {
      const Bf16Panel panel = panel_of(left, i, depth);
      pack_bf16_panel(
          source, used, cols, PanelOrder::kRows,
          {panel.high + begin * kTileRows, panel.low ? panel.low + begin * kTileRows : nullptr});
    } else if (used > 0) {
      pack_strip({source.x, source.row_stride, source.col_stride}, used, height, cols, height,
                 left + i * depth + begin * height);
    } else {
      std::fill_n(left + i * depth + begin * height, cols * height, 0.0f);
    }
    i += height;
  }
}

void AttentionProducts::pack_right(const PanelSource& from, int64_t rows, int64_t cols,
                                   int64_t depth, float* right) const {
  LUMEN_CHECK(unit_ || !from.bf16);
  const int64_t width = unit_ ? kTileRows : tile_.cols;
  for (int64_t j = 0; j < cols; j += width) {
    const PanelSource source = from.at(j, 0);
    if (unit_) {
      pack_bf16_panel(source, std::clamp<int64_t>(rows - j, 0, width), depth, PanelOrder::kPairs,
                      panel_of(right, j, depth));
    } else {
      pack_strip({source.x, source.row_stride, source.col_stride}, std::min(width, cols - j), width,
                 depth, width, right + j * depth);
    }
  }
}

attention_tile::Panels AttentionProducts::right_panels(float* room, int64_t depth) const {
  if (!unit_) return {};
  const Bf16Panel first = panel_of(room, 0, depth);
  return {first.high, first.low, parts_ * panel_numbers(depth)};
}

attention_tile::Panels AttentionProducts::left_panels(float* left,
                                                      const LeftColumns& columns) const {
  const Bf16Panel first = panel_of(left, 0, columns.depth);
  const int64_t begin = columns.begin * kTileRows;
  return {first.high + begin, first.low ? first.low + begin : nullptr,
          parts_ * panel_numbers(columns.depth)};
}

void AttentionProducts::softmax_grad(const attention_tile::Tile& tile, float* scores, float* dp,
                                     const attention_tile::SoftmaxGradState& state,
                                     const LeftColumns& part, const GradOperands& to) const {
  if (unit_) {
    return attention_tile::softmax_grad(
        tile, scores, dp, state,
        {right_panels(to.dscores, part.all_rows), left_panels(to.weights_left, part),
         left_panels(to.dscores_left, part), part.all_rows});
  }
  attention_tile::softmax_grad(tile, scores, dp, state, {});
  pack_left({scores, width(), 1}, part, to.weights_left);
  pack_left({dp, width(), 1}, part, to.dscores_left);
}

void AttentionProducts::multiply(const AttentionProduct& product) const {
  unit_ ? multiply_tiles(product) : multiply_floats(product);
}

void AttentionProducts::multiply_floats(const AttentionProduct& p) const {
  const float* const left = p.left + p.row * p.depth;
  if (p.begin == 0 && p.end == p.depth) {
    return multiply_panels(left, p.rows, p.right, p.cols, p.depth, p.add, p.c, p.c_stride);
  }
  for (int64_t i = 0; i < p.rows;) {
    const int64_t height = strip_height(tile_, p.rows, i);
    for (int64_t j = 0; j < p.cols; j += tile_.cols) {
      multiply_panels(left + i * p.depth + p.begin * height, std::min(height, p.rows - i),
                      p.right + j * p.depth + p.begin * tile_.cols,
                      std::min(tile_.cols, p.cols - j), p.end - p.begin, p.add,
                      p.c + i * p.c_stride + j, p.c_stride);
    }
    i += height;
  }
}

void AttentionProducts::multiply_tiles(const AttentionProduct& p) const {
  constexpr int64_t kStrip = 2 * kTileRows;
  const int64_t part = panel_numbers(p.depth), pitch = parts_ * part;
  const uint16_t* const left =
      bf16_numbers(p.left) + p.row / kTileRows * pitch + p.begin * kTileRows;
  const uint16_t* const right = bf16_numbers(p.right) + p.begin * kTileRows;
  const int64_t steps = (padded_depth(p.end) - p.begin) / kTileDepth;
  const bool is_short = unit_->multiply_short && parts_ == 1 && steps <= kShortSteps && !p.add;
  for (int64_t j = 0; j < p.cols; j += kStrip) {
    const uint16_t* const b = right + j / kTileRows * pitch;
    if (is_short && p.cols - j > kTileRows) {
      unit_->multiply_short({.a_high = left,
                             .a_low = nullptr,
                             .b_high = b,
                             .b_low = nullptr,
                             .a_pitch = pitch,
                             .b_pitch = pitch,
                             .steps = steps,
                             .row_panels = static_cast<int>(divide_up(p.rows, kTileRows)),
                             .col_panels = 2,
                             .add = nullptr,
                             .add_stride = 0,
                             .c = p.c + j,
                             .c_stride = p.c_stride,
                             .low_low = false});
      continue;
    }
    for (int64_t i = 0; i < p.rows; i += kStrip) {
      const uint16_t* const a = left + i / kTileRows * pitch;
      float* const c = p.c + i * p.c_stride + j;
      unit_->multiply({.a_high = a,
                       .a_low = parts_ == 2 ? a + part : nullptr,
                       .b_high = b,
                       .b_low = parts_ == 2 ? b + part : nullptr,
                       .a_pitch = pitch,
                       .b_pitch = pitch,
                       .steps = steps,
                       .row_panels = p.rows - i > kTileRows ? 2 : 1,
                       .col_panels = p.cols - j > kTileRows ? 2 : 1,
                       .add = p.add ? c : nullptr,
                       .add_stride = p.c_stride,
                       .c = c,
                       .c_stride = p.c_stride,
                       .low_low = true,
                       .rows = p.rows - i});
    }
  }
}

}  // namespace lumen::kernels
