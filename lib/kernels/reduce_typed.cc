// Sums, products and extremes along one axis of what is not float32.
#include <algorithm>
#include <cstring>
#include <limits>

#include "lib/base/round_up.h"
#include "lib/kernels/fold_rows.h"
#include "lib/kernels/reduce.h"
#include "lib/kernels/typed.h"

namespace lumen::kernels {
namespace {

// How pieces are cut never depends on the number of threads, nor does what they are joined to.
class Reduction {
 public:
  Reduction(Fold fold, DType from, DType to)
      : fold_(fold),
        join_(fold == Fold::kSquareSum ? Fold::kSum : fold),
        from_(from),
        wide_(carried_type(fold, from)),
        to_(to),
        size_(info(from).block_bytes),
        wide_size_(info(wide_).block_bytes),
        to_size_(info(to).block_bytes),
        in_order_(fold == Fold::kProduct && is_float(from)) {}

  void run(ThreadPool& pool, const std::byte* x, int64_t outer, int64_t axis, int64_t inner,
           std::byte* y) const {
    if (axis == 1) {  // lines of one number are one row of columns
      inner *= outer;
      outer = 1;
    }
    if (inner != 1) return reduce_columns(pool, x, outer, axis, inner, y);
    if (axis > 8 * kTypedGrain) {
      for (int64_t i = 0; i < outer; ++i) {
        reduce_long_line(pool, x + i * axis * size_, axis, y + i * to_size_);
      }
      return;
    }
    const int64_t grain = std::max<int64_t>(1, kTypedGrain / axis);
    pool.parallel_for(outer, grain, [&](int64_t begin, int64_t end, int) {
      if (axis <= kShortLine) {
        over_turned_lines(x, size_, axis, begin, end,
                          [&](const std::byte* columns, int64_t lines, int64_t first) {
                            reduce_turned(columns, lines, axis, y + first * to_size_);
                          });
        return;
      }
      alignas(8) std::byte total[8];
      for (int64_t i = begin; i < end; ++i) {
        fold_line(fold_, from_, x + i * axis * size_, axis, total);
        store(total, 1, y + i * to_size_);
      }
    });
  }

 private:
  static constexpr int64_t kMostPieces = 64, kMostRowPieces = 16, kPiece = 4 * kTypedGrain;
  static constexpr int64_t kTotalBytes = kTypedStep * 8;

  void store(const std::byte* totals, int64_t n, std::byte* y) const {
    cast(wide_, totals, to_, y, n);
  }

  void reduce_long_line(ThreadPool& pool, const std::byte* x, int64_t n, std::byte* y) const {
    const int64_t piece = std::max(kPiece, round_up(divide_up(n, kMostPieces), kFoldParts));
    const int64_t pieces = divide_up(n, piece);
    alignas(8) std::byte partial[kMostPieces * 8], total[8];
    pool.parallel_for(pieces, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        fold_line(fold_, from_, x + i * piece * size_, std::min(piece, n - i * piece),
                  partial + i * wide_size_);
      }
    });
    fold_line(join_, wide_, partial, pieces, total);
    store(total, 1, y);
  }

  void reduce_columns(ThreadPool& pool, const std::byte* x, int64_t outer, int64_t axis,
                      int64_t inner, std::byte* y) const {
    const int64_t strips = divide_up(inner, kTypedStep), width = std::min(inner, kTypedStep);
    constexpr int64_t kFewStrips = 4;
    const bool is_cut = outer * strips <= kFewStrips && axis * width >= 2 * kPiece && !in_order_;
    const int64_t grain = std::max<int64_t>(1, kTypedGrain / (axis * width));
    const auto each = [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t o = i / strips, first = i % strips * kTypedStep;
        const int64_t count = std::min(kTypedStep, inner - first);
        const std::byte* const strip = x + (o * axis * inner + first) * size_;
        std::byte* const result = y + (o * inner + first) * to_size_;
        if (is_cut) {
          reduce_cut_strip(pool, strip, inner, axis, count, result);
        } else {
          reduce_strip(strip, inner, axis, count, result);
        }
      }
    };
    if (is_cut) return each(0, outer * strips, 0);
    pool.parallel_for(outer * strips, grain, each);
  }

  // Of `count` ≤ kTypedStep columns.
  void reduce_strip(const std::byte* x, int64_t stride, int64_t rows, int64_t count,
                    std::byte* y) const {
    alignas(8) std::byte totals[kTotalBytes];
    fold(x, stride, rows, count, totals);
    store(totals, count, y);
  }

  void reduce_turned(const std::byte* columns, int64_t lines, int64_t n, std::byte* y) const {
    alignas(8) std::byte totals[kTotalBytes];
    fold_in_order(columns, lines, n, lines, totals);
    store(totals, lines, y);
  }

  // Of so few columns that pieces of their rows are shared out.
  void reduce_cut_strip(ThreadPool& pool, const std::byte* x, int64_t stride, int64_t rows,
                        int64_t count, std::byte* y) const {
    const int64_t piece = std::max(divide_up(rows, kMostRowPieces), divide_up(kPiece, count));
    const int64_t pieces = divide_up(rows, piece);
    alignas(8) std::byte totals[kMostRowPieces][kTotalBytes];
    pool.parallel_for(pieces, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        fold(x + i * piece * stride * size_, stride, std::min(piece, rows - i * piece), count,
             totals[i]);
      }
    });
    fold_rows(join_, wide_, totals[1], kTotalBytes / wide_size_, pieces - 1, count, totals[0]);
    store(totals[0], count, y);
  }

  // totals = the fold of rows ≥ 1.
  void fold(const std::byte* x, int64_t stride, int64_t rows, int64_t count,
            std::byte* totals) const {
    // Few columns whose rows follow one another: so many rows side by side as fill a strip.
    const int64_t beside = kTypedStep / count;
    if (stride == count && beside >= 4 && rows >= 2 * beside && !in_order_) {
      const int64_t width = beside * count, whole = rows / beside;
      alignas(8) std::byte wide[kTotalBytes];
      fold(x, width, whole, width, wide);
      fold_rows(fold_, from_, x + whole * width * size_, count, rows - whole * beside, count, wide);
      fold_rows(join_, wide_, wide + count * wide_size_, count, beside - 1, count, wide);
      std::memcpy(totals, wide, static_cast<size_t>(count * wide_size_));
      return;
    }
    fold_in_order(x, stride, rows, count, totals);
  }

  void fold_in_order(const std::byte* x, int64_t stride, int64_t rows, int64_t count,
                     std::byte* totals) const {
    if (join_ == Fold::kSum) {  // + 0 also of −0
      std::fill_n(totals, count * wide_size_, std::byte{0});
      return fold_rows(fold_, from_, x, stride, rows, count, totals);
    }
    cast(from_, x, wide_, totals, count);
    fold_rows(fold_, from_, x + stride * size_, stride, rows - 1, count, totals);
  }

  Fold fold_, join_;  // join: of partial results
  DType from_, wide_, to_;
  int64_t size_, wide_size_, to_size_;
  bool in_order_;  // down columns
};

// What the fold of no elements is, in int64 of integers.
template <typename T>
T of_nothing(Fold fold, DType dtype) {
  if (fold == Fold::kProduct) return 1;
  if (fold == Fold::kSum || fold == Fold::kSquareSum) return 0;
  const bool is_least = fold == Fold::kMaximum;
  if constexpr (std::is_same_v<T, double>) {
    return is_least ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::infinity();
  }
  switch (dtype) {
    case DType::kI8:
      return is_least ? INT8_MIN : INT8_MAX;
    case DType::kU8:
      return is_least ? 0 : UINT8_MAX;
    case DType::kI32:
      return is_least ? INT32_MIN : INT32_MAX;
    case DType::kI64:
      return is_least ? INT64_MIN : INT64_MAX;
    default:
      return is_least ? 0 : 1;
  }
}

template <typename T>
void fill(T value, DType to, int64_t n, std::byte* y) {
  for (int64_t i = 0; i < n; ++i) store_typed(to, &value, 1, y + i * info(to).block_bytes);
}

void reduce(ThreadPool& pool, Fold fold, DType from, const std::byte* x, int64_t outer,
            int64_t axis, int64_t inner, DType to, std::byte* y) {
  if (outer * inner == 0) return;
  if (axis > 0) return Reduction(fold, from, to).run(pool, x, outer, axis, inner, y);
  if (is_float(from)) return fill(of_nothing<double>(fold, from), to, outer * inner, y);
  fill(of_nothing<int64_t>(fold, from), to, outer * inner, y);
}

}  // namespace

void sum_typed(ThreadPool& pool, DType from, const std::byte* x, int64_t outer, int64_t axis,
               int64_t inner, DType to, std::byte* y) {
  reduce(pool, Fold::kSum, from, x, outer, axis, inner, to, y);
}

void square_sum_reduce_f64(ThreadPool& pool, const double* x, int64_t outer, int64_t axis,
                           int64_t inner, double* y) {
  reduce(pool, Fold::kSquareSum, DType::kF64, reinterpret_cast<const std::byte*>(x), outer, axis,
         inner, DType::kF64, reinterpret_cast<std::byte*>(y));
}

void prod_reduce(ThreadPool& pool, DType from, const std::byte* x, int64_t outer, int64_t axis,
                 int64_t inner, DType to, std::byte* y) {
  reduce(pool, Fold::kProduct, from, x, outer, axis, inner, to, y);
}

void max_typed(ThreadPool& pool, DType dtype, const std::byte* x, int64_t outer, int64_t axis,
               int64_t inner, std::byte* y) {
  reduce(pool, Fold::kMaximum, dtype, x, outer, axis, inner, dtype, y);
}

void min_typed(ThreadPool& pool, DType dtype, const std::byte* x, int64_t outer, int64_t axis,
               int64_t inner, std::byte* y) {
  reduce(pool, Fold::kMinimum, dtype, x, outer, axis, inner, dtype, y);
}

}  // namespace lumen::kernels
