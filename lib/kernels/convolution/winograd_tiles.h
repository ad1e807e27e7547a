// What winograd.cc and winograd_weight_grad.cc have in common: tiles of 2 × 2 outputs, windows of
// images with some channels side by side, and panels of bfloat16 for each of the 16 positions.
// Private to them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lib/base/round_up.h"
#include "lib/kernels/conv.h"
#include "lib/kernels/convolution/winograd_transform.h"
#include "lib/kernels/products/gemm_tile.h"
#include "lib/kernels/tiles/amx.h"
#include "lib/kernels/tiles/bf16_panels.h"

namespace lumen::kernels::winograd_tiles {

inline constexpr int64_t kPositions = 16;
// Channels that are transformed together: a cache line.
inline constexpr int64_t kChannels = kStripBlock;
// Between the matrices of two positions, so that their numbers do not share a cache set.
inline constexpr int64_t kGap = 16;

// A tile of a panel of bfloat16 (amx.h) in each position, as floats before they are rounded.
inline constexpr int64_t kUnrounded = kTileRows * kTileDepth;
inline constexpr int64_t kUnroundedFloats = kPositions * kUnrounded;
inline constexpr int64_t kSums = 2 * kTileRows;  // rows and columns of the sums of a unit's call

// Images [batch, channels, height, width].
struct Images {
  int64_t channels, height, width;

  int64_t plane(int64_t sample, int64_t channel) const {
    return (sample * channels + channel) * height * width;
  }
};
inline Images inputs(const ConvShape& s) {
  return {s.in_channels, s.in_height, s.in_width};
}
inline Images outputs(const ConvShape& s) {
  return {s.out_channels, s.out_height, s.out_width};
}

// A rectangle of an image, which may reach beyond it.
struct Rectangle {
  int64_t sample, top, left, height, width;

  int64_t floats() const { return height * width * kChannels; }
};

// window[pixel][kChannels] of `count` channels, zero outside the image and behind the last channel.
void load_window(const Images& images, const float* x, int64_t channel, int64_t count,
                 const Rectangle& at, float* window);
// The pixels inside the image, back to y.
void store_window(const Images& images, float* y, int64_t channel, int64_t count,
                  const Rectangle& at, const float* window);

// The tiles of 2 × 2 outputs of all samples, row by row.
struct TileGrid {
  explicit TileGrid(const ConvShape& s)
      : rows(divide_up(s.out_height, 2)),
        columns(divide_up(s.out_width, 2)),
        tiles(s.batch * rows * columns) {}

  // Tiles of one sample that form a rectangle.
  struct Part {
    int64_t sample, row, column, rows, columns;
    int64_t tile;  // the first, counted from `begin`

    Rectangle input(const ConvShape& s) const {
      return {sample, 2 * row - s.padding_y, 2 * column - s.padding_x, 2 * rows + 2,
              2 * columns + 2};
    }
    Rectangle output() const { return {sample, 2 * row, 2 * column, 2 * rows, 2 * columns}; }
  };

  // Calls f(part) for tiles [begin, end).
  template <class F>
  void for_each_part(int64_t begin, int64_t end, const F& f) const {
    for (int64_t t = begin; t < end;) {
      Part part{t / (rows * columns), t / columns % rows, t % columns, 1, 0, t - begin};
      part.columns = std::min(columns - part.column, end - t);
      if (part.columns == columns) part.rows = std::min(rows - part.row, (end - t) / columns);
      f(part);
      t += part.rows * part.columns;
    }
  }

  int64_t rows, columns, tiles;
};

// Floats of the window of any part with at most `tiles` tiles.
constexpr int64_t window_floats(int64_t tiles) {
  // (2 rows + 2) (2 columns + 2), and the sum of two numbers is at most their product plus 1.
  return (8 * tiles + 8) * kChannels;
}

// Floats from one row of a part's window to the next; `extent`: pixels of one tile in a row.
inline int64_t window_row(const TileGrid::Part& part, int64_t extent) {
  return (2 * part.columns + extent - 2) * kChannels;
}

// Calls f(offset, tile, count) for the tiles of a part, as many at once as lie in a row of it and
// do not go across a multiple of `most`: where in the window the first of them begins.
template <class F>
void for_each_run(const TileGrid::Part& part, int64_t extent, int64_t most, const F& f) {
  for (int64_t r = 0; r < part.rows; ++r) {
    for (int64_t c = 0; c < part.columns;) {
      const int64_t t = part.tile + r * part.columns + c;
      const int64_t count = std::min(most - t % most, part.columns - c);
      f(2 * r * window_row(part, extent) + 2 * c * kChannels, t, count);
      c += count;
    }
  }
}

// Tiles of a part in its window.
inline MatrixPlaces window_places(const TileGrid::Part& part, int64_t extent) {
  return {window_row(part, extent), kChannels, 2 * kChannels};
}

// Position by position, `pitch` numbers apart, a tile of a panel of bfloat16 from floats.
void round_positions(const float* x, int64_t row_stride, int64_t col_stride, int64_t rows,
                     int64_t depth, PanelOrder order, uint16_t* to, int64_t pitch);

// Whether products of this shape are made of bfloat16 now, on this thread.
inline bool rounds_products(const ConvShape& shape) {
  return shape.bf16 && bf16_unit() != nullptr;
}

// Bytes of floats(whether products are rounded): whether there is a unit for bfloat16 is known when
// they are computed, so there is room for either way.
template <class Floats>
size_t bytes_either_way(const ConvShape& shape, const Floats& floats) {
  const int64_t single = floats(false);
  return static_cast<size_t>(shape.bf16 ? std::max(single, floats(true)) : single) * sizeof(float);
}

}  // namespace lumen::kernels::winograd_tiles
