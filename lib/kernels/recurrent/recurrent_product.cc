#include "lib/kernels/recurrent/recurrent_product.h"

#include <algorithm>

#include "lib/kernels/tiles/bf16_panels.h"

namespace lumen::kernels {
namespace {

// Two parts are four products, of whole tiles: few rows are faster in float32.
const TileUnit* unit_for(int64_t batch, int64_t hidden, bool bf16) {
  if (bf16) return bf16_unit();
  return batch >= kSampleBlock && hidden >= kTileDepth ? tile_unit() : nullptr;
}

constexpr int64_t kStrip = 2 * kTileRows;  // of B: two panels
static_assert(kStrip == kTileDepth && kStrip >= kMaxTileCols);

// Strips of A, as even as the tile allows: f(first sample, samples, padded samples).
template <class F>
void for_each_strip(const GemmTile& tile, Range samples, const F& f) {
  const int64_t strips = divide_up(samples.size(), tile.rows);
  const int64_t height = round_up(divide_up(samples.size(), strips), tile.step);
  for (int64_t i = samples.begin; i < samples.end; i += height) {
    const int64_t rows = std::min(height, samples.end - i);
    f(i, rows, round_up(rows, tile.step));
  }
}

}  // namespace

RecurrentProduct::RecurrentProduct(int64_t batch, int64_t hidden, bool bf16)
    : batch_(batch), hidden_(hidden), bf16_(bf16), unit_(unit_for(batch, hidden, bf16)) {}

int64_t RecurrentProduct::matrix_bytes(int64_t gates) const {
  return gates * padded_units() * hidden_ * (unit_ && bf16_ ? 2 : 4);
}

void RecurrentProduct::enter() const {
  if (unit_) unit_->enter();
}
void RecurrentProduct::leave() const {
  if (unit_) unit_->leave();
}

void RecurrentProduct::pack_columns(const StripSource& from, int64_t unit, float* matrix) const {
  const int64_t units = std::min(unit_step(), hidden_ - unit);
  if (unit_ == nullptr) {
    float* const panel = matrix + unit * hidden_;
    pack_strip(from, units, tile_.cols, hidden_, tile_.cols, panel);
    if (bf16_) round_to_bf16(panel, tile_.cols * hidden_);
    return;
  }
  for (int64_t i = 0; i < units; i += kTileRows) {
    uint16_t* const high = bf16_numbers(matrix) + column_panel(unit + i);
    pack_bf16_panel({from.x + i * from.row_stride, from.row_stride, from.col_stride},
                    std::min(kTileRows, units - i), hidden_, PanelOrder::kPairs,
                    {high, low_columns(high)});
  }
}

void RecurrentProduct::pack_matrices(ThreadPool& pool, const float* from, int64_t gates,
                                     int64_t row_stride, int64_t col_stride,
                                     float* matrices) const {
  const int64_t strips = divide_up(hidden_, unit_step());
  pool.parallel_for(gates * strips, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t gate = at / strips, unit = at % strips * unit_step();
      pack_columns({from + gate * hidden_ * hidden_ + unit * row_stride, row_stride, col_stride},
                   unit, matrices + gate * matrix_floats());
    }
  });
}

void RecurrentProduct::pack_units(const float* x, int64_t x_stride, Range samples, Range units,
                                  float* rows) const {
  if (unit_ == nullptr) {
    for_each_strip(tile_, samples, [&](int64_t i, int64_t count, int64_t height) {
      float* const panel = rows + i * hidden_ + units.begin * height;
      pack_strip({x + i * x_stride + units.begin, x_stride, 1}, count, height, units.size(), height,
                 panel);
      if (bf16_) round_to_bf16(panel, height * units.size());
    });
    return;
  }
  for (int64_t i = samples.begin; i < samples.end; i += kTileRows) {
    uint16_t* const high = bf16_numbers(rows) + row_panel(i) + units.begin * kTileRows;
    pack_bf16_panel({x + i * x_stride + units.begin, x_stride, 1},
                    std::min(kTileRows, samples.end - i), units.size(), PanelOrder::kRows,
                    {high, low_rows(high)});
  }
}

void RecurrentProduct::multiply_on_unit(const float* rows, const float* matrix, Range samples,
                                        Range units, bool add, float* c, int64_t c_stride) const {
  const int64_t depth = padded_units();
  alignas(64) float sums[kStrip * kStrip];
  for (int64_t u = units.begin; u < units.end; u += kStrip) {
    const int64_t cols = std::min(kStrip, units.end - u);
    for (int64_t i = samples.begin; i < samples.end; i += kStrip) {
      const int64_t count = std::min(kStrip, samples.end - i);
      for (int64_t k = 0; k < depth; k += unit_->strip_depth) {
        const uint16_t* const a = bf16_numbers(rows) + row_panel(i) + k * kTileRows;
        const uint16_t* const b = bf16_numbers(matrix) + column_panel(u) + k * kTileRows;
        multiply_bf16_panels(*unit_, {a, 2 * kTileRows * depth, count, low_rows(a)},
                             {b, kTileRows * depth, cols, low_columns(b)},
                             std::min(unit_->strip_depth, depth - k), k > 0, sums);
      }
      move_sums(sums, kStrip, count, cols, add, c + i * c_stride + u, c_stride);
    }
  }
}

void RecurrentProduct::multiply(const float* rows, const float* matrix, Range samples, Range units,
                                bool add, float* c, int64_t c_stride) const {
  if (unit_) return multiply_on_unit(rows, matrix, samples, units, add, c, c_stride);
  for (int64_t u = units.begin; u < units.end; u += tile_.cols) {
    for_each_strip(tile_, samples, [&](int64_t i, int64_t count, int64_t) {
      multiply_panels(rows + i * hidden_, count, matrix + u * hidden_,
                      std::min(tile_.cols, units.end - u), hidden_, add, c + i * c_stride + u,
                      c_stride);
    });
  }
}

}  // namespace lumen::kernels
