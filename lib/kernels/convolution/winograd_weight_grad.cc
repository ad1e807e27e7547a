#include <algorithm>

#include "lib/kernels/convolution/winograd.h"
#include "lib/kernels/convolution/winograd_tiles.h"

namespace lumen::kernels {
namespace {

using namespace winograd_tiles;

// Sizes are derived in ../README.md.
constexpr int64_t kGradTiles = 256;          // per chunk
constexpr int64_t kGradFloats = 256 * 1024;  // of the transformed input and gradient of a chunk

// In float32, or with both operands of the products rounded to bfloat16.
struct WeightGrad {
  WeightGrad(const ConvShape& shape, bool bf16)
      : s(shape), grid(shape), unit(bf16 ? bf16_unit() : nullptr) {
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
                    bf16_numbers(to.hat) + c * padded_depth(depth) + first * kTileRows,
                    2 * to.pitch);
  }

  void transform_chunk(ThreadPool& pool, const float* x, const float* dy, int64_t begin,
                       int64_t depth, float* memory) const {
    const Operand rows = {WinogradMap::kOutputGrad, outputs(s), 2,
                          PanelOrder::kRows,        grads_hat,  grad_pitch};
    const Operand columns = {WinogradMap::kInput, inputs(s),  4,
                             PanelOrder::kPairs,  inputs_hat, input_pitch};
    const int64_t width = unit ? kTileRows : std::min(kChannels, tile.cols);
    const int64_t height = unit ? kTileRows : tile.rows;
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
              *unit,
              {bf16_numbers(rows) + o * padded + k * kTileRows, pitch, std::min(kSums, end - o)},
              {bf16_numbers(columns) + c * padded + k * kTileRows, pitch,
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
  const TileUnit* unit;        // null: products in float32
  int64_t chunk;               // tiles whose products are added up in one chain
  int64_t sum_rows, sum_cols;  // of the sums that lie together
  int64_t input_pitch, grad_pitch, sum_pitch, window, thread_floats;
  float *inputs_hat = nullptr, *grads_hat = nullptr, *sums = nullptr;
};

}  // namespace

size_t winograd_weight_grad_workspace_bytes(const ConvShape& shape, int threads) {
  return bytes_either_way(shape,
                          [&](bool bf16) { return WeightGrad(shape, bf16).floats(threads); });
}

void winograd_weight_grad(ThreadPool& pool, const ConvShape& shape, const float* x, const float* dy,
                          float* dw, std::byte* workspace) {
  WeightGrad(shape, rounds_products(shape)).run(pool, x, dy, dw, workspace);
}

}  // namespace lumen::kernels
