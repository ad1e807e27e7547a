// Products of quantised weights in panels (panels.h) on int8 tiles (AMX-INT8).
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/kernels/matmul.h"
#include "lib/kernels/weights/quantize_rows.h"

namespace lumen::kernels {

// Strips of 8 or of 16 rows, the last one filled up with zeros.
StripRows tile_strips(std::byte* memory, int64_t m, int64_t cols);

// As dot_panels_quantized (panel_dot.h) of the x.m rows, with the same bits. Only where
// uses_int8_tiles() (amx.h); no tiles may be in use by the calling thread.
void dot_panels_tiles(const Weight& w, int64_t begin, int64_t end, const StripRows& x, float* y,
                      int64_t y_stride);

}  // namespace lumen::kernels
