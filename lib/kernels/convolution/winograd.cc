#include "lib/kernels/convolution/winograd.h"

#include <algorithm>

#include "lib/kernels/convolution/conv_pack.h"
#include "lib/kernels/convolution/winograd_tiles.h"

namespace lumen::kernels {
namespace {

using namespace winograd_tiles;

// Sizes are derived in ../README.md.
constexpr int64_t kMaxTiles = 96;             // per block of the product
constexpr int64_t kInputFloats = 128 * 1024;  // of the transformed input of a block
constexpr int64_t kFilterFloats = 32 * 1024;  // of the filters of a position and some outputs
constexpr int64_t kDepth = 512;               // input channels per chain of multiply-adds

// Weights as [out][in][9], or those of the gradient of the input: [in][out][9], rotated.
struct Filters {
  const float* w;
  bool transposed;
};

// In float32, or with both operands of the products rounded to bfloat16.
struct Forward {
  Forward(const ConvShape& shape, int threads, bool bf16)
      : s(shape), grid(shape), unit(bf16 ? bf16_unit() : nullptr) {
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
                      bf16_numbers(filters) + out * depth + in * kTileRows, 2 * filter_pitch);
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
                    bf16_numbers(memory + input) + first * depth + c * kTileRows, 2 * input_pitch);
  }

  void multiply(int64_t tiles, int64_t out, int64_t outs, float* memory) const {
    for (int64_t p = 0; p < kPositions; ++p) {
      float* const in = memory + input + p * input_pitch;
      float* const weights = filters + p * filter_pitch;
      float* const to = memory + product + p * product_pitch;
      if (unit) {
        multiply_bf16(bf16_numbers(in), tiles, bf16_numbers(weights) + out * depth, outs, to);
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
  const TileUnit* unit;    // null: products in float32
  int64_t channels;        // that are transformed together
  int64_t depth, columns;  // padded channels
  int64_t block, blocks;   // tiles per block
  int64_t out_block;       // output channels whose products are kept
  int64_t product_cols;    // whose products of one tile lie together
  int64_t filter_pitch, input_pitch, product_pitch;
  int64_t input, product, unrounded, window, thread_floats;
  float* filters = nullptr;
};

void forward(ThreadPool& pool, const ConvShape& shape, const Filters& filters, const float* x,
             const float* bias, float* y, std::byte* workspace) {
  Forward(shape, pool.threads(), rounds_products(shape)).run(pool, filters, x, bias, y, workspace);
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

void winograd(ThreadPool& pool, const ConvShape& shape, const float* x, const float* w,
              const float* bias, float* y, std::byte* workspace) {
  forward(pool, shape, {w, false}, x, bias, y, workspace);
}

void winograd_input_grad(ThreadPool& pool, const ConvShape& shape, const float* dy, const float* w,
                         float* dx, std::byte* workspace) {
  forward(pool, input_grad_shape(shape), {w, true}, dy, nullptr, dx, workspace);
}

}  // namespace lumen::kernels
