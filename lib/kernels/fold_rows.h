// Sums, products and extremes of rows of plain types, which are carried side by side, one for each
// column. Plain loops, which the compiler makes vectors of, once per SIMD target. Private to this
// room.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lib/kernels/transpose.h"
#include "lib/kernels/typed_rows.h"

namespace lumen::kernels {

// kSquareSum: the sum of squares, of float64 only; partial results are joined by kSum.
enum class Fold { kSum, kSquareSum, kProduct, kMaximum, kMinimum };

// What a fold of elements of a type (float64, integers, bool) is carried in: sums and products in
// double or int64, extremes in the type itself. A NaN that an extreme has met stays.
DType carried_type(Fold fold, DType dtype);

// Element i of `totals` takes in x[r · stride + i] of `rows` rows, one after the other, i < count.
// Products are + 0 each time. noexcept.
void fold_rows(Fold fold, DType dtype, const std::byte* x, int64_t stride, int64_t rows,
               int64_t count, std::byte* totals);

// *total = the fold of x [n], n ≥ 1: partial results of every kFoldParts-th element, joined by
// halves. noexcept.
inline constexpr int64_t kFoldParts = 64;
void fold_line(Fold fold, DType dtype, const std::byte* x, int64_t n, std::byte* total);

// Where the largest of each column stands: best[i] (of type `dtype`) and at[i] take in the rows
// first, first + 1, …, x[r · stride + i], where they are larger; NaN is largest. With `least`
// smallest instead, NaN counting as that. Any plain type. noexcept.
void argmax_rows(DType dtype, bool least, const std::byte* x, int64_t stride, int64_t first,
                 int64_t rows, int64_t count, std::byte* best, int64_t* at);
// best[i] and at[i] take in others[i] and others_at[i], if that is larger, or equal and before.
void argmax_join(DType dtype, bool least, const std::byte* others, const int64_t* others_at,
                 int64_t count, std::byte* best, int64_t* at);
// The index of the first largest (smallest) of x [n], n ≥ 1.
int64_t argmax_line(DType dtype, bool least, const std::byte* x, int64_t n);

// Lines of at most so many elements are turned in L1 and walked across.
inline constexpr int64_t kShortLine = 64;

// body(columns, lines, first) with the elements of lines first, first + 1, …, first + lines − 1 of
// x [.., n], n ≤ kShortLine, turned: columns[i · lines + l] is element i of line first + l. Lines
// [begin, end), at most kTurnedLines at once.
inline constexpr int64_t kTurnedLines = 256, kTurnedBytes = 16384;
template <class Body>
void over_turned_lines(const std::byte* x, int64_t size, int64_t n, int64_t begin, int64_t end,
                       const Body& body) {
  alignas(64) std::byte columns[kTurnedBytes];
  const int64_t most = std::clamp<int64_t>(kTurnedBytes / (n * size) / 32 * 32, 32, kTurnedLines);
  for (int64_t first = begin, lines; first < end; first += lines) {
    lines = std::min(most, end - first);
    transpose(static_cast<int>(size), x + first * n * size, n, n, lines, lines, columns);
    body(static_cast<const std::byte*>(columns), lines, first);
  }
}

}  // namespace lumen::kernels
