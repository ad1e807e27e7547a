// Matrices turned and rows reversed, by elements of any size.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lumen::kernels {

// y[r][i] = x[i · column_stride + r] for a rows × columns piece of y whose rows are y_stride
// elements apart; elements have element_bytes 1, 2, 4 or 8. noexcept.
void transpose(int element_bytes, const std::byte* x, int64_t column_stride, int64_t rows,
               int64_t columns, int64_t y_stride, std::byte* y);

// y[r · n + i] = x[r · stride + n − 1 − i] for i < n of `rows` rows; nothing overlaps. noexcept.
void reverse_rows(int element_bytes, const std::byte* x, int64_t stride, int64_t rows, int64_t n,
                  std::byte* y);

}  // namespace lumen::kernels
