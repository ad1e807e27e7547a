#include "lib/kernels/winograd.h"

#include <algorithm>

#include "lib/base/round_up.h"
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

// Where a transformed tile goes, and how many follow it at regular distances, itself counted.
struct Spot {
  float* y;
  int64_t count;
};

// Transforms every tile of a part, in a window that has `extent` pixels for one tile in a row;
// place(t) is the Spot of tile t.
template <class Place>
void transform_part(WinogradMap map, const TileGrid::Part& part, const float* window,
                    int64_t extent, const MatrixPlaces& to, int64_t width, const Place& place) {
  const int64_t row = (2 * part.columns + extent - 2) * kChannels;
  for (int64_t r = 0; r < part.rows; ++r) {
    for (int64_t c = 0; c < part.columns;) {
      const Spot spot = place(part.tile + r * part.columns + c);
      const int64_t count = std::min(spot.count, part.columns - c);
      winograd_transform(map, window + 2 * r * row + 2 * c * kChannels,
                         {row, kChannels, 2 * kChannels}, spot.y, to, count, width);
      c += count;
    }
  }
}

// --- Forward -----------------------------------------------------------------------------------

// Weights as [out][in][9], or those of the gradient of the input: [in][out][9], rotated.
struct Filters {
  const float* w;
  bool transposed;
};

struct Forward {
  Forward(const ConvShape& shape, int threads) : s(shape), grid(shape) {
    depth = round_up(s.in_channels, kChannels);
    columns = round_up(s.out_channels, kMaxTileCols);
    // As many blocks for every thread, of as many tiles as the cache likes. Nothing depends on how
    // the tiles are divided.
    const int64_t most = std::clamp(kInputFloats / (kPositions * depth), kMaxTiles / 2, kMaxTiles);
    blocks = round_up(divide_up(grid.tiles, most), threads);
    block = round_up(divide_up(grid.tiles, blocks), 4);
    blocks = divide_up(grid.tiles, block);
    const int64_t widest = kFilterFloats / std::min(depth, kDepth) / kMaxTileCols * kMaxTileCols;
    out_block = std::min(columns, std::max(2 * kMaxTileCols, widest));

    filter_pitch = depth * columns + kGap;
    input_pitch = depth * round_up(block, kMaxTileRows) + kGap;
    product_pitch = block * out_block + kGap;
    input = 0;
    product = kPositions * input_pitch;
    window = product + kPositions * product_pitch;
    thread_floats = window + std::max(window_floats(block), 9 * kChannels * kMaxTileCols);
  }

  int64_t floats(int threads) const { return kPositions * filter_pitch + threads * thread_floats; }

  // Where blocks of kDepth input channels begin.
  int64_t depth_at(int64_t channel) const {
    return std::min(kDepth, depth - channel / kDepth * kDepth);
  }

  // filters[position][block of channels][strip of outputs][channel][tile.cols].
  void transform_filters(const Filters& f, int64_t out, int64_t in, float* scratch) const {
    const int64_t cols = tile.cols;
    const int64_t outs = std::min(cols, s.out_channels - out);
    const int64_t ins = std::min(kChannels, s.in_channels - in);
    for (int64_t k = 0; k < ins; ++k) {
      const StripSource from =
          f.transposed
              ? StripSource{f.w + ((in + k) * s.out_channels + out) * 9, 9, 1}
              : StripSource{f.w + (out * s.in_channels + in + k) * 9, s.in_channels * 9, 1};
      pack_strip(from, outs, cols, 9, cols, scratch + 9 * k * cols);
    }
    std::fill_n(scratch + 9 * ins * cols, 9 * (kChannels - ins) * cols, 0.0f);
    const int64_t first = in / kDepth * kDepth;
    float* to = filters + first * columns + out * depth_at(in) + (in - first) * cols;
    const int64_t sign = f.transposed ? -1 : 1;
    winograd_transform(WinogradMap::kFilter, scratch + (f.transposed ? 8 * cols : 0),
                       {3 * sign * cols, sign * cols, 9 * cols}, to,
                       {4 * filter_pitch, filter_pitch, cols}, kChannels, cols);
  }

  // inputs[position][block of channels][strip of tiles][channel / 16][height][16].
  void transform_inputs(const float* x, int64_t begin, int64_t end, float* memory) const {
    float *to = memory + input, *pixels = memory + window;
    grid.for_each_part(begin, end, [&](const TileGrid::Part& part) {
      for (int64_t c = 0; c < s.in_channels; c += kChannels) {
        load_window(inputs(s), x, c, std::min(kChannels, s.in_channels - c), part.input(s), pixels);
        const int64_t first = c / kDepth * kDepth;
        float* corner = to + first * round_up(block, kMaxTileRows);
        const int64_t strip_depth = depth_at(c);
        transform_part(WinogradMap::kInput, part, pixels, 4,
                       {4 * input_pitch, input_pitch, kChannels}, kChannels, [&](int64_t t) {
                         const int64_t strip = t / tile.rows * tile.rows;
                         const int64_t height = strip_height(tile, end - begin, strip);
                         return Spot{corner + strip * strip_depth + (c - first) * height +
                                         (t - strip) * kChannels,
                                     strip + height - t};
                       });
      }
    });
  }

  void multiply(int64_t tiles, int64_t out, int64_t outs, float* memory) const {
    for (int64_t p = 0; p < kPositions; ++p) {
      for (int64_t k = 0; k < depth; k += kDepth) {
        multiply_blocked_strips(
            memory + input + p * input_pitch + k * round_up(block, kMaxTileRows), tiles,
            filters + p * filter_pitch + k * columns + out * depth_at(k), outs, depth_at(k), k > 0,
            memory + product + p * product_pitch, out_block);
      }
    }
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
              WinogradMap::kOutput, from + (part.tile + r * part.columns) * out_block + c,
              {4 * product_pitch, product_pitch, out_block}, pixels + 2 * r * at.width * kChannels,
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
    const int64_t in_strips = depth / kChannels;
    const int64_t out_strips = divide_up(s.out_channels, tile.cols);
    pool.parallel_for(out_strips * in_strips, 1, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t i = begin; i < end; ++i) {
        transform_filters(f, i / in_strips * tile.cols, i % in_strips * kChannels,
                          memory + thread * thread_floats + window);
      }
    });
    pool.parallel_for(blocks, 1, [&](int64_t first, int64_t last, int thread) {
      float* own = memory + thread * thread_floats;
      for (int64_t i = first; i < last; ++i) {
        const int64_t begin = i * block, end = std::min(grid.tiles, begin + block);
        transform_inputs(x, begin, end, own);
        for (int64_t out = 0; out < s.out_channels; out += out_block) {
          const int64_t outs = std::min(out_block, s.out_channels - out);
          multiply(end - begin, out, outs, own);
          transform_products(begin, end, out, outs, bias, y, own);
        }
      }
    });
  }

  ConvShape s;
  TileGrid grid;
  GemmTile tile = gemm_tile();
  int64_t depth, columns;  // padded channels
  int64_t block, blocks;   // tiles per block
  int64_t out_block;       // output channels whose products are kept
  int64_t filter_pitch, input_pitch, product_pitch;
  int64_t input, product, window, thread_floats;
  float* filters = nullptr;
};

// --- Gradient of the weights -------------------------------------------------------------------

struct WeightGrad {
  explicit WeightGrad(const ConvShape& shape) : s(shape), grid(shape) {
    const int64_t in_padded = round_up(s.in_channels, kMaxTileCols);
    const int64_t out_padded = round_up(s.out_channels, kMaxTileRows);
    out_strips = divide_up(s.out_channels, tile.rows);
    const int64_t most = kGradFloats / (kPositions * (in_padded + out_padded));
    chunk = std::min(grid.tiles, std::clamp(round_up(most, 16), kGradTiles / 2, kGradTiles));
    input_pitch = chunk * in_padded + kGap;
    grad_pitch = chunk * out_padded + kGap;
    sum_pitch = round_up(s.out_channels * s.in_channels, kGap) + kGap;
    thread_floats = std::max(window_floats(chunk), 9 * round_up(s.in_channels, kGap));
  }

  int64_t floats(int threads) const {
    return kPositions * (input_pitch + grad_pitch + sum_pitch) + threads * thread_floats;
  }

  // Columns of the panels of the product, whose depth is the chunk's tiles [begin, begin + depth).
  void transform_inputs(const float* x, int64_t c, int64_t width, int64_t begin, int64_t depth,
                        float* window) const {
    const int64_t strip = c / tile.cols * tile.cols;
    float* corner = inputs_hat + strip * depth + (c - strip);
    grid.for_each_part(begin, begin + depth, [&](const TileGrid::Part& part) {
      load_window(inputs(s), x, c, std::min(width, s.in_channels - c), part.input(s), window);
      transform_part(WinogradMap::kInput, part, window, 4,
                     {4 * input_pitch, input_pitch, tile.cols}, width, [&](int64_t t) {
                       return Spot{corner + t * tile.cols, depth - t};
                     });
    });
  }

  // Rows of the product.
  void transform_grads(const float* dy, int64_t o, int64_t begin, int64_t depth,
                       float* window) const {
    const int64_t height = strip_height(tile, s.out_channels, o);
    float* corner = grads_hat + o * depth;
    grid.for_each_part(begin, begin + depth, [&](const TileGrid::Part& part) {
      load_window(outputs(s), dy, o, std::min(height, s.out_channels - o), part.output(), window);
      transform_part(WinogradMap::kOutputGrad, part, window, 2,
                     {4 * grad_pitch, grad_pitch, height}, height, [&](int64_t t) {
                       return Spot{corner + t * height, depth - t};
                     });
    });
  }

  void transform_chunk(ThreadPool& pool, const float* x, const float* dy, int64_t begin,
                       int64_t depth, float* memory) const {
    const int64_t width = std::min(kChannels, tile.cols);
    const int64_t in_strips = divide_up(s.in_channels, width);
    pool.parallel_for(in_strips + out_strips, 1, [&](int64_t i, int64_t last, int thread) {
      float* window = memory + thread * thread_floats;
      for (; i < last; ++i) {
        if (i < in_strips) {
          transform_inputs(x, i * width, width, begin, depth, window);
        } else {
          transform_grads(dy, (i - in_strips) * tile.rows, begin, depth, window);
        }
      }
    });
  }

  // sums[position][out][in] (+)= what the chunk's tiles add.
  void multiply_chunk(ThreadPool& pool, int64_t depth, bool add) const {
    // Outputs are divided only where there are too few positions.
    const int64_t parts = std::clamp<int64_t>(2 * pool.threads() / kPositions, 1, out_strips);
    pool.parallel_for(kPositions * parts, 1, [&](int64_t task, int64_t last, int) {
      for (; task < last; ++task) {
        const int64_t p = task / parts, part = task % parts;
        const int64_t begin = out_strips * part / parts * tile.rows;
        const int64_t end = std::min(s.out_channels, out_strips * (part + 1) / parts * tile.rows);
        multiply_panels(grads_hat + p * grad_pitch + begin * depth, end - begin,
                        inputs_hat + p * input_pitch, s.in_channels, depth, add,
                        sums + p * sum_pitch + begin * s.in_channels, s.in_channels);
      }
    });
  }

  void transform_sums(ThreadPool& pool, float* dw, float* memory) const {
    const int64_t tap = round_up(s.in_channels, kGap);
    pool.parallel_for(s.out_channels, 1, [&](int64_t o, int64_t last, int thread) {
      float* taps = memory + thread * thread_floats;
      for (; o < last; ++o) {
        winograd_transform(WinogradMap::kFilterGrad, sums + o * s.in_channels,
                           {4 * sum_pitch, sum_pitch, 0}, taps, {3 * tap, tap, 0}, 1,
                           s.in_channels);
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
  int64_t out_strips;
  int64_t chunk;  // tiles whose products are added up in one chain
  int64_t input_pitch, grad_pitch, sum_pitch, thread_floats;
  float *inputs_hat = nullptr, *grads_hat = nullptr, *sums = nullptr;
};

}  // namespace

bool winograd_pays(const ConvShape& s) {
  const bool fits = s.kernel_height == 3 && s.kernel_width == 3 && s.stride_y == 1 &&
                    s.stride_x == 1 && s.dilation_y == 1 && s.dilation_x == 1 && s.groups == 1 &&
                    s.padding_y <= 2 && s.padding_x <= 2;
  // Fewer tiles do not make up for transforming the filters, fewer channels for the rest.
  return fits && s.in_channels >= 32 && s.out_channels >= 32 && TileGrid(s).tiles >= 64;
}

size_t winograd_workspace_bytes(const ConvShape& shape, int threads) {
  return Forward(shape, threads).floats(threads) * sizeof(float);
}
size_t winograd_input_grad_workspace_bytes(const ConvShape& shape, int threads) {
  return winograd_workspace_bytes(input_grad_shape(shape), threads);
}
size_t winograd_weight_grad_workspace_bytes(const ConvShape& shape, int threads) {
  return WeightGrad(shape).floats(threads) * sizeof(float);
}

void winograd(ThreadPool& pool, const ConvShape& shape, const float* x, const float* w,
              const float* bias, float* y, std::byte* workspace) {
  Forward(shape, pool.threads()).run(pool, {w, false}, x, bias, y, workspace);
}

void winograd_input_grad(ThreadPool& pool, const ConvShape& shape, const float* dy, const float* w,
                         float* dx, std::byte* workspace) {
  const ConvShape mirrored = input_grad_shape(shape);
  Forward(mirrored, pool.threads()).run(pool, {w, true}, dy, nullptr, dx, workspace);
}

void winograd_weight_grad(ThreadPool& pool, const ConvShape& shape, const float* x, const float* dy,
                          float* dw, std::byte* workspace) {
  WeightGrad(shape).run(pool, x, dy, dw, workspace);
}

}  // namespace lumen::kernels
