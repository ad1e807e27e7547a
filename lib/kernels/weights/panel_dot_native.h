// Work on quantised panels with native dot products of bytes (native_dot-inl.h).
#pragma once

#include "lib/kernels/weights/panel_dot.h"

namespace lumen::kernels {

// As panel_strips and dot_panels_quantized, bit for bit what the targets compute without it. Only
// where uses_native_dot() (simd.h).
StripRows native_panel_strips(std::byte* memory, int64_t m, int64_t cols);
void dot_panels_native(const Weight& w, int64_t begin, int64_t end, const StripRows& x, float* y,
                       int64_t y_stride);

// As expand_codes, of the panel at `panel`.
void expand_panel_native(DType dtype, const uint8_t* panel, int64_t cols, int added,
                         const CodePanel& to);

}  // namespace lumen::kernels
