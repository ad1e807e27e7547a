// Sums of products with shifted planes, the inner loops of direct_conv.h. Private to this room.
#pragma once

#include <cstdint>

namespace lumen::kernels {

// Most rows of one call of correlate.
inline constexpr int64_t kCorrelateRows = 6;
// Floats that are read behind the last element asked for; rows are written in multiples of it.
inline constexpr int64_t kPlaneSlack = 16;

// y[r · y_stride + p] = (add ? y[…] : 0) + Σ_k w[k · rows + r] · x[offsets[k] + p] for k in
// [0, taps), r in [0, rows) and p in [0, count). Every sum is one chain of multiply-adds over k.
// noexcept.
void correlate(const float* x, const int64_t* offsets, int64_t taps, const float* w, int64_t rows,
               int64_t count, bool add, float* y, int64_t y_stride);

// Some planes one after another, and as many again.
struct PlanePairs {
  const float* d;  // `rows` rows, d_stride apart
  int64_t d_stride, d_next;
  const float* x;
  int64_t x_next;
  int64_t pairs;
  int64_t count;  // elements of a row; a multiple of kPlaneSlack
};

// sums[r · sums_stride + k] = (add ? sums[…] : 0) +
// Σ_i Σ_p d[i · d_next + r · d_stride + p] · x[i · x_next + offsets[k] + p] for i in [0, pairs), p
// in [0, count), r in [0, rows) and k in [0, taps). noexcept.
void correlate_grad(const PlanePairs& planes, int64_t rows, const int64_t* offsets, int64_t taps,
                    bool add, float* sums, int64_t sums_stride);

// to[i · to_stride + j] = from[i · from_stride + j] + bias for i in [0, rows) and j in [0, cols).
void copy_rows_plus(const float* from, int64_t from_stride, int64_t rows, int64_t cols, float bias,
                    float* to, int64_t to_stride);

}  // namespace lumen::kernels
