// dot_rows_quantized with AVX512-VNNI, for which Highway has no operation.
#pragma once

#include "lib/kernels/weights/dot_rows.h"

namespace lumen::kernels {

// As dot_rows_quantized; only where vnni_bits() (simd.h) is 512. The code of a weight enters as an
// unsigned byte u ≥ 0 with value scale · (u − offset): vpdpbusd adds four products u · x to an
// int32, and Σ offset · x comes from the activations' sums like a min of the format.
void dot_rows_vnni(const Weight& w, int64_t begin, int64_t end, const QuantizedRows& x, int64_t m,
                   float* y, int64_t y_stride);

}  // namespace lumen::kernels
