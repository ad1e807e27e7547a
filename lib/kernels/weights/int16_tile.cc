#include "lib/kernels/weights/int16_tile.h"

#include <algorithm>

#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/weights/int16_tile.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/float16-inl.h"
#include "lib/kernels/weights/native_dot-inl.h"

#undef LUMEN_WORDS_TEXT
#define LUMEN_WORDS_TEXT "lib/kernels/weights/int16_tile-inl.h"
#include "lib/kernels/weights/word_targets-inl.h"

#if HWY_ONCE

namespace lumen::kernels {

bool has_int16_tile() {
  return uses_avx2();
}

void expand_int16(const Weight& w, int64_t row, int64_t k, int64_t cols, const Int16Panel& to) {
  LUMEN_CHECK(row % kPanelRows == 0);
  if (row >= w.rows) {
    std::fill_n(to.codes, cols * kPanelRows, int16_t{0});
    std::fill_n(to.scale, cols / 32 * kPanelRows, 0.0f);
    return;
  }
  LUMEN_WORDS_CALL(expand_of_width, w, row, k, cols, to);
}

void multiply_int16(const Int16Panel (&w)[2], const Int16Strip& x, int64_t blocks, bool add,
                    float* y, int64_t y_stride, int64_t cols) {
  LUMEN_WORDS_CALL(multiply_of_width, w, x, blocks, add, y, y_stride, cols);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
