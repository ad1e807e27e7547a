// Rows of plain types: what typed.h does with whole tensors, for one thread. Plain loops, which the
// compiler makes vectors of, once per SIMD target. Private to this room.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/kernels/typed.h"

namespace lumen::kernels {

// Elements that pass through a buffer on the stack at once, which nothing else can overlap.
inline constexpr int64_t kTypedStep = 256;

// The bytes that a chunk of an operand takes in L1.
inline constexpr int64_t kTypedChunkBytes = 4096;

// A task of fewer elements is not worth a second thread.
inline constexpr int64_t kTypedGrain = 4096;

// Element offset of row `row` (all axes but `skipped`, counted row-major).
inline int64_t offset_of(const Shape& shape, const Strides& strides, int skipped, int64_t row) {
  int64_t offset = 0;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    if (axis == skipped) continue;
    offset += row % shape[axis] * strides[static_cast<size_t>(axis)];
    row /= shape[axis];
  }
  return offset;
}

// y[i] = op(in[0][i], …) for n numbers of one type (f64, i8, u8, i32, i64 or bool), of which at
// most kTypedChunkBytes are read. Truth values, the first operand of kWhere too, are bytes that are
// 0 or not, as results 0 or 1; what is not 0 as an integer is true. `in` has kMaxArguments
// elements, of which those that `op` does not read mean nothing; `y` may be one of them. kDivide:
// f64 only; kRest, kFloorRest and kFloorQuotient: not f64. noexcept.
void compute_typed(TypedOp op, DType dtype, const std::byte* const* in, int64_t n, std::byte* y);

}  // namespace lumen::kernels
