// Products of quantised weights in panels (panels.h) on int8 tiles (AMX-INT8).
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/kernels/int8_tile.h"
#include "lib/kernels/matmul.h"

namespace lumen::kernels {

// Rows of x as tiles take them: strips (int8_tile.h) of 8 or of 16 rows, one behind the other, the
// last one filled up with zeros.
struct TileRows {
  std::byte* memory;  // tile_rows_bytes(m, cols), 64-byte aligned
  int64_t m, cols;    // cols is a multiple of 32

  int64_t strip_rows() const { return m <= 8 ? 8 : 16; }
  // The strip whose first row is `row`, from block `block` of 32 columns on.
  CodeStrip strip(int64_t row, int64_t block) const;
};

// Never decreases with m.
size_t tile_rows_bytes(int64_t m, int64_t cols);

// Rounds blocks [begin, end) of 32 columns of all rows of x [to.m, to.cols], rows x_stride floats
// apart. noexcept.
void quantize_tile_rows(const float* x, int64_t x_stride, int64_t begin, int64_t end,
                        const TileRows& to);

// As dot_panels_quantized (panel_dot.h) of the x.m rows, with the same bits. Only where
// uses_int8_tiles() (amx.h); no tiles may be in use by the calling thread.
void dot_panels_tiles(const Weight& w, int64_t begin, int64_t end, const TileRows& x, float* y,
                      int64_t y_stride);

}  // namespace lumen::kernels
