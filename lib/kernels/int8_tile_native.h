// multiply_codes with native dot products of bytes (native_dot-inl.h).
#pragma once

#include "lib/kernels/int8_tile.h"

namespace lumen::kernels {

// What int8_tile() is where uses_native_dot() (simd.h).
Int8Tile native_int8_tile();

// As multiply_codes; only where uses_native_dot().
void multiply_codes_native(const CodeForm& form, const CodePanel (&w)[2], const CodeStrip& x,
                           int64_t blocks, bool add, float* y, int64_t y_stride, int64_t cols);

}  // namespace lumen::kernels
