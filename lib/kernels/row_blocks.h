// How rows are shared out, copied, and summed in blocks whose number does not depend on the
// threads. Private to this room.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lib/base/round_up.h"

namespace lumen::kernels {

// A thread is given work of at least about this many elements.
inline constexpr int64_t kRowGrain = 4096;

// The grain of a loop over what has so many elements each.
inline int64_t row_grain(int64_t elements) {
  return std::max<int64_t>(1, kRowGrain / std::max<int64_t>(1, elements));
}

// Rows are summed in at most 32 blocks of at least 8.
inline int64_t rows_per_block(int64_t rows) {
  return std::max<int64_t>(8, divide_up(rows, 32));
}
inline int64_t row_blocks(int64_t rows) {
  return divide_up(rows, rows_per_block(rows));
}

// The first `columns` of each row.
inline void copy_rows(const float* from, int64_t from_stride, int64_t rows, int64_t columns,
                      float* to, int64_t to_stride) {
  for (int64_t i = 0; i < rows; ++i) {
    std::copy_n(from + i * from_stride, columns, to + i * to_stride);
  }
}

}  // namespace lumen::kernels
