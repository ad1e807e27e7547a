// Products of integer matrices: panels of B and strips of A are widened to 32 or 64 bits where they
// are not that wide already.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "lib/base/round_up.h"
#include "lib/kernels/products/integer_product.h"
#include "lib/kernels/typed.h"

namespace lumen::kernels {
namespace {

constexpr int64_t kDepth = 256, kRows = 64;

const std::byte* at(const TypedOperand& x, int64_t row, int64_t column) {
  return x.data + (row * x.strides[0] + column * x.strides[1]) * info(x.dtype).block_bytes;
}

// y[i · y_stride] = the i-th of n ≤ kDepth numbers that lie so far apart.
template <typename T>
void widen(DType dtype, const std::byte* x, int64_t stride, int64_t n, T* y, int64_t y_stride) {
  int64_t wide[kDepth];
  load_typed(dtype, x, stride, n, wide);
  for (int64_t i = 0; i < n; ++i) y[i * y_stride] = static_cast<T>(wide[i]);
}

template <typename T>
struct IntegerProduct {
  const TypedOperand &a, &b;
  int64_t m, n, k;
  DType to;
  std::byte* c;

  static bool has_type(const TypedOperand& x) {
    return x.dtype == (sizeof(T) == 4 ? DType::kI32 : DType::kI64);
  }
  static bool is_read_in_place(const TypedOperand& x) {
    return has_type(x) && reinterpret_cast<uintptr_t>(x.data) % alignof(T) == 0;
  }

  void pack_b(int64_t first, int64_t depth, int64_t column, int64_t cols, T* panel) const {
    if (cols < kIntegerCols) std::fill_n(panel, depth * kIntegerCols, T{0});
    if (b.strides[0] == 1 && b.strides[1] != 1) {
      for (int64_t j = 0; j < cols; ++j) {
        widen(b.dtype, at(b, first, column + j), 1, depth, panel + j, kIntegerCols);
      }
      return;
    }
    for (int64_t l = 0; l < depth; ++l) {
      const std::byte* const from = at(b, first + l, column);
      T* const row = panel + l * kIntegerCols;
      if (has_type(b) && b.strides[1] == 1) {
        std::memcpy(row, from, static_cast<size_t>(cols) * sizeof(T));
      } else {
        widen(b.dtype, from, b.strides[1], cols, row, 1);
      }
    }
  }

  // A strip of A by a panel.
  void multiply(int64_t row, int64_t rows, int64_t first, int64_t depth, const T* panel,
                T* sums) const {
    if (is_read_in_place(a)) {
      return multiply_integers(reinterpret_cast<const T*>(at(a, row, first)), a.strides[0],
                               a.strides[1], rows, panel, depth, sums);
    }
    T strip[kIntegerRows * kDepth];
    for (int64_t i = 0; i < rows; ++i) {
      widen(a.dtype, at(a, row + i, first), a.strides[1], depth, strip + i * kDepth, 1);
    }
    multiply_integers(strip, kDepth, 1, rows, panel, depth, sums);
  }

  void run_piece(int64_t row, int64_t rows, int64_t column) const {
    alignas(64) T panel[kDepth * kIntegerCols], sums[kRows * kIntegerCols] = {};
    const int64_t cols = std::min(kIntegerCols, n - column);
    for (int64_t first = 0; first < k; first += kDepth) {
      const int64_t depth = std::min(kDepth, k - first);
      pack_b(first, depth, column, cols, panel);
      for (int64_t i = 0; i < rows; i += kIntegerRows) {
        multiply(row + i, std::min(kIntegerRows, rows - i), first, depth, panel,
                 sums + i * kIntegerCols);
      }
    }
    for (int64_t i = 0; i < rows; ++i) {
      int64_t wide[kIntegerCols];
      for (int64_t j = 0; j < cols; ++j) {
        wide[j] = static_cast<int64_t>(sums[i * kIntegerCols + j]);
      }
      store_typed(to, wide, cols, c + ((row + i) * n + column) * info(to).block_bytes);
    }
  }

  void run(ThreadPool& pool) const {
    constexpr int64_t kGrain = 32768;  // multiplications that are worth a thread
    const int64_t blocks = divide_up(n, kIntegerCols), chunks = divide_up(m, kRows);
    const int64_t work = std::min(m, kRows) * std::min(n, kIntegerCols) * k;
    const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, work));
    pool.parallel_for(blocks * chunks, grain, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i % chunks * kRows;
        run_piece(row, std::min(kRows, m - row), i / chunks * kIntegerCols);
      }
    });
  }
};

}  // namespace

void matmul_typed(ThreadPool& pool, const TypedOperand& a, const TypedOperand& b, int64_t m,
                  int64_t n, int64_t k, DType to, std::byte* c) {
  if (to == DType::kI64) {
    IntegerProduct<uint64_t>{a, b, m, n, k, to, c}.run(pool);
  } else {
    IntegerProduct<uint32_t>{a, b, m, n, k, to, c}.run(pool);
  }
}

}  // namespace lumen::kernels
