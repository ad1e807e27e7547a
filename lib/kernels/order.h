// The order of the values of one line. Private to this room.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lib/kernels/typed.h"

namespace lumen::kernels {

// Strict order of values: NaN above all.
inline bool less(double a, double b) {
  return a < b || (b != b && a == a);
}
inline bool less(int64_t a, int64_t b) {
  return a < b;
}

// visit(value, i) for the elements of a line from `begin` on, in order; T is double of floats,
// int64_t of others.
template <typename T, typename Visit>
void visit_line(DType dtype, const std::byte* line, int64_t stride, int64_t begin, int64_t n,
                Visit visit) {
  constexpr int64_t kChunk = 256;
  T values[kChunk];
  for (int64_t at = begin; at < n; at += kChunk) {
    const int64_t count = std::min(kChunk, n - at);
    load_typed(dtype, line + at * stride * info(dtype).block_bytes, stride, count, values);
    for (int64_t i = 0; i < count; ++i) visit(values[i], at + i);
  }
}

// indices[i · step] for i < count ≤ n: which of the n elements of a line come first in ascending
// (or descending) order, equal ones as they stand. `workspace`: order_workspace_bytes(n), aligned
// to 8.
void order_line(DType dtype, const std::byte* line, int64_t stride, int64_t n, int64_t count,
                bool descending, std::byte* workspace, int64_t* indices, int64_t step);
size_t order_workspace_bytes(int64_t n);

}  // namespace lumen::kernels
