// What attention over a cache (attention_rows.h) and for training (attention_head.h) share: which
// positions a query sees, the unit of scores and their linear biases, and the softmax over no
// position. Private to this room.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace lumen::kernels {

// Positions [begin, end) of keys and values.
struct KeyRange {
  int64_t begin, end;
};

// What a causal query at position `own` sees of `positions`: no more than the `window` up to its
// own and than its own chunk of `chunk` positions, where these are not 0. A later query begins no
// earlier and ends no earlier.
inline KeyRange causal_range(int64_t own, int64_t window, int64_t chunk, int64_t positions) {
  int64_t begin = window > 0 ? std::max<int64_t>(0, own + 1 - window) : 0;
  if (chunk > 0) begin = std::max(begin, own / chunk * chunk);
  return {begin, std::min(positions, own + 1)};
}

// Scores are in units of ln 2 before their exponentials.
inline constexpr float kLog2E = 1.44269504089f;

// The biases (linear_bias.h) of up to 64 queries, a column each.
class ColumnBias {
 public:
  static constexpr int64_t kMostColumns = 64;

  void set(int64_t column, float slope, int64_t position) {
    slopes_[column] = slope;
    positions_[column] = position;
  }

  // scores[p][c] = factor · scores[p][c] + the bias of column c at position begin + p, for `count`
  // positions and `width` columns, which all are set.
  void apply(float factor, int64_t begin, int64_t count, int64_t width, float* scores) const {
    float distances[kMostColumns];
    for (int64_t c = 0; c < width; ++c) distances[c] = static_cast<float>(begin - positions_[c]);
    for (int64_t p = 0; p < count; ++p) {
      const auto further = static_cast<float>(p);
      float* const row = scores + p * width;
      for (int64_t c = 0; c < width; ++c) {
        row[c] = factor * row[c] + slopes_[c] * (distances[c] + further);
      }
    }
  }

 private:
  float slopes_[kMostColumns];
  int64_t positions_[kMostColumns];
};

// An online softmax of `count` queries that have seen no position: maximum and sum [count], output
// of `dim` numbers for each.
inline void begin_softmax(float* maximum, float* sum, float* output, int64_t count, int64_t dim) {
  std::fill_n(maximum, count, -std::numeric_limits<float>::infinity());
  std::fill_n(sum, count, 0.0f);
  std::fill_n(output, count * dim, 0.0f);
}

}  // namespace lumen::kernels
