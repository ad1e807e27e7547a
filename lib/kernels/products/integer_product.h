// The inner part of products of integer matrices: a strip of rows by a panel of columns, for one
// thread. Sums wrap, so that what is narrower may be multiplied in 32 bits.
#pragma once

#include <cstdint>

namespace lumen::kernels {

inline constexpr int64_t kIntegerRows = 4, kIntegerCols = 32;

// sums[i][j] += Σ_k a[i · a_row_stride + k · a_col_stride] · b[k][j] for i in [0, rows), rows ≤
// kIntegerRows, j in [0, kIntegerCols), k in [0, depth); rows of b and sums have kIntegerCols
// numbers. noexcept.
void multiply_integers(const uint32_t* a, int64_t a_row_stride, int64_t a_col_stride, int64_t rows,
                       const uint32_t* b, int64_t depth, uint32_t* sums);
void multiply_integers(const uint64_t* a, int64_t a_row_stride, int64_t a_col_stride, int64_t rows,
                       const uint64_t* b, int64_t depth, uint64_t* sums);

}  // namespace lumen::kernels
