// Work on quantised panels with native dot products of bytes (native_dot-inl.h).
#pragma once

#include "lib/kernels/panel_dot.h"

namespace lumen::kernels {

// As dot_panels_quantized, bit for bit what the targets compute without it. Only where
// uses_native_dot() (simd.h).
void dot_panels_native(const Weight& w, int64_t begin, int64_t end, const QuantizedRows& x,
                       int64_t m, float* y, int64_t y_stride);

// As expand_codes, of the panel at `panel`.
void expand_panel_native(DType dtype, const uint8_t* panel, int64_t cols, int added,
                         const CodePanel& to);

}  // namespace lumen::kernels
