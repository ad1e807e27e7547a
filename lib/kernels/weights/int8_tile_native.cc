#include "lib/kernels/weights/int8_tile_native.h"

#include "lib/kernels/simd/targets-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/weights/int8_tile_native.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/weights/native_dot-inl.h"

#if LUMEN_NATIVE

HWY_PUSH_ATTRIBUTES(LUMEN_NATIVE_ATTRIBUTES)
namespace lumen::kernels {
namespace HWY_NAMESPACE {
namespace native {

// Strips come from L2 one after another, four blocks ahead of their use.
inline constexpr int64_t kPrefetchBytes = 4 * kStripBlockBytes * kMaxStripRows;

// dot[r][v] += the products of word kWord and the following ones of x[r] with their steps of two
// vectors of codes.
template <int kWord, int kRows>
HWY_INLINE void add_steps(const uint8_t* codes0, const uint8_t* codes1, const XWords (&x)[kRows],
                          IntVector (&dot)[kRows][2]) {
  if constexpr (kWord < kWordsAtOnce) {
    const TileInts di;
    const auto c0 = hn::Load(di, reinterpret_cast<const int32_t*>(codes0));
    const auto c1 = hn::Load(di, reinterpret_cast<const int32_t*>(codes1));
    for (int r = 0; r < kRows; ++r) {
      const auto four = word<kWord>(x[r]);
      dot[r][0] = add_byte_products(dot[r][0], c0, four);
      dot[r][1] = add_byte_products(dot[r][1], c1, four);
    }
    add_steps<kWord + 1>(codes0 + 64, codes1 + 64, x, dot);
  }
}

// The products with two vectors of weight rows, from row `first` of the 32 on. kRows × 2 sums of
// integers and as many of floats: 24 of 32 registers with 512 bits; with 256 bits 12 of 16 for the
// integers, and the floats go to L1.
template <int kRows, int kSub, bool kHasMin>
HWY_INLINE void multiply_columns(const CodePanel (&w)[2], int first, const CodeStrip& x,
                                 int64_t blocks, bool add, float* y, int64_t y_stride,
                                 int64_t cols) {
  constexpr int kSubs = 32 / kSub, kSteps = kSub / 4;
  const TileFloats d;
  const TileInts di;
  const CodePanel& panel0 = w[first / kPanelRows];
  const CodePanel& panel1 = w[(first + kTileLanes) / kPanelRows];
  const int place0 = first % kPanelRows, place1 = (first + kTileLanes) % kPanelRows;
  const uint8_t *codes0 = panel0.codes + 4 * place0, *codes1 = panel1.codes + 4 * place1;
  const float *scale0 = panel0.scale + place0, *scale1 = panel1.scale + place1;
  const float *min0 = panel0.min + place0, *min1 = panel1.min + place1;
  const std::byte *xp = x.blocks, *hp = x.halves;
  FloatVector sum[kRows][2];
  load_sums(add, y + first, y_stride, cols - first, sum);
  for (int64_t block = 0; block < blocks; ++block) {
    for (int line = 0; line < kRows * kStripBlockBytes; line += 64) {
      hwy::Prefetch(xp + kPrefetchBytes + line);
    }
    const std::byte* x_scale = xp + 32 * kRows;
    for (int sub = 0; sub < kSubs; ++sub) {
      const std::byte* x_sum = kSubs == 1 ? x_scale + 4 * kRows : hp + 4 * kRows * sub;
      const std::byte* owed = kSubs == 1 ? x_scale + 8 * kRows : hp + 4 * kRows * (2 + sub);
      IntVector dot[kRows][2];
      for (int r = 0; r < kRows; ++r) {
        const bool owes = !kHasMin && kAddedToSigned != 0;
        dot[r][0] = dot[r][1] = owes ? repeat_word(owed + 4 * r) : hn::Zero(di);
      }
      for (int step = 0; step < kSteps; step += kWordsAtOnce) {
        XWords four[kRows];
        for (int r = 0; r < kRows; ++r) {
          four[r] = load_words(xp + 32 * r + kSub * sub + 4 * step);
        }
        add_steps<0>(codes0 + 64 * step, codes1 + 64 * step, four, dot);
      }
      const auto s0 = hn::Load(d, scale0), s1 = hn::Load(d, scale1);
      for (int r = 0; r < kRows; ++r) {
        const auto xs = repeat_float(x_scale + 4 * r);
        sum[r][0] = hn::MulAdd(hn::ConvertTo(d, dot[r][0]), hn::Mul(xs, s0), sum[r][0]);
        sum[r][1] = hn::MulAdd(hn::ConvertTo(d, dot[r][1]), hn::Mul(xs, s1), sum[r][1]);
      }
      if constexpr (kHasMin) {
        const auto m0 = hn::Load(d, min0), m1 = hn::Load(d, min1);
        for (int r = 0; r < kRows; ++r) {
          const auto xs = repeat_float(x_sum + 4 * r);
          sum[r][0] = hn::MulAdd(xs, m0, sum[r][0]);
          sum[r][1] = hn::MulAdd(xs, m1, sum[r][1]);
        }
        min0 += kPanelRows;
        min1 += kPanelRows;
      }
      codes0 += kPanelRows * kSub;
      codes1 += kPanelRows * kSub;
      scale0 += kPanelRows;
      scale1 += kPanelRows;
    }
    xp += kStripBlockBytes * kRows;
    hp += kStripHalfBytes * kRows;
  }
  store_sums(sum, y + first, y_stride, cols - first);
}

template <int kRows, int kSub, bool kHasMin>
void multiply(const CodePanel (&w)[2], const CodeStrip& x, int64_t blocks, bool add, float* y,
              int64_t y_stride, int64_t cols) {
  for (int first = 0; first < cols; first += 2 * kTileLanes) {
    multiply_columns<kRows, kSub, kHasMin>(w, first, x, blocks, add, y, y_stride, cols);
  }
}

template <int kSub, bool kHasMin>
void multiply_rows(const CodePanel (&w)[2], const CodeStrip& x, int64_t blocks, bool add, float* y,
                   int64_t y_stride, int64_t cols) {
  switch (x.rows) {
    case 1:
      return multiply<1, kSub, kHasMin>(w, x, blocks, add, y, y_stride, cols);
    case 2:
      return multiply<2, kSub, kHasMin>(w, x, blocks, add, y, y_stride, cols);
    case 3:
      return multiply<3, kSub, kHasMin>(w, x, blocks, add, y, y_stride, cols);
    case 4:
      return multiply<4, kSub, kHasMin>(w, x, blocks, add, y, y_stride, cols);
    case 5:
      return multiply<5, kSub, kHasMin>(w, x, blocks, add, y, y_stride, cols);
    default:
      return multiply<6, kSub, kHasMin>(w, x, blocks, add, y, y_stride, cols);
  }
}

Int8Tile tile_of_width() {
  return {.strip_rows = 6, .added = kAddedToSigned == 128 ? Added::k128 : Added::kNothing};
}

CodeMultiplier multiplier_of_width(const CodeForm& form) {
  return form.sub == 32 ? (form.has_min ? multiply_rows<32, true> : multiply_rows<32, false>)
                        : (form.has_min ? multiply_rows<16, true> : multiply_rows<16, false>);
}

}  // namespace native
}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_POP_ATTRIBUTES

#endif  // LUMEN_NATIVE

#if HWY_ONCE
namespace lumen::kernels {

Int8Tile native_int8_tile() {
  return LUMEN_NATIVE_CALL(tile_of_width);
}

CodeMultiplier native_code_multiplier(const CodeForm& form) {
  return LUMEN_NATIVE_CALL(multiplier_of_width, form);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
