#include "lib/kernels/convolution/patch_conv.h"

#include <algorithm>
#include <cstring>

#include "lib/base/round_up.h"
#include "lib/kernels/convolution/conv_pack.h"
#include "lib/kernels/products/gemm_tile.h"

namespace lumen::kernels {
namespace {

// Blocks of so many patch elements are packed at a time: panels of 256 KiB, as in blocked_product.
constexpr int64_t kTileColumns = kPatchTileColumns;
constexpr int64_t kForwardDepth = 512;
// The gradients' blocks: patch elements per block, columns per tile of the weight gradient, output
// channels per block of the input gradient.
constexpr int64_t kGradRows = 256;
constexpr int64_t kGradColumns = 256;
constexpr int64_t kGradDepth = 512;
// The weight gradient is a sum over all columns: cut into slices where there are few other tasks.
constexpr int64_t kTasks = 16;

// Derived sizes. A 1 × 1 kernel that touches every pixel once sees images of one row.
struct Problem {
  explicit Problem(const ConvShape& shape) : s(shape) {
    const bool pointwise = s.kernel_height == 1 && s.kernel_width == 1 && s.stride_y == 1 &&
                           s.stride_x == 1 && s.padding_y == 0 && s.padding_x == 0 &&
                           s.in_height == s.out_height && s.in_width == s.out_width;
    if (pointwise) {
      s.in_width = s.out_width = s.in_height * s.in_width;
      s.in_height = s.out_height = 1;
    }
    taps = s.kernel_height * s.kernel_width;
    pixels = s.out_height * s.out_width;
    columns = s.batch * pixels;
    in_group = s.in_channels / s.groups;
    out_group = s.out_channels / s.groups;
    patch = in_group * taps;
    window_width = (s.out_width - 1) * s.stride_x + (s.kernel_width - 1) * s.dilation_x + 1;
  }

  // Channels per block so that a block has at most `limit` patch elements, or one channel.
  int64_t block_channels(int64_t limit) const {
    const int64_t most = std::max<int64_t>(1, limit / taps);
    return std::max<int64_t>(1, divide_up(in_group, divide_up(in_group, most)));
  }

  // Rows of the padded input that `rows` output rows of one sample read.
  int64_t window_rows(int64_t rows) const {
    return (rows - 1) * s.stride_y + (s.kernel_height - 1) * s.dilation_y + 1;
  }

  // Floats per channel of the window of any tile of `tile` columns.
  int64_t window_floats(int64_t tile) const {
    const int64_t samples = std::min(s.batch, (tile - 1) / pixels + 2);
    const int64_t rows = std::min(samples * s.out_height, (tile - 1) / s.out_width + 1 + samples);
    return (rows * s.stride_y + samples * window_rows(1)) * window_width;
  }

  ConvShape s;
  int64_t taps, pixels, columns, in_group, out_group, patch, window_width;
};

// Columns [begin, end), cut into runs that lie in one output row (or, `flat`, in one sample) and in
// one strip of `strip` columns.
class Tile {
 public:
  Tile(const Problem& problem, int64_t begin, int64_t end, int64_t strip, bool flat = false)
      : problem_(problem), first_(begin), end_(end), strip_(strip) {
    const int64_t pixels = problem.pixels;
    const int64_t row = flat ? pixels : problem.s.out_width;
    for (int64_t at = begin; at < end;) {
      const int64_t sample = at / pixels, pixel = at % pixels, column = at - begin;
      const int64_t count = std::min({end - at, row - pixel % row, strip - column % strip});
      Place place{sample, pixel / problem.s.out_width, pixel % problem.s.out_width, column};
      places_[count_] = place;
      runs_[count_++] = {window_source(place), column % strip, count};
      at += count;
    }
  }

  int64_t columns() const { return end_ - first_; }
  bool single_sample() const { return sample_of(first_) == sample_of(end_ - 1); }
  int64_t count() const { return count_; }

  // Where run i begins.
  struct Place {
    int64_t sample, y, x;
    int64_t column;  // in the tile
  };
  const Place& place(int64_t i) const { return places_[i]; }
  const Run& run(int64_t i) const { return runs_[i]; }

  // The runs of the strip that starts at `column`.
  Patches strip_patches(int64_t column, const float* window, const int64_t* offsets) const {
    int64_t begin = 0;
    while (places_[begin].column < column) ++begin;
    int64_t end = begin;
    while (end < count_ && places_[end].column < column + strip_) ++end;
    return {window, offsets, runs_ + begin, end - begin, problem_.s.stride_x};
  }

  // Rows of the window: of every sample those that its columns read.
  int64_t window_rows() const {
    const int64_t last = sample_of(end_ - 1);
    return window_base(last) + problem_.window_rows(last_row(last) - first_row(last) + 1);
  }

  // The padded input of channels [channel, channel + channels): [channels][window_rows()]
  // [window_width].
  void fill_window(const float* x, int64_t channel, int64_t channels, float* window) const {
    const ConvShape& s = problem_.s;
    for (int64_t c = channel; c < channel + channels; ++c) {
      for (int64_t n = sample_of(first_); n <= sample_of(end_ - 1); ++n) {
        const float* plane = x + (n * s.in_channels + c) * s.in_height * s.in_width;
        const int64_t rows = problem_.window_rows(last_row(n) - first_row(n) + 1);
        const int64_t top = first_row(n) * s.stride_y - s.padding_y;
        for (int64_t r = 0; r < rows; ++r, window += problem_.window_width) {
          fill_padded_row(s, plane, top + r, problem_.window_width, window);
        }
      }
    }
  }

 private:
  int64_t sample_of(int64_t column) const { return column / problem_.pixels; }
  int64_t first_row(int64_t sample) const {
    return sample == sample_of(first_) ? first_ % problem_.pixels / problem_.s.out_width : 0;
  }
  int64_t last_row(int64_t sample) const {
    return sample == sample_of(end_ - 1) ? (end_ - 1) % problem_.pixels / problem_.s.out_width
                                         : problem_.s.out_height - 1;
  }
  int64_t window_base(int64_t sample) const {
    const int64_t first = sample_of(first_);
    if (sample == first) return 0;
    return problem_.window_rows(last_row(first) - first_row(first) + 1) +
           (sample - first - 1) * problem_.window_rows(problem_.s.out_height);
  }
  int64_t window_source(const Place& at) const {
    const int64_t row =
        window_base(at.sample) + (at.y - first_row(at.sample)) * problem_.s.stride_y;
    return row * problem_.window_width + at.x * problem_.s.stride_x;
  }

  static constexpr int64_t kMaxColumns = 256;
  static_assert(kTileColumns <= kMaxColumns && kGradColumns <= kMaxColumns);

  const Problem& problem_;
  int64_t first_, end_, strip_;
  int64_t count_ = 0;
  Run runs_[kMaxColumns];
  Place places_[kMaxColumns];
};

// The memory of one thread, in floats; `depth` patch elements in blocks of `channels` channels.
struct ThreadMemory {
  ThreadMemory(const Problem& problem, int64_t channels, int64_t columns, int64_t panel_floats,
               int64_t strip_floats, int64_t product_floats) {
    offsets = 0;  // int64 each
    window = round_up(2 * channels * problem.taps, 16);
    panel = window + round_up(channels * problem.window_floats(columns) + kPackSlack, 16);
    strip = panel + round_up(panel_floats + kPackSlack, 16);
    product = strip + round_up(strip_floats, 16);
    floats = product + round_up(product_floats, 16);
  }
  int64_t offsets, window, panel, strip, product, floats;
};

// --- Forward -----------------------------------------------------------------------------------

struct Forward {
  Forward(const ConvShape& shape)
      : problem(shape),
        channels(problem.block_channels(kForwardDepth)),
        padded_rows(round_up(problem.out_group, kMaxTileRows)),
        weight_floats(problem.s.groups * padded_rows * problem.patch),
        memory(problem, channels, kTileColumns, channels * problem.taps * kTileColumns, 0,
               problem.out_group * kTileColumns) {}

  const float* packed(int64_t group, int64_t channel) const {
    return weights + (group * problem.patch + channel * problem.taps) * padded_rows;
  }

  void pack_weights(ThreadPool& pool, const float* w) const {
    const int64_t blocks = divide_up(problem.in_group, channels);
    pool.parallel_for(problem.s.groups * blocks, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t task = begin; task < end; ++task) pack_block(w, task / blocks, task % blocks);
    });
  }

  void pack_block(const float* w, int64_t group, int64_t block) const {
    const int64_t channel = block * channels;
    const int64_t depth = std::min(channels, problem.in_group - channel) * problem.taps;
    auto* to = const_cast<float*>(packed(group, channel));
    for (int64_t i = 0; i < problem.out_group;) {
      const int64_t height = strip_height(tile, problem.out_group, i);
      const float* from =
          w + (group * problem.out_group + i) * problem.patch + channel * problem.taps;
      pack_strip({from, problem.patch, 1}, std::min(height, problem.out_group - i), height, depth,
                 height, to + i * depth);
      i += height;
    }
  }

  // Columns of `at` by output channels [first, last) of `group`; `first` starts a strip.
  void compute(const Tile& at, int64_t group, int64_t first, int64_t last, const float* x,
               const float* bias, float* y, float* thread_memory) const {
    const ConvShape& s = problem.s;
    auto* offsets = reinterpret_cast<int64_t*>(thread_memory + memory.offsets);
    float *window = thread_memory + memory.window, *panel = thread_memory + memory.panel;
    const int64_t channel0 = group * problem.out_group + first, columns = at.columns();
    const Tile::Place& corner = at.place(0);
    float* out = y + (corner.sample * s.out_channels + channel0) * problem.pixels +
                 corner.y * s.out_width + corner.x;
    const bool direct = at.single_sample();
    float* c = direct ? out : thread_memory + memory.product;
    const int64_t c_stride = direct ? problem.pixels : columns;
    for (int64_t channel = 0; channel < problem.in_group; channel += channels) {
      const int64_t count = std::min(channels, problem.in_group - channel);
      const int64_t depth = count * problem.taps;
      at.fill_window(x, group * problem.in_group + channel, count, window);
      fill_offsets(problem.s, count, at.window_rows(), problem.window_width, offsets);
      for (int64_t j = 0; j < columns; j += tile.cols) {
        pack_patches(at.strip_patches(j, window, offsets), depth, tile.cols, panel + j * depth);
      }
      multiply_panels(packed(group, channel) + first * depth, last - first, panel, columns, depth,
                      channel > 0, c, c_stride);
    }
    finish(at, channel0, last - first, bias, c, c_stride, y);
  }

  // Adds the bias; moves what was computed aside to its place.
  void finish(const Tile& at, int64_t channel, int64_t count, const float* bias, float* c,
              int64_t c_stride, float* y) const {
    const ConvShape& s = problem.s;
    for (int64_t i = 0; i < count; ++i, c += c_stride) {
      const float b = bias ? bias[channel + i] : 0.0f;
      if (at.single_sample()) {
        if (!bias) return;
        for (int64_t j = 0; j < at.columns(); ++j) c[j] += b;
        continue;
      }
      for (int64_t r = 0; r < at.count(); ++r) {
        const Tile::Place& place = at.place(r);
        float* to = y + (place.sample * s.out_channels + channel + i) * problem.pixels +
                    place.y * s.out_width + place.x;
        for (int64_t j = 0; j < at.run(r).count; ++j) to[j] = c[place.column + j] + b;
      }
    }
  }

  Problem problem;
  GemmTile tile = gemm_tile();
  int64_t channels;  // per block
  int64_t padded_rows, weight_floats;
  ThreadMemory memory;
  float* weights = nullptr;
};

// --- Gradient of the input ---------------------------------------------------------------------

struct InputGrad {
  InputGrad(const ConvShape& shape)
      : problem(shape),
        channels(problem.block_channels(kGradRows)),
        samples(std::clamp<int64_t>(kTileColumns / problem.pixels, 1, problem.s.batch)),
        padded_rows(round_up(channels * problem.taps, kMaxTileRows)),
        blocks(divide_up(problem.in_group, channels)),
        weight_floats(problem.s.groups * blocks * padded_rows * problem.out_group),
        memory(problem, 0, 1, std::min(problem.out_group, kGradDepth) * kTileColumns, 0,
               channels * problem.taps * kTileColumns) {}

  float* packed(int64_t group, int64_t block) const {
    return weights + (group * blocks + block) * padded_rows * problem.out_group;
  }
  int64_t block_rows(int64_t block) const {
    return std::min(channels, problem.in_group - block * channels) * problem.taps;
  }

  // The transposed weights: rows are patch elements, the depth is the output channels.
  void pack_block(const float* w, int64_t group, int64_t block) const {
    const int64_t rows = block_rows(block);
    for (int64_t k = 0; k < problem.out_group; k += kGradDepth) {
      const int64_t depth = std::min(kGradDepth, problem.out_group - k);
      float* to = packed(group, block) + k * padded_rows;
      for (int64_t i = 0; i < rows;) {
        const int64_t height = strip_height(tile, rows, i);
        const float* from = w + (group * problem.out_group + k) * problem.patch +
                            block * channels * problem.taps + i;
        pack_strip({from, 1, problem.patch}, std::min(height, rows - i), height, depth, height,
                   to + i * depth);
        i += height;
      }
    }
  }

  // Input channels of `block` of `group` for some samples.
  void compute(int64_t first_sample, int64_t group, int64_t block, const float* dy, float* dx,
               float* thread_memory) const {
    const ConvShape& s = problem.s;
    const int64_t last_sample = std::min(s.batch, first_sample + samples);
    const int64_t channel = group * problem.in_group + block * channels;
    const int64_t plane = s.in_height * s.in_width;
    for (int64_t n = first_sample; n < last_sample; ++n) {
      std::fill_n(dx + (n * s.in_channels + channel) * plane,
                  block_rows(block) / problem.taps * plane, 0.0f);
    }
    const int64_t end = last_sample * problem.pixels;
    for (int64_t at = first_sample * problem.pixels; at < end; at += kTileColumns) {
      const int64_t tile_end = std::min(end, at + kTileColumns);
      multiply(Tile(problem, at, tile_end, tile.cols, true), group, block, dy, thread_memory);
      const Tile rows(problem, at, tile_end, kTileColumns);
      scatter(rows, channel, block_rows(block), thread_memory + memory.product, dx);
    }
  }

  // product[patch element][column] = Σ_o w[o][patch element] · dy[o][column].
  void multiply(const Tile& at, int64_t group, int64_t block, const float* dy,
                float* thread_memory) const {
    float* panel = thread_memory + memory.panel;
    for (int64_t k = 0; k < problem.out_group; k += kGradDepth) {
      const int64_t depth = std::min(kGradDepth, problem.out_group - k);
      for (int64_t r = 0; r < at.count(); ++r) {
        const Tile::Place& place = at.place(r);
        const Run& run = at.run(r);
        const float* from =
            dy +
            (place.sample * problem.s.out_channels + group * problem.out_group + k) *
                problem.pixels +
            place.y * problem.s.out_width + place.x;
        float* to = panel + (place.column - run.begin) * depth + run.begin;
        pack_strip({from, 1, problem.pixels}, run.count, run.count, depth, tile.cols, to);
      }
      multiply_panels(packed(group, block) + k * padded_rows, block_rows(block), panel,
                      at.columns(), depth, k > 0, thread_memory + memory.product, kTileColumns);
    }
  }

  // Adds every patch element to the pixel that it was taken from.
  void scatter(const Tile& at, int64_t channel, int64_t rows, const float* product,
               float* dx) const {
    const ConvShape& s = problem.s;
    for (int64_t k = 0; k < rows; ++k, product += kTileColumns) {
      const int64_t c = channel + k / problem.taps, tap = k % problem.taps;
      const int64_t below = tap / s.kernel_width * s.dilation_y - s.padding_y;
      const int64_t right = tap % s.kernel_width * s.dilation_x - s.padding_x;
      for (int64_t r = 0; r < at.count(); ++r) {
        const Tile::Place& place = at.place(r);
        const int64_t y = place.y * s.stride_y + below;
        if (y < 0 || y >= s.in_height) continue;
        const int64_t x = place.x * s.stride_x + right;
        const int64_t first = x < 0 ? divide_up(-x, s.stride_x) : 0;
        const int64_t last = std::min(at.run(r).count, divide_up(s.in_width - x, s.stride_x));
        if (first >= last) continue;
        float* row = dx + ((place.sample * s.in_channels + c) * s.in_height + y) * s.in_width;
        add_strided(product + place.column + first, last - first, s.stride_x,
                    row + x + first * s.stride_x);
      }
    }
  }

  Problem problem;
  GemmTile tile = gemm_tile();
  int64_t channels;  // per block
  int64_t samples;   // per task
  int64_t padded_rows, blocks, weight_floats;
  ThreadMemory memory;
  float* weights = nullptr;
};

// --- Gradient of the weights -------------------------------------------------------------------

struct WeightGrad {
  WeightGrad(const ConvShape& shape)
      : problem(shape),
        channels(problem.block_channels(kGradRows)),
        blocks(divide_up(problem.in_group, channels)),
        tiles(divide_up(problem.columns, kGradColumns)),
        slices(std::clamp<int64_t>(kTasks / (problem.s.groups * blocks), 1,
                                   std::max<int64_t>(1, tiles))),
        weight_floats(problem.s.out_channels * problem.patch),
        memory(problem, channels, kGradColumns,
               round_up(channels * problem.taps, kMaxTileCols) * kGradColumns,
               kMaxTileRows * kGradColumns, 0) {}

  // The sum over the columns of one slice, for one block of channels of one group.
  void compute(int64_t slice, int64_t group, int64_t block, const float* x, const float* dy,
               float* dw, float* thread_memory) const {
    const int64_t channel = block * channels;
    const int64_t count = std::min(channels, problem.in_group - channel);
    const int64_t first = tiles * slice / slices, last = tiles * (slice + 1) / slices;
    float* c = dw + group * problem.out_group * problem.patch + channel * problem.taps;
    for (int64_t at = first; at < last; ++at) {
      const int64_t begin = at * kGradColumns;
      const int64_t end = std::min(problem.columns, begin + kGradColumns);
      const Tile rows(problem, begin, end, kGradColumns);
      pack_inputs(rows, group * problem.in_group + channel, count, x, thread_memory);
      const Tile flat(problem, begin, end, kGradColumns, true);
      multiply(flat, group, count * problem.taps, dy, at > first, c, thread_memory);
    }
  }

  void pack_inputs(const Tile& at, int64_t channel, int64_t count, const float* x,
                   float* thread_memory) const {
    auto* offsets = reinterpret_cast<int64_t*>(thread_memory + memory.offsets);
    float *window = thread_memory + memory.window, *panel = thread_memory + memory.panel;
    at.fill_window(x, channel, count, window);
    fill_offsets(problem.s, count, at.window_rows(), problem.window_width, offsets);
    const int64_t rows = count * problem.taps;
    for (int64_t k = 0; k < rows; k += tile.cols) {
      pack_patches_transposed(at.strip_patches(0, window, offsets + k),
                              std::min(tile.cols, rows - k), tile.cols, panel + k * at.columns());
    }
  }

  // c[o][patch element] (+)= Σ over the columns of dy[o] · patch element.
  void multiply(const Tile& at, int64_t group, int64_t rows, const float* dy, bool add, float* c,
                float* thread_memory) const {
    float* strip = thread_memory + memory.strip;
    for (int64_t i = 0; i < problem.out_group;) {
      const int64_t height = strip_height(tile, problem.out_group, i);
      const int64_t used = std::min(height, problem.out_group - i);
      for (int64_t r = 0; r < at.count(); ++r) {
        const Tile::Place& place = at.place(r);
        const float* from =
            dy +
            (place.sample * problem.s.out_channels + group * problem.out_group + i) *
                problem.pixels +
            place.y * problem.s.out_width + place.x;
        pack_strip({from, problem.pixels, 1}, used, height, at.run(r).count, height,
                   strip + place.column * height);
      }
      multiply_panels(strip, used, thread_memory + memory.panel, rows, at.columns(), add,
                      c + i * problem.patch, problem.patch);
      i += height;
    }
  }

  Problem problem;
  GemmTile tile = gemm_tile();
  int64_t channels;  // per block
  int64_t blocks, tiles, slices, weight_floats;
  ThreadMemory memory;
};

}  // namespace

size_t patch_conv_workspace_bytes(const ConvShape& shape, int threads) {
  const Forward forward(shape);
  return (round_up(forward.weight_floats, 16) + threads * forward.memory.floats) * sizeof(float);
}

size_t patch_input_grad_workspace_bytes(const ConvShape& shape, int threads) {
  const InputGrad grad(shape);
  return (round_up(grad.weight_floats, 16) + threads * grad.memory.floats) * sizeof(float);
}

size_t patch_weight_grad_workspace_bytes(const ConvShape& shape, int threads) {
  const WeightGrad grad(shape);
  return (round_up(grad.slices * grad.weight_floats, 16) + threads * grad.memory.floats) *
         sizeof(float);
}

void patch_conv(ThreadPool& pool, const ConvShape& shape, const float* x, const float* w,
                const float* bias, float* y, std::byte* workspace) {
  Forward forward(shape);
  const Problem& problem = forward.problem;
  if (problem.patch == 0) {
    for (int64_t i = 0; i < shape.batch * shape.out_channels; ++i) {
      std::fill_n(y + i * problem.pixels, problem.pixels, bias ? bias[i % shape.out_channels] : 0);
    }
    return;
  }
  auto* memory = reinterpret_cast<float*>(workspace);
  forward.weights = memory + pool.threads() * forward.memory.floats;
  forward.pack_weights(pool, w);
  const int64_t groups = problem.s.groups, tiles = divide_up(problem.columns, kTileColumns);
  // Output channels are divided only where there are too few other tasks.
  const int64_t strips = divide_up(problem.out_group, forward.tile.rows);
  const int64_t parts = std::clamp<int64_t>(2 * pool.threads() / (tiles * groups), 1, strips);
  pool.parallel_for(tiles * groups * parts, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t part = task % parts, group = task / parts % groups;
      const int64_t column = task / parts / groups * kTileColumns;
      const Tile tile(problem, column, std::min(problem.columns, column + kTileColumns),
                      forward.tile.cols);
      forward.compute(tile, group, strips * part / parts * forward.tile.rows,
                      std::min(problem.out_group, strips * (part + 1) / parts * forward.tile.rows),
                      x, bias, y, memory + thread * forward.memory.floats);
    }
  });
}

void patch_input_grad(ThreadPool& pool, const ConvShape& shape, const float* dy, const float* w,
                      float* dx, std::byte* workspace) {
  InputGrad grad(shape);
  auto* memory = reinterpret_cast<float*>(workspace);
  grad.weights = memory + pool.threads() * grad.memory.floats;
  const int64_t blocks = grad.blocks, groups = shape.groups;
  pool.parallel_for(groups * blocks, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t task = begin; task < end; ++task) grad.pack_block(w, task / blocks, task % blocks);
  });
  const int64_t tasks = divide_up(shape.batch, grad.samples) * groups * blocks;
  pool.parallel_for(tasks, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t task = begin; task < end; ++task) {
      grad.compute(task / blocks / groups * grad.samples, task / blocks % groups, task % blocks, dy,
                   dx, memory + thread * grad.memory.floats);
    }
  });
}

void patch_weight_grad(ThreadPool& pool, const ConvShape& shape, const float* x, const float* dy,
                       float* dw, std::byte* workspace) {
  const WeightGrad grad(shape);
  auto* memory = reinterpret_cast<float*>(workspace);
  float* partial = memory + pool.threads() * grad.memory.floats;
  const int64_t slices = grad.slices, blocks = grad.blocks, groups = shape.groups;
  float* sums = slices == 1 ? dw : partial;
  pool.parallel_for(slices * groups * blocks, 1, [&](int64_t begin, int64_t end, int thread) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t slice = task / blocks / groups;
      grad.compute(slice, task / blocks % groups, task % blocks, x, dy,
                   sums + slice * grad.weight_floats, memory + thread * grad.memory.floats);
    }
  });
  if (slices == 1) return;
  sum_slices(pool, partial, slices, grad.weight_floats, dw);
}

}  // namespace lumen::kernels
