// Recurrences of float32 lines side by side, carried in double: the vectors of scan.cc. Private to
// this room.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/tensor/dtype.h"

namespace lumen::kernels {

// What a step makes of the value before: y + b, a · y + 0 or a · y + b.
enum class Recurrence { kSum, kProduct, kLinear };

// Lines that scan_lines and what is like it take at once.
inline constexpr int64_t kScanLines = 8;

// Whether this CPU has the vectors of scan_lines and product_gradient_lines.
bool has_scan_lines();

// linear_scan (typed.h) of kScanLines lines of n ≥ 1 numbers; a is null of kSum. kProduct: the
// running products of a, b is null. noexcept.
void scan_lines(Recurrence kind, bool reverse, const float* const* a, const float* const* b,
                int64_t n, float* const* y);

// The product of n ≥ 1 numbers of a float type that float32 holds, + 0 if n > 1: part p of
// kProductParts is that of the numbers p, p + kProductParts, …, and parts are joined by halves.
// noexcept.
inline constexpr int64_t kProductParts = 32;
double multiply_line(DType dtype, const std::byte* x, int64_t n);

// y[i] = (x[0] ⋯ x[i − 1]) · (dy · x[n − 1] ⋯ x[i + 1]) of kScanLines lines: each factor is carried
// in double, rounded to float32 and joined in float32. noexcept.
void product_gradient_lines(const float* const* x, const float* dy, int64_t n, float* const* y);

// `rows` steps of `count` recurrences side by side: carry = a · carry + b, or of the first row if
// `first` b alone (a of kProduct); y = carry, rounded. `dtype` is that of all rows, which are so
// many bytes apart: float32 or float64, carried in double, or int64. y overlaps neither a nor b.
// noexcept.
void scan_rows(Recurrence kind, DType dtype, bool first, const std::byte* a, int64_t a_step,
               const std::byte* b, int64_t b_step, int64_t rows, int64_t count, void* carry,
               std::byte* y, int64_t y_step);

// carry = carry · x + 0 with one row of x, of such a type, after the other, `stride` numbers apart.
// noexcept.
void multiply_rows(DType dtype, const std::byte* x, int64_t stride, int64_t rows, int64_t count,
                   double* carry);

// The steps of product_gradient_lines with the lines side by side: y = carry, carry = carry · x +
// 0; and back: y = y · carry + 0, or carry if `first_row`. noexcept.
void product_before_row(const float* x, int64_t count, double* carry, float* y);
void product_behind_row(const float* x, bool first_row, int64_t count, double* carry, float* y);

}  // namespace lumen::kernels
