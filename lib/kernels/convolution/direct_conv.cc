#include "lib/kernels/convolution/direct_conv.h"

#include <algorithm>
#include <cstring>

#include "lib/base/round_up.h"
#include "lib/kernels/convolution/conv_pack.h"
#include "lib/kernels/convolution/direct_conv_tile.h"

namespace lumen::kernels {
namespace {

// Floats of padded input that are worked on at a time: 128 KiB, a part of L2.
constexpr int64_t kBandFloats = 32768;
// Patch elements per chain of multiply-adds.
constexpr int64_t kDepth = 512;
// The weight gradient is a sum over all samples, cut into so many slices at most. Chains of
// multiply-adds are 2048 long divided by the lanes of a vector.
constexpr int64_t kTasks = 16;
constexpr int64_t kGradElements = 2048;

bool has_unit_strides(const ConvShape& s) {
  return s.stride_y == 1 && s.stride_x == 1;
}

// With strides only what each channel is convolved with alone, or nearly so: filling the window
// costs more, and matrix products of patches are as fast.
bool is_for_windows(const ConvShape& s) {
  constexpr int64_t kFew = 2;
  const bool are_few = s.out_channels <= kFew * s.groups && s.in_channels <= kFew * s.groups;
  return (has_unit_strides(s) || are_few) && s.batch > 0 && s.in_channels > 0 &&
         s.out_channels > 0 && s.out_height > 0 && s.out_width > 0;
}

// An output is computed in bands of rows. The padded input that a band reads is a line of rows of
// `width` floats (with strides one for each phase); output pixel (i, j) of the band is element p =
// i · width + j, whose patch element k is element offsets[k] + p of the line. Elements p between
// two rows mean nothing.
struct Bands {
  // `more` floats per element p stay in the cache beside the input; a band has about
  // `most_elements` of them at most.
  Bands(const ConvShape& shape, int64_t more, int64_t most_elements)
      : s(shape),
        taps(s.kernel_height * s.kernel_width),
        in_group(s.in_channels / s.groups),
        out_group(s.out_channels / s.groups),
        patch(in_group * taps),
        phases_y(std::min(s.stride_y, (s.kernel_height - 1) * s.dilation_y + 1)),
        phases_x(std::min(s.stride_x, (s.kernel_width - 1) * s.dilation_x + 1)),
        planes(in_group * phases_y * phases_x),
        width(s.out_width + (s.kernel_width - 1) * s.dilation_x / s.stride_x),
        halo((s.kernel_height - 1) * s.dilation_y / s.stride_y) {
    const int64_t floats = kBandFloats - planes * halo * width;
    const int64_t elements = std::min(floats / (planes + more), most_elements);
    // With fewer rows than the halo has, most of a window would be filled for others again.
    const int64_t most = std::clamp<int64_t>(std::max(elements / width, halo), 1, s.out_height);
    bands = divide_up(s.out_height, most);
    rows = divide_up(s.out_height, bands);
  }

  int64_t pixels() const { return s.out_height * s.out_width; }
  int64_t window_floats() const { return planes * (rows + halo) * width; }
  int64_t first_row(int64_t band) const { return band * rows; }
  int64_t rows_of(int64_t band) const {
    return std::clamp<int64_t>(s.out_height - first_row(band), 0, rows);
  }
  // Elements p of a whole band, rounded up to whole vectors.
  int64_t padded_count() const { return round_up((rows - 1) * width + s.out_width, kPlaneSlack); }

  void fill_offsets(int64_t* offsets) const {
    for (int64_t c = 0; c < in_group; ++c) {
      for (int64_t u = 0; u < s.kernel_height; ++u) {
        for (int64_t v = 0; v < s.kernel_width; ++v) {
          const int64_t y = u * s.dilation_y, x = v * s.dilation_x;
          const int64_t plane = (c * phases_y + y % s.stride_y) * phases_x + x % s.stride_x;
          *offsets++ = (plane * (rows + halo) + y / s.stride_y) * width + x / s.stride_x;
        }
      }
    }
  }

  // The padded input of one group of a sample for a band:
  // [in_group][phases_y][phases_x][rows + halo][width].
  void fill_window(const float* x, int64_t sample, int64_t group, int64_t band, float* to) const {
    const int64_t plane = s.in_height * s.in_width;
    const int64_t top = first_row(band) * s.stride_y - s.padding_y, height = rows + halo;
    const float* from = x + (sample * s.in_channels + group * in_group) * plane;
    const bool whole_rows = phases_y * phases_x == 1 && s.stride_y * s.stride_x == 1 &&
                            s.padding_x == 0 && width == s.in_width && top >= 0 &&
                            top + height <= s.in_height;
    for (int64_t c = 0; c < in_group; ++c, from += plane) {
      if (whole_rows) {
        std::memcpy(to, from + top * width, height * width * sizeof(float));
        to += height * width;
        continue;
      }
      for (int64_t phase = 0; phase < phases_y; ++phase, to += phases_x * height * width) {
        for (int64_t i = 0; i < height; ++i) {
          const int64_t y = top + phase + i * s.stride_y;
          if (s.stride_x == 1) {
            fill_padded_row(s, from, y, width, to + i * width);
          } else {
            fill_strided_rows(s, from, y, width, phases_x, height * width, to + i * width);
          }
        }
      }
    }
  }

  ConvShape s;
  int64_t taps, in_group, out_group, patch;
  // Of strides: rows and columns are numbered anew within each phase, the rest of their division by
  // the stride, so that neighbours of one phase meet neighbouring outputs.
  int64_t phases_y, phases_x, planes;
  int64_t width, halo;
  int64_t bands, rows;  // the last band may have fewer
};

// Workspace in floats: the offsets and the packed weights of all threads, then each thread's.
struct Forward {
  explicit Forward(const ConvShape& shape) : bands(shape, 0, kBandFloats) {
    product = round_up(bands.window_floats() + kPlaneSlack, 16);
    thread_floats = product + kCorrelateRows * bands.padded_count();
    weights = round_up(2 * bands.patch, 16);
    shared_floats = weights + round_up(bands.s.out_channels * bands.patch, 16);
    parts = divide_up(bands.out_group, kCorrelateRows);
  }

  // Output channels of a group are computed in parts of nearly the same size.
  int64_t part_begin(int64_t part) const { return bands.out_group * part / parts; }

  // packed[k · rows of the part + r], after the parts before it. `is_mirrored`: w is
  // [in_group][out_group][taps] of the group in this shape's terms, taps to be reversed.
  void pack_part(const float* w, bool is_mirrored, int64_t group, int64_t part,
                 float* packed) const {
    const int64_t taps = bands.taps, begin = part_begin(part), end = part_begin(part + 1);
    w += group * bands.out_group * bands.patch;
    packed += (group * bands.out_group + begin) * bands.patch;
    for (int64_t c = 0; c < bands.in_group; ++c) {
      for (int64_t t = 0; t < taps; ++t) {
        for (int64_t r = begin; r < end; ++r) {
          const int64_t pair = is_mirrored ? c * bands.out_group + r : r * bands.in_group + c;
          *packed++ = w[pair * taps + (is_mirrored ? taps - 1 - t : t)];
        }
      }
    }
  }

  // Parts [first_part, last_part) of one band.
  void compute(int64_t sample, int64_t group, int64_t band, int64_t first_part, int64_t last_part,
               const float* x, const float* bias, float* y, const float* shared,
               float* memory) const {
    const ConvShape& s = bands.s;
    bands.fill_window(x, sample, group, band, memory);
    const int64_t rows = bands.rows_of(band), stride = bands.padded_count();
    for (int64_t part = first_part; part < last_part; ++part) {
      const int64_t begin = part_begin(part), count = part_begin(part + 1) - begin;
      const int64_t first = group * bands.out_group + begin;
      const float* w = shared + weights + first * bands.patch;
      for (int64_t k = 0; k < bands.patch; k += kDepth) {
        correlate(memory, reinterpret_cast<const int64_t*>(shared) + k,
                  std::min(kDepth, bands.patch - k), w + k * count, count,
                  (rows - 1) * bands.width + s.out_width, k > 0, memory + product, stride);
      }
      for (int64_t channel = first; channel < first + count; ++channel) {
        copy_rows_plus(memory + product + (channel - first) * stride, bands.width, rows,
                       s.out_width, bias ? bias[channel] : 0.0f,
                       y + (sample * s.out_channels + channel) * bands.pixels() +
                           bands.first_row(band) * s.out_width,
                       s.out_width);
      }
    }
  }

  void run(ThreadPool& pool, const float* x, const float* w, bool is_mirrored, const float* bias,
           float* y, std::byte* workspace) const {
    auto* shared = reinterpret_cast<float*>(workspace);
    bands.fill_offsets(reinterpret_cast<int64_t*>(shared));
    const int64_t groups = bands.s.groups, tasks = bands.s.batch * groups * bands.bands;
    pool.parallel_for(groups * parts, 4, [&](int64_t at, int64_t last, int) {
      for (; at < last; ++at) {
        pack_part(w, is_mirrored, at / parts, at % parts, shared + weights);
      }
    });
    // Parts are divided only where there are too few other tasks: each fills the window again.
    const int64_t shares = std::clamp<int64_t>(2 * pool.threads() / tasks, 1, parts);
    pool.parallel_for(tasks * shares, 1, [&](int64_t at, int64_t last, int thread) {
      for (; at < last; ++at) {
        const int64_t share = at % shares, task = at / shares;
        compute(task / bands.bands / groups, task / bands.bands % groups, task % bands.bands,
                parts * share / shares, parts * (share + 1) / shares, x, bias, y, shared,
                shared + shared_floats + thread * thread_floats);
      }
    });
  }

  size_t bytes(int threads) const {
    return (shared_floats + threads * thread_floats) * sizeof(float);
  }

  Bands bands;
  int64_t parts;
  int64_t weights, shared_floats;  // of what all threads read
  int64_t product, thread_floats;
};

struct WeightGrad {
  explicit WeightGrad(const ConvShape& shape)
      : bands(shape, shape.out_channels / shape.groups, kGradElements),
        units(bands.s.batch * bands.bands),
        slices(std::clamp<int64_t>(kTasks / bands.s.groups, 1, units)),
        grad_floats(bands.out_group * bands.padded_count()),
        pairs(std::clamp<int64_t>(std::min(kBandFloats / (bands.window_floats() + grad_floats),
                                           kGradElements / bands.padded_count()),
                                  1, divide_up(units, slices))),
        grads(round_up(pairs * bands.window_floats() + kPlaneSlack, 16)),
        thread_floats(grads + pairs * grad_floats),
        weight_floats(bands.s.out_channels * bands.patch) {}

  // The sum over units [first, last), bands of samples, for one group.
  void compute(int64_t group, int64_t first, int64_t last, const float* x, const float* dy,
               const int64_t* offsets, float* dw, float* memory) const {
    for (int64_t unit = first; unit < last; unit += pairs) {
      const int64_t count = std::min(pairs, last - unit);
      const int64_t window = bands.window_floats(), stride = bands.padded_count();
      for (int64_t i = 0; i < count; ++i) {
        const int64_t sample = (unit + i) / bands.bands, band = (unit + i) % bands.bands;
        bands.fill_window(x, sample, group, band, memory + i * window);
        fill_grads(dy, sample, group, band, memory + grads + i * grad_floats);
      }
      // Met by zeros only, but must be numbers.
      std::fill_n(memory + count * window, kPlaneSlack, 0.0f);
      correlate_grad({.d = memory + grads,
                      .d_stride = stride,
                      .d_next = grad_floats,
                      .x = memory,
                      .x_next = window,
                      .pairs = count,
                      .count = stride},
                     bands.out_group, offsets, bands.patch, unit > first,
                     dw + group * bands.out_group * bands.patch, bands.patch);
    }
  }

  // [out_group][padded_count()]: the gradient of each pixel at its element p, zeros elsewhere.
  void fill_grads(const float* dy, int64_t sample, int64_t group, int64_t band, float* to) const {
    const ConvShape& s = bands.s;
    const int64_t rows = bands.rows_of(band), stride = bands.padded_count();
    const float* from = dy + (sample * s.out_channels + group * bands.out_group) * bands.pixels() +
                        bands.first_row(band) * s.out_width;
    for (int64_t o = 0; o < bands.out_group; ++o, from += bands.pixels(), to += stride) {
      int64_t p = 0;
      for (int64_t i = 0; i < rows; ++i) {
        std::memcpy(to + p, from + i * s.out_width, s.out_width * sizeof(float));
        p += s.out_width;
        const int64_t next = i + 1 < rows ? (i + 1) * bands.width : stride;
        std::fill(to + p, to + next, 0.0f);
        p = next;
      }
      if (rows == 0) std::fill_n(to, stride, 0.0f);
    }
  }

  // The sums of the slices, the offsets, then each thread's memory.
  int64_t offsets_at() const { return slices == 1 ? 0 : round_up(slices * weight_floats, 16); }
  int64_t threads_at() const { return offsets_at() + round_up(2 * bands.patch, 16); }
  size_t bytes(int threads) const {
    return (threads_at() + threads * thread_floats) * sizeof(float);
  }

  void run(ThreadPool& pool, const float* x, const float* dy, float* dw,
           std::byte* workspace) const {
    auto* memory = reinterpret_cast<float*>(workspace);
    auto* offsets = reinterpret_cast<int64_t*>(memory + offsets_at());
    bands.fill_offsets(offsets);
    pool.parallel_for(slices * bands.s.groups, 1, [&](int64_t task, int64_t last, int thread) {
      for (; task < last; ++task) {
        const int64_t slice = task % slices;
        compute(task / slices, units * slice / slices, units * (slice + 1) / slices, x, dy, offsets,
                slices == 1 ? dw : memory + slice * weight_floats,
                memory + threads_at() + thread * thread_floats);
      }
    });
    if (slices > 1) sum_slices(pool, memory, slices, weight_floats, dw);
  }

  Bands bands;
  int64_t units, slices;
  int64_t grad_floats;  // per unit
  int64_t pairs;        // units at a time
  int64_t grads, thread_floats, weight_floats;
};

// Times of a multiply-add beside one at the peak, fitted to AVX-512
// (../measurements/convolutions.md).
double direct_time(const Bands& bands) {
  const int64_t computed = bands.bands * bands.padded_count();
  return 1.1 * static_cast<double>(computed) / static_cast<double>(bands.pixels());
}
// Patches are packed once for all output channels.
double patches_time(int64_t out_group) {
  return 1 + 40.0 / static_cast<double>(out_group);
}

}  // namespace

bool direct_conv_pays(const ConvShape& shape) {
  if (!is_for_windows(shape)) return false;
  const Bands bands(shape, 0, kBandFloats);
  return direct_time(bands) < patches_time(bands.out_group);
}

bool direct_input_grad_pays(const ConvShape& shape) {
  if (!has_unit_strides(shape) || !is_for_windows(shape)) return false;
  const ConvShape m = input_grad_shape(shape);
  if (m.padding_y < 0 || m.padding_x < 0) return false;
  const Bands bands(m, 0, kBandFloats);
  // Overlapping patches are added up; on the other hand only those inside are multiplied.
  const double patches = (bands.taps > 1 ? 2.5 : 1.0) * patches_time(bands.out_group);
  return direct_time(bands) * bands.pixels() < patches * shape.out_height * shape.out_width;
}

bool direct_weight_grad_pays(const ConvShape& shape) {
  if (!is_for_windows(shape)) return false;
  const WeightGrad grad(shape);
  const Bands& bands = grad.bands;
  // Adding up the lanes of sums takes as long as 64 products of each.
  const double sums = 1 + 64.0 / static_cast<double>(grad.pairs * bands.padded_count());
  const double patches =
      patches_time(bands.out_group) + 0.3 + 60.0 / static_cast<double>(bands.patch);
  return 1.7 * direct_time(bands) * sums < patches;
}

size_t direct_conv_workspace_bytes(const ConvShape& shape, int threads) {
  return Forward(shape).bytes(threads);
}

size_t direct_input_grad_workspace_bytes(const ConvShape& shape, int threads) {
  return Forward(input_grad_shape(shape)).bytes(threads);
}

size_t direct_weight_grad_workspace_bytes(const ConvShape& shape, int threads) {
  return WeightGrad(shape).bytes(threads);
}

void direct_conv(ThreadPool& pool, const ConvShape& shape, const float* x, const float* w,
                 const float* bias, float* y, std::byte* workspace) {
  Forward(shape).run(pool, x, w, false, bias, y, workspace);
}

void direct_input_grad(ThreadPool& pool, const ConvShape& shape, const float* dy, const float* w,
                       float* dx, std::byte* workspace) {
  Forward(input_grad_shape(shape)).run(pool, dy, w, true, nullptr, dx, workspace);
}

void direct_weight_grad(ThreadPool& pool, const ConvShape& shape, const float* x, const float* dy,
                        float* dw, std::byte* workspace) {
  WeightGrad(shape).run(pool, x, dy, dw, workspace);
}

}  // namespace lumen::kernels
