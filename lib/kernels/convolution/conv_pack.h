// What the ways to convolve share: how pieces of images become panels of the matrix product
// (gemm_tile.h) and back, and what gradients are made of. Private to this room.
#pragma once

#include <cstdint>

#include "lib/base/pool.h"
#include "lib/kernels/conv.h"

namespace lumen::kernels {

// Consecutive columns of a strip that come from one row of an image: column begin + j is element
// source + j · step.
struct Run {
  int64_t source;
  int64_t begin, count;
};

// A plane of patches: element (k, column) is plane[offsets[k] + place of the column].
struct Patches {
  const float* plane;
  const int64_t* offsets;
  const Run* runs;
  int64_t run_count;
  int64_t step;
};

// Floats that packing may read past the last element and write past the panel.
inline constexpr int64_t kPackSlack = 16;

// panel[k · width + column] = element (k, column) for k in [0, depth). Columns without a run hold
// anything. Runs are in ascending order of columns. noexcept.
void pack_patches(const Patches& patches, int64_t depth, int64_t width, float* panel);

// panel[column · width + k] = element (k, column) for k in [0, rows), and 0 for k in [rows, width).
void pack_patches_transposed(const Patches& patches, int64_t rows, int64_t width, float* panel);

// row[0, width) = row y of the zero-padded `plane` [shape.in_height][shape.in_width] from column
// -shape.padding_x on; y may lie outside.
void fill_padded_row(const ConvShape& shape, const float* plane, int64_t y, int64_t width,
                     float* row);

// Every stride_x-th element of such a row: rows + b · stride + j, for b in [0, phases) and j in
// [0, width), is that of column b + j · stride_x − shape.padding_x.
void fill_strided_rows(const ConvShape& shape, const float* plane, int64_t y, int64_t width,
                       int64_t phases, int64_t stride, float* rows);

// offsets[k] of patch element k = (c · kernel_height + u) · kernel_width + v, of `channels`
// channels in a window [channels][rows][width] of the padded input.
void fill_offsets(const ConvShape& shape, int64_t channels, int64_t rows, int64_t width,
                  int64_t* offsets);

// y[j · step] += x[j] for j in [0, count).
void add_strided(const float* x, int64_t count, int64_t step, float* y);

// The convolution of dy that gives the gradient of the input of `shape`, whose strides are 1: the
// kernel is mirrored and its channels in and out are exchanged. Its padding may be negative.
ConvShape input_grad_shape(const ConvShape& shape);

// sum[i] = Σ_s slices[s · count + i] for s in [0, slice_count) and i in [0, count).
void sum_slices(ThreadPool& pool, const float* slices, int64_t slice_count, int64_t count,
                float* sum);

}  // namespace lumen::kernels
