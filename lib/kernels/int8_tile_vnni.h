// multiply_codes with AVX512-VNNI or AVX-VNNI, for which Highway has no operation.
#pragma once

#include "lib/kernels/int8_tile.h"

namespace lumen::kernels {

// As multiply_codes; only where uses_vnni() (simd.h). 128 is added to the codes of every type
// without a min.
void multiply_codes_vnni(CodeForm form, const CodePanel (&w)[2], const CodeStrip& x, int64_t blocks,
                         bool add, float* y, int64_t y_stride, int64_t cols);

}  // namespace lumen::kernels
