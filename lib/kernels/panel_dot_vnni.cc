#include "lib/kernels/panel_dot_vnni.h"

#include "lib/kernels/panels.h"
#include "lib/kernels/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/panel_dot_vnni.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/panel_isa-inl.h"
#include "lib/kernels/vnni-inl.h"

#if LUMEN_VNNI

HWY_PUSH_ATTRIBUTES(LUMEN_VNNI_ATTRIBUTES)
namespace lumen::kernels {
namespace HWY_NAMESPACE {
namespace vnni {

struct Isa : PanelIsa<16> {
  // Two sums per row of x: of 32 registers or of 16.
  static constexpr int kMostRows = kLanes == 16 ? 8 : 4;
  // Unsigned bytes are multiplied: int8 codes become code + 128.
  static constexpr int kSignedOffset = 128;

  template <int kMost>
  struct Sum {
    HWY_INLINE void start(int32_t begin) { ints = hn::Set(IntTag(), begin); }
    template <int kQuad>
    HWY_INLINE void add(Codes codes, const int8_t* x) {
      if constexpr (kMost == 0) codes = hn::Xor(codes, hn::Set(ByteTag(), uint8_t{128}));
      ints = add_byte_products(ints, words_of(codes), repeat_word(x));
    }
    HWY_INLINE Ints total() const { return ints; }
    Ints ints;
  };
};

#include "lib/kernels/panel_sums-inl.h"

}  // namespace vnni
}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_POP_ATTRIBUTES

#endif  // LUMEN_VNNI

#if HWY_ONCE
namespace lumen::kernels {

void dot_panels_vnni(const Weight& w, int64_t begin, int64_t end, const QuantizedRows& x, int64_t m,
                     float* y, int64_t y_stride) {
  LUMEN_VNNI_CALL(dot_panels_of_any_format, w, begin, end, x, m, y, y_stride);
}

void expand_panel_vnni(DType dtype, const uint8_t* panel, int64_t cols, int added,
                       const CodePanel& to) {
  LUMEN_VNNI_CALL(expand_panel_of_any_format, dtype, panel, cols, added, to);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
