#include "lib/kernels/weights/int8_tile.h"

#include <algorithm>
#include <cstring>

#include "lib/kernels/simd.h"
#include "lib/kernels/simd/targets-inl.h"
#include "lib/kernels/simd/x86_intrinsics.h"
#include "lib/kernels/weights/int8_tile_native.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/weights/int8_tile.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/piece-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Bytes = hn::CappedTag<int8_t, 64>;
using Ints = hn::Repartition<int32_t, Bytes>;
using Floats = hn::RebindToFloat<Ints>;
using IntVector = hn::VFromD<Ints>;
using FloatVector = hn::VFromD<Floats>;
inline constexpr int kLanes = hn::MaxLanes(Ints());  // rows of weights in a vector

// AVX2 and SSE4: 4 × 2 sums of 16 registers (the sums of floats go to L1); AVX-512: 6 × 2. The
// emulation has one row, for the sake of the time to compile this file.
inline constexpr int kStripRows = HWY_TARGET == HWY_AVX3 ? 6 : HWY_TARGET == HWY_EMU128 ? 1 : 4;

template <typename T>
LUMEN_PIECE T load_at(const std::byte* p, int index) {
  T value;
  std::memcpy(&value, p + sizeof(T) * index, sizeof value);
  return value;
}

// ---- Integer products of one sub-block: dot[r][v] = Σ_k code[k] · xcode[r][k] for two vectors of
// weight rows, at codes[v], and kRows rows of x, 32 bytes apart.

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4

inline constexpr Added kAdded = Added::kOffset;

// Highway 1.0 has no operation for products of unsigned with signed bytes summed by pairs in int16,
// saturated, nor for bytes that take the sign of others.
#if HWY_TARGET == HWY_AVX3
using ByteVector = hn::Vec512<int8_t>;
using WordVector = hn::Vec512<int16_t>;
LUMEN_PIECE WordVector multiply_pairs(ByteVector u, ByteVector s) {
  return WordVector{_mm512_maddubs_epi16(u.raw, s.raw)};
}
LUMEN_PIECE WordVector sum_pairs(WordVector v) {
  return WordVector{_mm512_madd_epi16(v.raw, _mm512_set1_epi16(1))};
}
LUMEN_PIECE ByteVector with_sign_of(ByteVector w, ByteVector x) {
  return ByteVector{
      _mm512_mask_sub_epi8(x.raw, _mm512_movepi8_mask(w.raw), _mm512_setzero_si512(), x.raw)};
}
#elif HWY_TARGET == HWY_AVX2
using ByteVector = hn::Vec256<int8_t>;
using WordVector = hn::Vec256<int16_t>;
LUMEN_PIECE WordVector multiply_pairs(ByteVector u, ByteVector s) {
  return WordVector{_mm256_maddubs_epi16(u.raw, s.raw)};
}
LUMEN_PIECE WordVector sum_pairs(WordVector v) {
  return WordVector{_mm256_madd_epi16(v.raw, _mm256_set1_epi16(1))};
}
LUMEN_PIECE ByteVector with_sign_of(ByteVector w, ByteVector x) {
  return ByteVector{_mm256_sign_epi8(x.raw, w.raw)};
}
#else
using ByteVector = hn::Vec128<int8_t>;
using WordVector = hn::Vec128<int16_t>;
LUMEN_PIECE WordVector multiply_pairs(ByteVector u, ByteVector s) {
  return WordVector{_mm_maddubs_epi16(u.raw, s.raw)};
}
LUMEN_PIECE WordVector sum_pairs(WordVector v) {
  return WordVector{_mm_madd_epi16(v.raw, _mm_set1_epi16(1))};
}
LUMEN_PIECE ByteVector with_sign_of(ByteVector w, ByteVector x) {
  return ByteVector{_mm_sign_epi8(x.raw, w.raw)};
}
#endif

// Steps of four columns that fit in int16: each adds two products, of at most 127 by the largest
// code. 8 for codes of four bits (8 · 2 · 127 · 15 = 30480), 4 for five, 2 for six. Signed codes of
// eight bits: |code| ≤ 128 is the unsigned operand and x takes the code's sign, 2 · 127 · 128 =
// 32512, one step.
constexpr int steps_in_int16(CodeForm form) {
  const int largest = form.bits == 8 ? 128 : (1 << form.bits) - 1;
  return std::min(form.sub / 4, 32767 / (2 * 127 * largest));
}

template <CodeForm kForm, int kRows>
LUMEN_PIECE void dot_codes(const uint8_t* const (&codes)[2], const std::byte* x,
                           const std::byte* owed, FloatVector (&dot)[kRows][2]) {
  constexpr int kSteps = kForm.sub / 4, kRun = steps_in_int16(kForm);
  static_assert(kSteps % kRun == 0);
  const Bytes d;
  const Ints di;
  const hn::Repartition<int16_t, Bytes> d16;
  IntVector sum[kRows][2];
  // Unrolled, because sums in a loop would be copied from register to register each time.
  HWY_UNROLL(8)
  for (int first = 0; first < kSteps; first += kRun) {
    WordVector part[kRows][2];
    HWY_UNROLL(8)
    for (int step = first; step < first + kRun; ++step) {
      const auto w0 = hn::Load(d, reinterpret_cast<const int8_t*>(codes[0] + 64 * step));
      const auto w1 = hn::Load(d, reinterpret_cast<const int8_t*>(codes[1] + 64 * step));
      for (int r = 0; r < kRows; ++r) {
        const auto four = hn::BitCast(d, hn::Set(di, load_at<int32_t>(x + 32 * r, step)));
        WordVector p0, p1;
        if constexpr (kForm.bits == 8) {
          p0 = multiply_pairs(hn::Abs(w0), with_sign_of(w0, four));
          p1 = multiply_pairs(hn::Abs(w1), with_sign_of(w1, four));
        } else {
          p0 = multiply_pairs(w0, four);
          p1 = multiply_pairs(w1, four);
        }
        part[r][0] = step == first ? p0 : hn::Add(part[r][0], p0);
        part[r][1] = step == first ? p1 : hn::Add(part[r][1], p1);
        if constexpr (kRun > 1) {
          finish(part[r][0].raw);
          finish(part[r][1].raw);
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < 2; ++v) {
        const auto pairs = hn::BitCast(di, sum_pairs(part[r][v]));
        sum[r][v] = first == 0 ? pairs : hn::Add(sum[r][v], pairs);
        finish(sum[r][v].raw);
      }
    }
  }
  // Codes have their own offset added, 128 / 2^(8 − bits). What is owed for it comes last: at the
  // beginning it would hold registers.
  constexpr bool kOwes = !kForm.has_min && kForm.bits != 8;
  for (int r = 0; r < kRows; ++r) {
    const auto owes = kOwes ? hn::ShiftRight<8 - kForm.bits>(hn::Set(di, load_at<int32_t>(owed, r)))
                            : hn::Zero(di);
    for (int v = 0; v < 2; ++v) {
      dot[r][v] = hn::ConvertTo(Floats(), kOwes ? hn::Add(sum[r][v], owes) : sum[r][v]);
    }
  }
}

#else

inline constexpr Added kAdded = Added::k128;

// In float32, which holds the sums exactly: 32 · 255 · 127 < 2^24.
template <CodeForm kForm, int kRows>
LUMEN_PIECE void dot_codes(const uint8_t* const (&codes)[2], const std::byte* x,
                           const std::byte* owed, FloatVector (&dot)[kRows][2]) {
  const Floats d;
  const Ints di;
  for (int r = 0; r < kRows; ++r) {
    const int32_t start = kForm.has_min ? 0 : load_at<int32_t>(owed, r);
    dot[r][0] = dot[r][1] = hn::Set(d, static_cast<float>(start));
  }
  for (int step = 0; step < kForm.sub / 4; ++step) {
    IntVector w[2];
    for (int v = 0; v < 2; ++v) {
      w[v] =
          hn::BitCast(di, hn::Load(Bytes(), reinterpret_cast<const int8_t*>(codes[v] + 64 * step)));
    }
    for (int i = 0; i < 4; ++i) {
      for (int v = 0; v < 2; ++v) {
        const auto code = hn::ConvertTo(d, hn::And(w[v], hn::Set(di, 255)));
        for (int r = 0; r < kRows; ++r) {
          const auto xcode = static_cast<float>(load_at<int8_t>(x + 32 * r, 4 * step + i));
          dot[r][v] = hn::MulAdd(code, hn::Set(d, xcode), dot[r][v]);
        }
        w[v] = hn::ShiftRight<8>(w[v]);
      }
    }
  }
}

#endif

// Adds the products with weight rows [first, first + 2 · kLanes) of the 32 to sum[r][first …].
template <CodeForm kForm, int kRows>
LUMEN_PIECE void multiply_columns(const CodePanel (&w)[2], int first, const CodeStrip& x,
                                  int64_t blocks, float (*sum)[kInt8TileCols]) {
  constexpr int kSubs = 32 / kForm.sub;
  const Floats d;
  int64_t place[2];  // of each vector in its panel
  const CodePanel* panel[2];
  for (int v = 0; v < 2; ++v) {
    panel[v] = &w[(first + v * kLanes) / kPanelRows];
    place[v] = (first + v * kLanes) % kPanelRows;
  }
  FloatVector total[kRows][2];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < 2; ++v) total[r][v] = hn::Load(d, sum[r] + first + v * kLanes);
  }
  const std::byte *xp = x.blocks, *hp = x.halves;
  for (int64_t block = 0; block < blocks; ++block) {
    const std::byte* x_scale = xp + 32 * kRows;
    for (int sub = 0; sub < kSubs; ++sub) {
      const std::byte* x_sum = kSubs == 1 ? x_scale + 4 * kRows : hp + 4 * kRows * sub;
      const std::byte* owed = kSubs == 1 ? x_scale + 8 * kRows : hp + 4 * kRows * (2 + sub);
      const int64_t at = block * kSubs + sub;
      const uint8_t* const codes[2] = {panel[0]->codes + 16 * kForm.sub * at + 4 * place[0],
                                       panel[1]->codes + 16 * kForm.sub * at + 4 * place[1]};
      FloatVector dot[kRows][2];
      dot_codes<kForm, kRows>(codes, xp + kForm.sub * sub, owed, dot);
      for (int v = 0; v < 2; ++v) {
        const auto scale = hn::Load(d, panel[v]->scale + 16 * at + place[v]);
        for (int r = 0; r < kRows; ++r) {
          const auto factor = hn::Mul(hn::Set(d, load_at<float>(x_scale, r)), scale);
          total[r][v] = hn::MulAdd(dot[r][v], factor, total[r][v]);
        }
        if constexpr (kForm.has_min) {
          const auto min = hn::Load(d, panel[v]->min + 16 * at + place[v]);
          for (int r = 0; r < kRows; ++r) {
            total[r][v] = hn::MulAdd(hn::Set(d, load_at<float>(x_sum, r)), min, total[r][v]);
          }
        }
      }
    }
    xp += kStripBlockBytes * kRows;
    hp += kStripHalfBytes * kRows;
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < 2; ++v) hn::Store(total[r][v], d, sum[r] + first + v * kLanes);
  }
}

template <CodeForm kForm, int kRows>
void multiply(const CodePanel (&w)[2], const CodeStrip& x, int64_t blocks, bool add, float* y,
              int64_t y_stride, int64_t cols) {
  HWY_ALIGN float sum[kRows][kInt8TileCols] = {};
  for (int r = 0; r < kRows; ++r) {
    if (add) std::memcpy(sum[r], y + r * y_stride, cols * sizeof(float));
  }
  for (int first = 0; first < cols; first += 2 * kLanes) {
    multiply_columns<kForm, kRows>(w, first, x, blocks, sum);
  }
  for (int r = 0; r < kRows; ++r) std::memcpy(y + r * y_stride, sum[r], cols * sizeof(float));
}

template <CodeForm kForm>
void multiply_rows(const CodePanel (&w)[2], const CodeStrip& x, int64_t blocks, bool add, float* y,
                   int64_t y_stride, int64_t cols) {
  switch (x.rows) {
    case 1:
      return multiply<kForm, 1>(w, x, blocks, add, y, y_stride, cols);
    case 2:
      return multiply<kForm, std::min(2, kStripRows)>(w, x, blocks, add, y, y_stride, cols);
    case 3:
      return multiply<kForm, std::min(3, kStripRows)>(w, x, blocks, add, y, y_stride, cols);
    case 4:
      return multiply<kForm, std::min(4, kStripRows)>(w, x, blocks, add, y, y_stride, cols);
    case 5:
      return multiply<kForm, std::min(5, kStripRows)>(w, x, blocks, add, y, y_stride, cols);
    default:
      return multiply<kForm, kStripRows>(w, x, blocks, add, y, y_stride, cols);
  }
}

CodeMultiplier portable_multiplier(const CodeForm& form) {
  switch (form.bits) {
    case 8:
      return multiply_rows<code_form(DType::kQ8_0)>;
    case 6:
      return multiply_rows<code_form(DType::kQ6_K)>;
    case 5:
      return form.has_min ? multiply_rows<code_form(DType::kQ5_1)>
                          : multiply_rows<code_form(DType::kQ5_0)>;
    case 4:
      return form.has_min ? multiply_rows<code_form(DType::kQ4_1)>
                          : multiply_rows<code_form(DType::kQ4_0)>;
    case 3:
      return multiply_rows<code_form(DType::kQ3_K)>;
    default:
      return multiply_rows<code_form(DType::kQ2_K)>;
  }
}

Int8Tile portable_tile() {
  return {.strip_rows = kStripRows, .added = kAdded};
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
namespace {
HWY_EXPORT(portable_multiplier);
HWY_EXPORT(portable_tile);
}  // namespace

Int8Tile int8_tile() {
  return uses_native_dot() ? native_int8_tile() : portable_int8_tile();
}

Int8Tile portable_int8_tile() {
  return HWY_DYNAMIC_DISPATCH(portable_tile)();
}

CodeMultiplier code_multiplier(const CodeForm& form) {
  return uses_native_dot() ? native_code_multiplier(form) : portable_code_multiplier(form);
}

CodeMultiplier portable_code_multiplier(const CodeForm& form) {
  return HWY_DYNAMIC_DISPATCH(portable_multiplier)(form);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
