#include "lib/kernels/weights/panel_dot_native.h"

#include <bit>

#include "lib/kernels/panels.h"
#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/weights/panel_dot_native.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/weights/native_dot-inl.h"
#include "lib/kernels/weights/panel_isa-inl.h"

#if LUMEN_NATIVE

HWY_PUSH_ATTRIBUTES(LUMEN_NATIVE_ATTRIBUTES)
namespace lumen::kernels {
namespace HWY_NAMESPACE {
namespace native {

struct Isa : PanelIsa<16> {
  // Two sums per row of x: of 32 registers or of 16 (256 bits).
  static constexpr int kMostRows = kLanes == 8 ? 4 : 8;
  static constexpr int kSignedOffset = kAddedToSigned;
  static constexpr int kMostCode = kAddedToSigned != 0 ? 255 : 127;

#if HWY_TARGET == HWY_AVX3
  // In one instruction the byte goes to the upper seven bits of the significand of 128: that is 128
  // more, and the multiply-add takes it off again. d has eleven bits, so that nothing is rounded.
  struct Factor {
    Floats d, added;
  };
  template <int kOffset>
  static LUMEN_PIECE Factor factor(Floats d) {
    return {d, mul(d, set(-128.0f - kOffset))};
  }
  template <int kByte, int kOffset>
  static LUMEN_PIECE Floats byte(Codes v, const Factor& f) {
    alignas(16) static constexpr int32_t kFrom[4] = {kByte << 16, (kByte + 4) << 16,
                                                     (kByte + 8) << 16, (kByte + 12) << 16};
    const auto from = hn::LoadDup128(IntTag(), kFrom);
    const auto one_twenty_eight = hn::BitCast(IntTag(), hn::Set(FloatTag(), 128.0f));
    const IntVector bits{
        _mm512_mask_shuffle_epi8(one_twenty_eight.raw, 0x4444444444444444, v.raw, from.raw)};
    return fma(hn::BitCast(FloatTag(), bits), f.d, f.added);
  }
#endif

  template <int kMost>
  struct Sum {
    HWY_INLINE Sum() {}  // the implicit one is not of this target
    LUMEN_PIECE void start(Ints begin) { ints = begin; }
    template <int kQuad>
    LUMEN_PIECE void add(Codes codes, const int8_t* x) {
      if constexpr (kMost == 0 && kAddedToSigned != 0) {
        codes = hn::Xor(codes, hn::Set(ByteTag(), uint8_t{kAddedToSigned}));
      }
      constexpr int kWord = kQuad % kWordsAtOnce;
      if constexpr (kWord == 0) words = load_words(x);
      ints = add_byte_products(ints, words_of(codes), word<kWord>(words));
    }
    template <int kBits>
    LUMEN_PIECE Ints total() const {
      if constexpr (kBits == 0) return ints;
      return hn::ShiftRight<kBits>(ints);
    }
    Ints ints;
    XWords words;
  };
};

#include "lib/kernels/weights/panel_formats-inl.h"
#include "lib/kernels/weights/panel_sums-inl.h"

}  // namespace native
}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_POP_ATTRIBUTES

#endif  // LUMEN_NATIVE

#if HWY_ONCE
namespace lumen::kernels {

StripRows native_panel_strips(std::byte* memory, int64_t m, int64_t cols) {
  return LUMEN_NATIVE_CALL(strips_of_width, memory, m, cols);
}

void dot_panels_native(const Weight& w, int64_t begin, int64_t end, const StripRows& x, float* y,
                       int64_t y_stride) {
  LUMEN_NATIVE_CALL(dot_panels_of_any_format, w, begin, end, x, y, y_stride);
}

void expand_panel_native(DType dtype, const uint8_t* panel, int64_t cols, int added,
                         const CodePanel& to) {
  LUMEN_NATIVE_CALL(expand_panel_of_any_format, dtype, panel, cols, added, to);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
