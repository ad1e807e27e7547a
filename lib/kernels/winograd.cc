#include "lib/kernels/winograd.h"

#include <algorithm>

#include "lib/base/round_up.h"
#include "lib/kernels/amx.h"
#include "lib/kernels/bf16_panels.h"
#include "lib/kernels/conv_pack.h"
#include "lib/kernels/gemm_tile.h"
#include "lib/kernels/winograd_transform.h"

namespace lumen::kernels {
namespace {

constexpr int64_t kPositions = 16;
// Channels that are transformed together: a cache line.
constexpr int64_t kChannels = kStripBlock;
// Between the matrices of two positions, so that their numbers do not share a cache set.
constexpr int64_t kGap = 16;

// Sizes are derived in README.md.
constexpr int64_t kMaxTiles = 96;             // per block of the forward product
constexpr int64_t kInputFloats = 128 * 1024;  // of the transformed input of a block
constexpr int64_t kFilterFloats = 32 * 1024;  // of the filters of a position and some outputs
constexpr int64_t kDepth = 512;               // input channels per chain of multiply-adds
constexpr int64_t kGradTiles = 256;           // per chunk of the weight gradient
constexpr int64_t kGradFloats = 256 * 1024;   // of the transformed input and gradient of a chunk

// A tile of a panel of bfloat16 (amx.h) in each position, as floats before they are rounded.
constexpr int64_t kUnrounded = kTileRows * kTileDepth;
constexpr int64_t kUnroundedFloats = kPositions * kUnrounded;
constexpr int64_t kSums = 2 * kTileRows;  // rows and columns of the sums of a unit's call

// Images [batch, channels, height, width].
struct Images {
  int64_t channels, height, width;

  int64_t plane(int64_t sample, int64_t channel) const {
    return (sample * channels + channel) * height * width;
  }
};
Images inputs(const ConvShape& s) {
  return {s.in_channels, s.in_height, s.in_width};
}
Images outputs(const ConvShape& s) {
  return {s.out_channels, s.out_height, s.out_width};
}

// A rectangle of an image, which may reach beyond it.
struct Rectangle {
  int64_t sample, top, left, height, width;

  int64_t floats() const { return height * width * kChannels; }
};

// The pixels that lie in the image: window rows [begin, end) and so on.
struct Inside {
  Inside(int64_t start, int64_t size, int64_t extent)
      : begin(std::clamp<int64_t>(-start, 0, size)),
        end(std::clamp<int64_t>(extent - start, begin, size)) {}
  int64_t begin, end;
};

// window[pixel][kChannels] of `count` channels, zero outside the image and behind the last channel.
void load_window(const Images& images, const float* x, int64_t channel, int64_t count,
                 const Rectangle& at, float* window) {
  const Inside rows(at.top, at.height, images.height), columns(at.left, at.width, images.width);
  const float* plane = x + images.plane(at.sample, channel);
  for (int64_t r = 0; r < at.height; ++r) {
    float* row = window + r * at.width * kChannels;
    if (r < rows.begin || r >= rows.end) {
      std::fill_n(row, at.width * kChannels, 0.0f);
      continue;
    }
    std::fill_n(row, columns.begin * kChannels, 0.0f);
    pack_strip({plane + (at.top + r) * images.width + at.left + columns.begin,
                images.height * images.width, 1},
               count, kChannels, columns.end - columns.begin, kChannels,
               row + columns.begin * kChannels);
    std::fill_n(row + columns.end * kChannels, (at.width - columns.end) * kChannels, 0.0f);
  }
}

void store_window(const Images& images, float* y, int64_t channel, int64_t count,
                  const Rectangle& at, const float* window) {
  const Inside rows(at.top, at.height, images.height), columns(at.left, at.width, images.width);
  float* plane = y + images.plane(at.sample, channel) + at.left;
  const int64_t width = columns.end - columns.begin;
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    pack_strip({window + r * at.width * kChannels, kChannels, 1}, width, width, count,
               images.height * images.width, plane + (at.top + r) * images.width);
  }
}

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
int64_t window_row(const TileGrid::Part& part, int64_t extent) {
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
MatrixPlaces window_places(const TileGrid::Part& part, int64_t extent) {
  return {window_row(part, extent), kChannels, 2 * kChannels};
}

// Position by position, `pitch` numbers apart, a tile of a panel of bfloat16 from floats.
void round_positions(const float* x, int64_t row_stride, int64_t col_stride, int64_t rows,
                     int64_t depth, PanelOrder order, uint16_t* to, int64_t pitch) {
  for (int64_t p = 0; p < kPositions; ++p, x += kUnrounded, to += pitch) {
    pack_bf16_panel({x, row_stride, col_stride}, rows, depth, order, {to, nullptr});
  }
}

uint16_t* as_bf16(float* memory) {
  return reinterpret_cast<uint16_t*>(memory);
}

// --- Forward -----------------------------------------------------------------------------------

// Weights as [out][in][9], or those of the gradient of the input: [in][out][9], rotated.
struct Filters {
  const float* w;
  bool transposed;
};

// In float32, or with both operands of the products rounded to bfloat16.
struct Forward {
  Forward(const ConvShape& shape, int threads, bool bf16) : s(shape), grid(shape) {
    channels = bf16 ? kTileDepth : kChannels;
    depth = round_up(s.in_channels, channels);
    columns = round_up(s.out_channels, kMaxTileCols);
    // As many blocks for every thread, of as many tiles as the cache likes. Nothing depends on how
    // the tiles are divided.
    const int64_t most = std::clamp(kInputFloats / (kPositions * depth), kMaxTiles / 2, kMaxTiles);
    blocks = round_up(divide_up(grid.tiles, most), threads);
    block = round_up(divide_up(grid.tiles, blocks), bf16 ? kTileRows : 4);
    blocks = divide_up(grid.tiles, block);
    const int64_t widest = kFilterFloats / std::min(depth, kDepth) / kMaxTileCols * kMaxTileCols;
    out_block = std::min(columns, std::max(2 * kMaxTileCols, widest));
    product_cols = bf16 ? kSums : out_block;

    const int64_t numbers = bf16 ? 2 : 1;  // in the room of a float
    filter_pitch = depth * columns / numbers + kGap;
    input_pitch = depth * round_up(block, bf16 ? kTileRows : kMaxTileRows) / numbers + kGap;
    product_pitch = round_up(block, bf16 ? kSums : 1) * out_block + kGap;
    input = 0;
    product = kPositions * input_pitch;
    unrounded = product + kPositions * product_pitch;
    window = unrounded + (bf16 ? kUnroundedFloats : 0);
    thread_floats =
        window + std::max(channels / kChannels * window_floats(block), 9 * channels * kMaxTileCols);
  }

  int64_t floats(int threads) const { return kPositions * filter_pitch + threads * thread_floats; }

  // Outputs whose filters are packed together.
  int64_t filter_cols() const { return unit ? kTileRows : tile.cols; }

  // Where blocks of kDepth input channels begin.
  int64_t depth_at(int64_t channel) const {
    return std::min(kDepth, depth - channel / kDepth * kDepth);
  }

  // filters[position][block of channels][strip of outputs][channel][tile.cols], or panels of
  // bfloat16, [position][panel of outputs][channel / 2][16][2].
  void transform_filters(const Filters& f, int64_t out, int64_t in, float* memory) const {
    const int64_t cols = filter_cols();
    const int64_t outs = std::min(cols, s.out_channels - out);
    const int64_t ins = std::min(channels, s.in_channels - in);
    float* const taps = memory + window;
    for (int64_t k = 0; k < ins; ++k) {
      const StripSource from =
          f.transposed
              ? StripSource{f.w + ((in + k) * s.out_channels + out) * 9, 9, 1}
              : StripSource{f.w + (out * s.in_channels + in + k) * 9, s.in_channels * 9, 1};
      pack_strip(from, outs, cols, 9, cols, taps + 9 * k * cols);
    }
    std::fill_n(taps + 9 * ins * cols, 9 * (channels - ins) * cols, 0.0f);
    const int64_t sign = f.transposed ? -1 : 1;
    const float* const corner = taps + (f.transposed ? 8 * cols : 0);
    const MatrixPlaces places = {3 * sign * cols, sign * cols, 9 * cols};
    if (unit) {
      float* const to = memory + unrounded;
      winograd_transform(WinogradMap::kFilter, corner, places, to,
                         {4 * kUnrounded, kUnrounded, cols}, channels, cols);
      round_positions(to, 1, cols, kTileRows, kTileDepth, PanelOrder::kPairs,
                      as_bf16(filters) + out * depth + in * kTileRows, 2 * filter_pitch);
      return;
    }
    const int64_t first = in / kDepth * kDepth;
    float* to = filters + first * columns + out * depth_at(in) + (in - first) * cols;
    winograd_transform(WinogradMap::kFilter, corner, places, to,
                       {4 * filter_pitch, filter_pitch, cols}, channels, cols);
  }

  // inputs[position][block of channels][strip of tiles][channel / 16][height][16], or panels of
  // bfloat16, [position][panel of tiles][channel / 32][16][32].
  void transform_inputs(const float* x, int64_t begin, int64_t end, float* memory) const {
    for (int64_t c = 0; c < depth; c += channels) {
      grid.for_each_part(begin, end, [&](const TileGrid::Part& part) {
        const int64_t pitch = window_floats(block);
        for (int64_t i = 0; i < channels; i += kChannels) {
          const int64_t count = std::clamp<int64_t>(s.in_channels - c - i, 0, kChannels);
          load_window(inputs(s), x, c + i, count, part.input(s),
                      memory + window + i / kChannels * pitch);
        }
        for_each_run(
            part, 4, unit ? kTileRows : tile.rows, [&](int64_t offset, int64_t t, int64_t count) {
              const float* from = memory + window + offset;
              const MatrixPlaces places = window_places(part, 4);
              if (unit) {
                for (int64_t i = 0; i < channels; i += kChannels, from += pitch) {
                  winograd_transform(WinogradMap::kInput, from, places,
                                     memory + unrounded + t % kTileRows * kTileDepth + i,
                                     {4 * kUnrounded, kUnrounded, kTileDepth}, count, kChannels);
                }
                round_inputs(c, t + count, end - begin, memory);
              } else {
                winograd_transform(WinogradMap::kInput, from, places,
                                   strip_of_tile(c, t, end - begin, memory),
                                   {4 * input_pitch, input_pitch, kChannels}, count, kChannels);
              }
            });
      });
    }
  }

  float* strip_of_tile(int64_t c, int64_t t, int64_t tiles, float* memory) const {
    const int64_t first = c / kDepth * kDepth, strip = t / tile.rows * tile.rows;
    return memory + input + first * round_up(block, kMaxTileRows) + strip * depth_at(c) +
           (c - first) * strip_height(tile, tiles, strip) + (t - strip) * kChannels;
  }

  // Channels from c on of the panel whose last tile is t − 1, once it has all that there are.
  void round_inputs(int64_t c, int64_t t, int64_t tiles, float* memory) const {
    if (t % kTileRows != 0 && t != tiles) return;
    const int64_t first = (t - 1) / kTileRows * kTileRows;
    round_positions(memory + unrounded, kTileDepth, 1, t - first, kTileDepth, PanelOrder::kRows,
                    as_bf16(memory + input) + first * depth + c * kTileRows, 2 * input_pitch);
  }

  void multiply(int64_t tiles, int64_t out, int64_t outs, float* memory) const {
    for (int64_t p = 0; p < kPositions; ++p) {
      float* const in = memory + input + p * input_pitch;
      float* const weights = filters + p * filter_pitch;
      float* const to = memory + product + p * product_pitch;
      if (unit) {
        multiply_bf16(as_bf16(in), tiles, as_bf16(weights) + out * depth, outs, to);
        continue;
      }
      for (int64_t k = 0; k < depth; k += kDepth) {
        multiply_blocked_strips(in + k * round_up(block, kMaxTileRows), tiles,
                                weights + k * columns + out * depth_at(k), outs, depth_at(k), k > 0,
                                to, out_block);
      }
    }
  }

  // A strip of outputs stays in the first cache, a part of its depth at a time, while the tiles
  // pass by.
  void multiply_bf16(const uint16_t* in, int64_t tiles, const uint16_t* weights, int64_t outs,
                     float* to) const {
    const int64_t pitch = kTileRows * depth;
    for (int64_t o = 0; o < outs; o += kSums) {
      for (int64_t k = 0; k < depth; k += unit->strip_depth) {
        for (int64_t t = 0; t < tiles; t += kSums) {
          multiply_bf16_panels(
              *unit, {in + t * depth + k * kTileRows, pitch, std::min(kSums, tiles - t)},
              {weights + o * depth + k * kTileRows, pitch, std::min(kSums, outs - o)},
              std::min(unit->strip_depth, depth - k), k > 0, to + product_at(t, o));
        }
      }
    }
  }

  // Of a position: [strip of outputs][tile][product_cols].
  int64_t product_at(int64_t t, int64_t out) const {
    return out / product_cols * product_cols * round_up(block, kSums) + t * product_cols +
           out % product_cols;
  }

  // Output channels [out, out + outs) of tiles [begin, end).
  void transform_products(int64_t begin, int64_t end, int64_t out, int64_t outs, const float* bias,
                          float* y, float* memory) const {
    const float* from = memory + product;
    float* pixels = memory + window;
    grid.for_each_part(begin, end, [&](const TileGrid::Part& part) {
      const Rectangle at = part.output();
      for (int64_t c = 0; c < outs; c += kChannels) {
        const int64_t count = std::min(kChannels, outs - c);
        for (int64_t r = 0; r < part.rows; ++r) {
          winograd_transform(
              WinogradMap::kOutput, from + product_at(part.tile + r * part.columns, c),
              {4 * product_pitch, product_pitch, product_cols},
              pixels + 2 * r * at.width * kChannels,
              {at.width * kChannels, kChannels, 2 * kChannels}, part.columns, kChannels);
        }
        if (bias) {
          for (float* pixel = pixels; pixel < pixels + at.floats(); pixel += kChannels) {
            for (int64_t i = 0; i < count; ++i) pixel[i] += bias[out + c + i];
          }
        }
        store_window(outputs(s), y, out + c, count, at, pixels);
      }
    });
  }

  void run(ThreadPool& pool, const Filters& f, const float* x, const float* bias, float* y,
           std::byte* workspace) {
    filters = reinterpret_cast<float*>(workspace);
    float* memory = filters + kPositions * filter_pitch;
    const int64_t in_strips = depth / channels;
    const int64_t out_strips = divide_up(s.out_channels, filter_cols());
    pool.parallel_for(out_strips * in_strips, 1, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t i = begin; i < end; ++i) {
        transform_filters(f, i / in_strips * filter_cols(), i % in_strips * channels,
                          memory + thread * thread_floats);
      }
    });
    pool.parallel_for(blocks, 1, [&](int64_t first, int64_t last, int thread) {
      float* own = memory + thread * thread_floats;
      if (unit) unit->enter();
      for (int64_t i = first; i < last; ++i) {
        const int64_t begin = i * block, end = std::min(grid.tiles, begin + block);
        transform_inputs(x, begin, end, own);
        for (int64_t out = 0; out < s.out_channels; out += out_block) {
          const int64_t outs = std::min(out_block, s.out_channels - out);
          multiply(end - begin, out, outs, own);
          transform_products(begin, end, out, outs, bias, y, own);
        }
      }
      if (unit) unit->leave();
    });
  }

  ConvShape s;
  TileGrid grid;
  GemmTile tile = gemm_tile();
  const TileUnit* unit = nullptr;  // null: products in float32
  int64_t channels;                // that are transformed together
  int64_t depth, columns;          // padded channels
  int64_t block, blocks;           // tiles per block
  int64_t out_block;               // output channels whose products are kept
  int64_t product_cols;            // whose products of one tile lie together
  int64_t filter_pitch, input_pitch, product_pitch;
  int64_t input, product, unrounded, window, thread_floats;
  float* filters = nullptr;
};

// --- Gradient of the weights -------------------------------------------------------------------

// In float32, or with both operands of the products rounded to bfloat16.
struct WeightGrad {
  WeightGrad(const ConvShape& shape, bool bf16) : s(shape), grid(shape) {
    const int64_t in_padded = round_up(s.in_channels, kMaxTileCols);
    const int64_t out_padded = round_up(s.out_channels, bf16 ? kTileRows : kMaxTileRows);
    const int64_t most = kGradFloats / (kPositions * (in_padded + out_padded));
    chunk = std::min(grid.tiles, std::clamp(round_up(most, 16), kGradTiles / 2, kGradTiles));
    const int64_t depth = bf16 ? padded_depth(chunk) : chunk;
    const int64_t numbers = bf16 ? 2 : 1;  // in the room of a float
    input_pitch = depth * in_padded / numbers + kGap;
    grad_pitch = depth * out_padded / numbers + kGap;
    sum_rows = bf16 ? kSums : 1;
    sum_cols = bf16 ? kSums : s.in_channels;
    sum_pitch =
        round_up(round_up(s.out_channels, sum_rows) * round_up(s.in_channels, sum_cols), kGap) +
        kGap;
    window = bf16 ? kUnroundedFloats : 0;
    thread_floats = window + std::max(window_floats(chunk), 9 * round_up(s.in_channels, kGap));
  }

  int64_t floats(int threads) const {
    return kPositions * (input_pitch + grad_pitch + sum_pitch) + threads * thread_floats;
  }

  // Rows or columns of the product, whose depth is the chunk's tiles.
  struct Operand {
    WinogradMap map;
    Images images;
    int64_t extent;    // pixels of one tile in a row of a window
    PanelOrder order;  // of panels of bfloat16
    float* hat;
    int64_t pitch;
  };

  // Channels [c, c + width) of tiles [begin, begin + depth), in float32 of a strip of `cols` that
  // begins with channel `strip`.
  void transform(const Operand& to, const float* x, int64_t c, int64_t width, int64_t strip,
                 int64_t cols, int64_t begin, int64_t depth, float* memory) const {
    float* const pixels = memory + window;
    float* const corner = to.hat + strip * depth + (c - strip);
    grid.for_each_part(begin, begin + depth, [&](const TileGrid::Part& part) {
      load_window(to.images, x, c, std::min(width, to.images.channels - c),
                  to.extent == 4 ? part.input(s) : part.output(), pixels);
      for_each_run(part, to.extent, unit ? kTileDepth : depth,
                   [&](int64_t offset, int64_t t, int64_t count) {
                     const MatrixPlaces places = window_places(part, to.extent);
                     if (unit) {
                       winograd_transform(
                           to.map, pixels + offset, places, memory + t % kTileDepth * kTileRows,
                           {4 * kUnrounded, kUnrounded, kTileRows}, count, kTileRows);
                       round_tiles(to, c, t + count, depth, memory);
                     } else {
                       winograd_transform(to.map, pixels + offset, places, corner + t * cols,
                                          {4 * to.pitch, to.pitch, cols}, count, width);
                     }
                   });
    });
  }

  // Of the panel of channels [c, c + 16) the step whose last tile is t − 1, once it has all.
  void round_tiles(const Operand& to, int64_t c, int64_t t, int64_t depth,
                   const float* unrounded) const {
    if (t % kTileDepth != 0 && t != depth) return;
    const int64_t first = (t - 1) / kTileDepth * kTileDepth;
    round_positions(unrounded, 1, kTileRows, kTileRows, t - first, to.order,
                    as_bf16(to.hat) + c * padded_depth(depth) + first * kTileRows, 2 * to.pitch);
  }

  void transform_chunk(ThreadPool& pool, const float* x, const float* dy, int64_t begin,
                       int64_t depth, float* memory) const {
    const Operand rows = {WinogradMap::kOutputGrad, outputs(s), 2,
                          PanelOrder::kRows,        grads_hat,  grad_pitch};
    const Operand columns = {WinogradMap::kInput, inputs(s),  4,
                             PanelOrder::kPairs,  inputs_hat, input_pitch};
    const int64_t width = std::min(kChannels, tile.cols), height = unit ? kTileRows : tile.rows;
    const int64_t in_strips = divide_up(s.in_channels, width);
    const int64_t out_strips = divide_up(s.out_channels, height);
    pool.parallel_for(in_strips + out_strips, 1, [&](int64_t i, int64_t last, int thread) {
      float* own = memory + thread * thread_floats;
      for (; i < last; ++i) {
        if (i < in_strips) {
          const int64_t c = i * width;
          transform(columns, x, c, width, c / tile.cols * tile.cols, tile.cols, begin, depth, own);
        } else {
          const int64_t o = (i - in_strips) * height;
          const int64_t cols = unit ? height : strip_height(tile, s.out_channels, o);
          transform(rows, dy, o, cols, o, cols, begin, depth, own);
        }
      }
    });
  }

  // sums[position][out][in] (+)= what the chunk's tiles add.
  void multiply_chunk(ThreadPool& pool, int64_t depth, bool add) const {
    // Outputs are divided only where there are too few positions.
    const int64_t height = unit ? kSums : tile.rows;
    const int64_t strips = divide_up(s.out_channels, height);
    const int64_t parts = std::clamp<int64_t>(2 * pool.threads() / kPositions, 1, strips);
    pool.parallel_for(kPositions * parts, 1, [&](int64_t task, int64_t last, int) {
      if (unit) unit->enter();
      for (; task < last; ++task) {
        const int64_t p = task / parts, part = task % parts;
        const int64_t begin = strips * part / parts * height;
        const int64_t end = std::min(s.out_channels, strips * (part + 1) / parts * height);
        multiply(p, begin, end, depth, add);
      }
      if (unit) unit->leave();
    });
  }

  void multiply(int64_t p, int64_t begin, int64_t end, int64_t depth, bool add) const {
    float* const rows = grads_hat + p * grad_pitch;
    float* const columns = inputs_hat + p * input_pitch;
    float* const to = sums + p * sum_pitch;
    if (!unit) {
      multiply_panels(rows + begin * depth, end - begin, columns, s.in_channels, depth, add,
                      to + sum_at(begin, 0), s.in_channels);
      return;
    }
    const int64_t padded = padded_depth(depth), pitch = kTileRows * padded;
    for (int64_t c = 0; c < s.in_channels; c += kSums) {
      for (int64_t k = 0; k < padded; k += unit->strip_depth) {
        for (int64_t o = begin; o < end; o += kSums) {
          multiply_bf16_panels(
              *unit, {as_bf16(rows) + o * padded + k * kTileRows, pitch, std::min(kSums, end - o)},
              {as_bf16(columns) + c * padded + k * kTileRows, pitch,
               std::min(kSums, s.in_channels - c)},
              std::min(unit->strip_depth, padded - k), add || k > 0, to + sum_at(o, c));
        }
      }
    }
  }

  // Of a position: [out / sum_rows][in / sum_cols][sum_rows][sum_cols].
  int64_t sum_at(int64_t o, int64_t c) const {
    const int64_t block = o / sum_rows * divide_up(s.in_channels, sum_cols) + c / sum_cols;
    return (block * sum_rows + o % sum_rows) * sum_cols + c % sum_cols;
  }

  void transform_sums(ThreadPool& pool, float* dw, float* memory) const {
    const int64_t tap = round_up(s.in_channels, kGap);
    pool.parallel_for(s.out_channels, 1, [&](int64_t o, int64_t last, int thread) {
      float* taps = memory + thread * thread_floats;
      for (; o < last; ++o) {
        for (int64_t c = 0; c < s.in_channels; c += sum_cols) {
          winograd_transform(WinogradMap::kFilterGrad, sums + sum_at(o, c),
                             {4 * sum_pitch, sum_pitch, 0}, taps + c, {3 * tap, tap, 0}, 1,
                             std::min(sum_cols, s.in_channels - c));
        }
        pack_strip({taps, tap, 1}, 9, 9, s.in_channels, 9, dw + o * s.in_channels * 9);
      }
    });
  }

  void run(ThreadPool& pool, const float* x, const float* dy, float* dw, std::byte* workspace) {
    inputs_hat = reinterpret_cast<float*>(workspace);
    grads_hat = inputs_hat + kPositions * input_pitch;
    sums = grads_hat + kPositions * grad_pitch;
    float* memory = sums + kPositions * sum_pitch;
    for (int64_t begin = 0; begin < grid.tiles; begin += chunk) {
      const int64_t depth = std::min(chunk, grid.tiles - begin);
      transform_chunk(pool, x, dy, begin, depth, memory);
      multiply_chunk(pool, depth, begin > 0);
    }
    transform_sums(pool, dw, memory);
  }

  ConvShape s;
  TileGrid grid;
  GemmTile tile = gemm_tile();
  const TileUnit* unit = nullptr;  // null: products in float32
  int64_t chunk;                   // tiles whose products are added up in one chain
  int64_t sum_rows, sum_cols;      // of the sums that lie together
  int64_t input_pitch, grad_pitch, sum_pitch, window, thread_floats;
  float *inputs_hat = nullptr, *grads_hat = nullptr, *sums = nullptr;
};

const TileUnit* unit_for(const ConvShape& shape) {
  return shape.bf16 ? bf16_unit() : nullptr;
}

// Whether there is a unit is known when products are computed: room for either way.
template <class Floats>
size_t bytes_either_way(const ConvShape& shape, const Floats& floats) {
  const int64_t single = floats(false);
  return static_cast<size_t>(shape.bf16 ? std::max(single, floats(true)) : single) * sizeof(float);
}

void forward(ThreadPool& pool, const ConvShape& shape, const Filters& filters, const float* x,
             const float* bias, float* y, std::byte* workspace) {
  const TileUnit* const unit = unit_for(shape);
  Forward forward(shape, pool.threads(), unit != nullptr);
  forward.unit = unit;
  forward.run(pool, filters, x, bias, y, workspace);
}

}  // namespace

bool winograd_pays(const ConvShape& s) {
  const bool fits = s.kernel_height == 3 && s.kernel_width == 3 && s.stride_y == 1 &&
                    s.stride_x == 1 && s.dilation_y == 1 && s.dilation_x == 1 && s.groups == 1 &&
                    s.padding_y <= 2 && s.padding_x <= 2;
  // Fewer tiles do not make up for transforming the filters, fewer channels for the rest.
  return fits && s.in_channels >= 32 && s.out_channels >= 32 && TileGrid(s).tiles >= 64;
}

size_t winograd_workspace_bytes(const ConvShape& shape, int threads) {
  return bytes_either_way(shape,
                          [&](bool bf16) { return Forward(shape, threads, bf16).floats(threads); });
}
size_t winograd_input_grad_workspace_bytes(const ConvShape& shape, int threads) {
  return winograd_workspace_bytes(input_grad_shape(shape), threads);
}
size_t winograd_weight_grad_workspace_bytes(const ConvShape& shape, int threads) {
  return bytes_either_way(shape,
                          [&](bool bf16) { return WeightGrad(shape, bf16).floats(threads); });
}

void winograd(ThreadPool& pool, const ConvShape& shape, const float* x, const float* w,
              const float* bias, float* y, std::byte* workspace) {
  forward(pool, shape, {w, false}, x, bias, y, workspace);
}

void winograd_input_grad(ThreadPool& pool, const ConvShape& shape, const float* dy, const float* w,
                         float* dx, std::byte* workspace) {
  forward(pool, input_grad_shape(shape), {w, true}, dy, nullptr, dx, workspace);
}

void winograd_weight_grad(ThreadPool& pool, const ConvShape& shape, const float* x, const float* dy,
                          float* dw, std::byte* workspace) {
  const TileUnit* const unit = unit_for(shape);
  WeightGrad grad(shape, unit != nullptr);
  grad.unit = unit;
  grad.run(pool, x, dy, dw, workspace);
}

}  // namespace lumen::kernels
