#include "lib/kernels/weights/linear_weights.h"

#include "lib/kernels/convert.h"
#include "lib/kernels/panels.h"

namespace lumen::kernels {

// What follows in each row comes next, too short for the processor to foresee: it is fetched ahead.
void expand_weights(std::span<const Weight> weights, int64_t row, int64_t rows, int64_t k,
                    int64_t depth, float* to) {
  for_each_part(weights, row, row + rows, [&](const Weight& w, int64_t from, int64_t end, int64_t) {
    const int64_t stride = row_bytes(w.dtype, w.cols);
    const int64_t bytes = row_bytes(w.dtype, depth);
    const auto* x = static_cast<const char*>(w.data) + from * stride + row_bytes(w.dtype, k);
    for (int64_t j = from; j < end; ++j, x += stride, to += depth) {
      for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(x + bytes + i);
      to_float(w.dtype, x, to, depth);
    }
  });
}

void pack_panels(std::span<const Weight> weights, const StripRequest& want) {
  for_each_part(weights, want.row, want.row + want.rows,
                [&](const Weight& w, int64_t from, int64_t end, int64_t column) {
                  StripRequest part = want;
                  part.row = from;
                  part.rows = end - from;
                  part.panel += column - want.row;
                  pack_panel_strip(w, part);
                });
  for (int64_t k = 0; k < want.depth; ++k) {
    std::fill(want.panel + k * want.padded_rows + want.rows,
              want.panel + (k + 1) * want.padded_rows, 0.0f);
  }
}

}  // namespace lumen::kernels
