// code_multiplier with native dot products of bytes (native_dot-inl.h).
#pragma once

#include "lib/kernels/weights/int8_tile.h"

namespace lumen::kernels {

// What int8_tile() is where uses_native_dot() (simd.h).
Int8Tile native_int8_tile();

// As code_multiplier; only where uses_native_dot().
CodeMultiplier native_code_multiplier(const CodeForm& form);

}  // namespace lumen::kernels
