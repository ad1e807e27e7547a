#include <bit>
#include <cstring>

#include "lib/kernels/panels.h"
#include "lib/kernels/simd.h"
#include "lib/kernels/simd/x86_intrinsics.h"
#include "lib/kernels/weights/panel_dot.h"
#include "lib/kernels/weights/panel_dot_native.h"

// AVX-512 without VNNI takes the code of AVX2: it would take its vectors, too, as there is no
// psignb of 512 bits.
#define LUMEN_FURTHER_DISABLED_TARGETS HWY_AVX3
#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/weights/panel_dot_quantized.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/weights/panel_isa-inl.h"

// The intrinsics around pmaddubsw (unsigned by signed bytes, pairs added), for which this Highway
// has no operation, where the target has them.
#undef LUMEN_BYTE_PAIRS
#if HWY_TARGET == HWY_AVX2
#define LUMEN_BYTE_PAIRS(operation) _mm256_##operation
#elif HWY_TARGET == HWY_SSE4
#define LUMEN_BYTE_PAIRS(operation) _mm_##operation
#endif

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

struct Isa : PanelIsa<8> {
  // One on targets of old machines, for the sake of the time to compile this file.
  static constexpr int kMostRows = HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SSE4 ? 1 : 4;
  static constexpr int kSignedOffset = 0;
  // Larger ones would have their sums widened after every product.
  static constexpr int kMostCode = 63;
  using WordTag = hn::Repartition<int16_t, FloatTag>;
  using Words = hn::VFromD<WordTag>;

  // Four bytes of x in every word.
  static LUMEN_PIECE Words repeat(const int8_t* x) {
    int32_t four;
    std::memcpy(&four, x, sizeof four);
    return hn::BitCast(WordTag(), hn::Set(IntTag(), four));
  }

  // The two int16 of each word, added.
  static LUMEN_PIECE Ints add_pairs(Words v) {
#ifdef LUMEN_BYTE_PAIRS
    return Ints{LUMEN_BYTE_PAIRS(madd_epi16)(v.raw, hn::Set(WordTag(), int16_t{1}).raw)};
#else
    const auto both = hn::BitCast(IntTag(), v);
    return hn::Add(hn::ShiftRight<16>(hn::ShiftLeft<16>(both)), hn::ShiftRight<16>(both));
#endif
  }

  // code[0] · x[0] + code[1] · x[1] of each pair of bytes; codes are unsigned and small enough.
  static LUMEN_PIECE Words multiply_pairs(Codes codes, Words x) {
#ifdef LUMEN_BYTE_PAIRS
    return Words{LUMEN_BYTE_PAIRS(maddubs_epi16)(codes.raw, x.raw)};
#else
    const auto w = hn::BitCast(WordTag(), codes);
    const auto low = hn::And(w, hn::Set(WordTag(), int16_t{255}));
    return hn::Add(hn::Mul(low, low_byte(x)), hn::Mul(high_byte(w), high_byte(x)));
#endif
  }

  // The same of int8 codes, and the pairs of each word added.
  static LUMEN_PIECE Ints multiply_signed(Codes codes, Words x) {
#ifdef LUMEN_BYTE_PAIRS
    // |code| · (x with the sign of code): |−128| is 128 as an unsigned byte, and |x| ≤ 127.
    const auto signed_x = LUMEN_BYTE_PAIRS(sign_epi8)(x.raw, codes.raw);
    return add_pairs(
        Words{LUMEN_BYTE_PAIRS(maddubs_epi16)(LUMEN_BYTE_PAIRS(abs_epi8)(codes.raw), signed_x)});
#else
    const auto w = hn::BitCast(WordTag(), codes);
    return hn::Add(add_pairs(hn::Mul(low_byte(w), low_byte(x))),
                   add_pairs(hn::Mul(high_byte(w), high_byte(x))));
#endif
  }

  // The bytes of each int16, with their signs.
  static LUMEN_PIECE Words low_byte(Words v) {
    return hn::ShiftRight<8>(hn::ShiftLeft<8>(v));
  }
  static LUMEN_PIECE Words high_byte(Words v) {
    return hn::ShiftRight<8>(v);
  }

  // Small codes are added up in int16 as long as no sum can overflow.
  template <int kMost>
  struct Sum {
    static constexpr int kFlush = kMost == 0 ? 1 : 32767 / (2 * 127 * kMost);

    HWY_INLINE Sum() {}  // the implicit one is not of this target
    LUMEN_PIECE void start(Ints begin) {
      ints = begin;
      words = hn::Zero(WordTag());
    }
    template <int kQuad>
    LUMEN_PIECE void add(Codes codes, const int8_t* x) {
      if constexpr (kMost == 0) {
        ints = hn::Add(ints, multiply_signed(codes, repeat(x)));
      } else {
        static_assert(kFlush > 0);
        if constexpr (kQuad > 0 && kQuad % kFlush == 0) {
          ints = hn::Add(ints, add_pairs(words));
          words = multiply_pairs(codes, repeat(x));
        } else if constexpr (kQuad == 0) {
          words = multiply_pairs(codes, repeat(x));
        } else {
          words = hn::Add(words, multiply_pairs(codes, repeat(x)));
#ifdef LUMEN_BYTE_PAIRS
          finish(words.raw);
#endif
        }
      }
    }
    template <int kBits>
    LUMEN_PIECE Ints total() const {
      if constexpr (kMost == 0) return ints;
      const auto sum = hn::Add(ints, add_pairs(words));
      if constexpr (kBits == 0) return sum;
      return hn::ShiftRight<kBits>(sum);
    }
    Ints ints;
    Words words;
  };
};

#include "lib/kernels/weights/panel_formats-inl.h"
#include "lib/kernels/weights/panel_sums-inl.h"

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
namespace {
HWY_EXPORT(strips_of_width);
HWY_EXPORT(dot_panels_of_any_format);
HWY_EXPORT(expand_panel_of_any_format);
}  // namespace

StripRows panel_strips(std::byte* memory, int64_t m, int64_t cols) {
  return uses_native_dot() ? native_panel_strips(memory, m, cols)
                           : portable_panel_strips(memory, m, cols);
}

StripRows portable_panel_strips(std::byte* memory, int64_t m, int64_t cols) {
  return HWY_DYNAMIC_DISPATCH(strips_of_width)(memory, m, cols);
}

void dot_panels_quantized(const Weight& w, int64_t begin, int64_t end, const StripRows& x, float* y,
                          int64_t y_stride) {
  if (uses_native_dot()) {
    dot_panels_native(w, begin, end, x, y, y_stride);
  } else {
    dot_panels_portable(w, begin, end, x, y, y_stride);
  }
}

void dot_panels_portable(const Weight& w, int64_t begin, int64_t end, const StripRows& x, float* y,
                         int64_t y_stride) {
  HWY_DYNAMIC_DISPATCH(dot_panels_of_any_format)(w, begin, end, x, y, y_stride);
}

void expand_panel(const Weight& w, int64_t index, int64_t k, int64_t cols, int added,
                  const CodePanel& to) {
  const auto* panel = static_cast<const uint8_t*>(w.data) +
                      kPanelRows * (index * row_bytes(w.dtype, w.cols) + row_bytes(w.dtype, k));
  if (uses_native_dot()) {
    expand_panel_native(w.dtype, panel, cols, added, to);
  } else {
    HWY_DYNAMIC_DISPATCH(expand_panel_of_any_format)(w.dtype, panel, cols, added, to);
  }
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
