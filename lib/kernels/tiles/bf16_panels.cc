#include "lib/kernels/tiles/bf16_panels.h"

#include <algorithm>
#include <cstring>

#include "lib/base/check.h"
#include "lib/kernels/simd.h"
#include "lib/kernels/simd/targets-inl.h"
#include "lib/kernels/tiles/bf16_dot.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/tiles/bf16_panels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/piece-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lumen::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// At most sixteen lanes, so that a row of a tile is a whole number of pairs of vectors.
using FloatTag = hn::CappedTag<float, 16>;
using IntTag = hn::RebindToSigned<FloatTag>;
using Floats = hn::VFromD<FloatTag>;
using Ints = hn::VFromD<IntTag>;

// A CPU with AVX-512 may round in one instruction.
inline constexpr bool kMayHaveBf16 = HWY_TARGET == HWY_AVX3;

inline constexpr int32_t kMagnitude = 0x7fffffff, kInfinity = 0x7f800000;
inline constexpr int32_t kLargestBf16 = 0x7f7fffff;  // with the bits that rounding drops set
inline constexpr int32_t kQuiet = 0x00400000;        // of a NaN

// The bits of x rounded to bfloat16, in the upper half of each lane; the lower half is zero.
LUMEN_PIECE Ints rounded_to_bf16(Ints bits) {
  const IntTag d;
  const auto magnitude = hn::And(bits, hn::Set(d, kMagnitude));
  const auto odd = hn::And(hn::ShiftRight<16>(magnitude), hn::Set(d, 1));
  const auto rounded =
      hn::Min(hn::Add(magnitude, hn::Add(odd, hn::Set(d, 0x7fff))), hn::Set(d, kLargestBf16));
  const auto infinity = hn::Set(d, kInfinity);
  const auto special =
      hn::IfThenElse(hn::Gt(magnitude, infinity), hn::Or(magnitude, hn::Set(d, kQuiet)), infinity);
  const auto result = hn::IfThenElse(hn::Lt(magnitude, infinity), rounded, special);
  const auto sign = hn::AndNot(hn::Set(d, kMagnitude), bits);
  return hn::AndNot(hn::Set(d, 0xffff), hn::Or(sign, result));
}

// Collects what PanelContent says.
struct Seen {
  Ints low;      // all low parts or-ed together
  Ints largest;  // bits of the largest magnitude
};

LUMEN_PIECE Ints round_to_low_part(Floats x, Ints high, Seen& seen) {
  const IntTag d;
  const auto magnitude = hn::And(hn::BitCast(d, x), hn::Set(d, kMagnitude));
  const auto rest = hn::BitCast(d, hn::Sub(x, hn::BitCast(FloatTag(), high)));
  const auto low =
      hn::IfThenElseZero(hn::Lt(magnitude, hn::Set(d, kInfinity)), rounded_to_bf16(rest));
  // An exact difference is +0.
  seen.low = hn::Or(seen.low, low);
  seen.largest = hn::Max(seen.largest, magnitude);
  return low;
}

// The upper halves of all lanes of a, then of b.
LUMEN_PIECE void store_upper_halves(Ints a, Ints b, uint16_t* to) {
  const hn::Repartition<uint16_t, IntTag> d;
  hn::StoreU(hn::ConcatOdd(d, hn::BitCast(d, b), hn::BitCast(d, a)), d, to);
}

// Splits a tile in few instructions, or says that its numbers are special.
template <class Split>
bool split_natively(Split split, const float* x, int64_t stride, uint16_t* high, uint16_t* low,
                    Seen& seen) {
  uint32_t low_bits = 0;
  if (!split(x, stride, high, low, low_bits)) return false;
  const IntTag d;
  seen.low = hn::Or(seen.low, hn::Set(d, static_cast<int32_t>(low_bits)));
  return true;
}

// Sixteen rows of kTileDepth numbers, to tiles in the order of rows.
void split_rows(const float* x, int64_t row_stride, uint16_t* high, uint16_t* low, Seen& seen) {
  if (kMayHaveBf16 && has_bf16_dot()) {
    if (low == nullptr) return round_tile_rows(x, row_stride, high);
    if (split_natively(split_tile_rows, x, row_stride, high, low, seen)) return;
  }
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t i = 0; i < kTileRows; ++i, x += row_stride) {
    for (int64_t k = 0; k < kTileDepth; k += 2 * lanes) {
      const auto x0 = hn::LoadU(d, x + k), x1 = hn::LoadU(d, x + k + lanes);
      const Ints high0 = rounded_to_bf16(hn::BitCast(IntTag(), x0));
      const Ints high1 = rounded_to_bf16(hn::BitCast(IntTag(), x1));
      const int64_t at = i * kTileDepth + k;
      store_upper_halves(high0, high1, high + at);
      if (low == nullptr) continue;
      const Ints low0 = round_to_low_part(x0, high0, seen);
      const Ints low1 = round_to_low_part(x1, high1, seen);
      store_upper_halves(low0, low1, low + at);
    }
  }
}

// The numbers of two columns as one lane per row.
LUMEN_PIECE void store_pairs(Ints even, Ints odd, uint16_t* to) {
  const IntTag d;
  const hn::RebindToUnsigned<IntTag> du;
  const auto first = hn::BitCast(d, hn::ShiftRight<16>(hn::BitCast(du, even)));
  hn::StoreU(hn::Or(first, odd), d, reinterpret_cast<int32_t*>(to));
}

// kTileDepth columns of sixteen numbers, to tiles in the order of pairs.
void split_columns(const float* x, int64_t col_stride, uint16_t* high, uint16_t* low, Seen& seen) {
  if (kMayHaveBf16 && has_bf16_dot()) {
    if (low == nullptr) return round_tile_columns(x, col_stride, high);
    if (split_natively(split_tile_columns, x, col_stride, high, low, seen)) return;
  }
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t k = 0; k < kTileDepth; k += 2, x += 2 * col_stride) {
    for (int64_t i = 0; i < kTileRows; i += lanes) {
      const auto x0 = hn::LoadU(d, x + i), x1 = hn::LoadU(d, x + col_stride + i);
      const Ints high0 = rounded_to_bf16(hn::BitCast(IntTag(), x0));
      const Ints high1 = rounded_to_bf16(hn::BitCast(IntTag(), x1));
      const int64_t at = (k / 2 * kTileRows + i) * 2;
      store_pairs(high0, high1, high + at);
      if (low == nullptr) continue;
      const Ints low0 = round_to_low_part(x0, high0, seen);
      const Ints low1 = round_to_low_part(x1, high1, seen);
      store_pairs(low0, low1, low + at);
    }
  }
}

// Rows to pairs of a tile and back: it is a square of 4-byte lanes.
void turn_tile(const uint16_t* from, uint16_t* to) {
  pack_strip({reinterpret_cast<const float*>(from), kTileRows, 1}, kTileRows, kTileRows, kTileRows,
             kTileRows, reinterpret_cast<float*>(to));
}

PanelContent pack_bf16_panel_kernel(const PanelSource& from, int64_t rows, int64_t depth,
                                    PanelOrder order, const Bf16Panel& panel) {
  constexpr int64_t kTile = kTileRows * kTileDepth;
  Seen seen{hn::Zero(IntTag()), hn::Zero(IntTag())};
  for (int64_t k = 0; k < depth; k += kTileDepth) {
    const int64_t cols = std::min(kTileDepth, depth - k);
    StripSource source = {from.x + k * from.col_stride, from.row_stride, from.col_stride};
    alignas(64) float copy[kTile];
    if (rows < kTileRows || cols < kTileDepth ||
        (source.row_stride != 1 && source.col_stride != 1)) {
      std::fill_n(copy, kTile, 0.0f);
      for (int64_t i = 0; i < rows; ++i) {
        const float* row = source.x + i * source.row_stride;
        float* const to = copy + i * kTileDepth;
        if (source.col_stride == 1) {
          std::copy_n(row, cols, to);
        } else {
          for (int64_t j = 0; j < cols; ++j) to[j] = row[j * source.col_stride];
        }
      }
      source = {copy, kTileDepth, 1};
    }
    const bool by_rows = source.col_stride == 1;
    const bool in_order = by_rows == (order == PanelOrder::kRows);
    uint16_t* const high = panel.high + k * kTileRows;
    uint16_t* const low = panel.low == nullptr ? nullptr : panel.low + k * kTileRows;
    alignas(64) uint16_t turned_high[kTile], turned_low[kTile];
    uint16_t* const first_high = in_order ? high : turned_high;
    uint16_t* const first_low = in_order || low == nullptr ? low : turned_low;
    if (by_rows) {
      split_rows(source.x, source.row_stride, first_high, first_low, seen);
    } else {
      split_columns(source.x, source.col_stride, first_high, first_low, seen);
    }
    if (in_order) continue;
    turn_tile(turned_high, high);
    if (low != nullptr) turn_tile(turned_low, low);
  }
  const IntTag d;
  if (hn::GetLane(hn::MaxOfLanes(d, seen.largest)) >= kInfinity) return PanelContent::kNonfinite;
  return hn::AllTrue(d, hn::Eq(seen.low, hn::Zero(d))) ? PanelContent::kOnePart
                                                       : PanelContent::kTwoParts;
}

void round_to_bf16_kernel(float* x, int64_t count) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  const auto round = [&](float* v) HWY_ATTR {
    hn::StoreU(hn::BitCast(d, rounded_to_bf16(hn::BitCast(IntTag(), hn::LoadU(d, v)))), d, v);
  };
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) round(x + i);
  float rest[hn::MaxLanes(d)] = {};
  std::copy_n(x + i, count - i, rest);
  round(rest);
  std::copy_n(rest, count - i, x + i);
}

void move_sums_kernel(const float* sums, int64_t pitch, int64_t rows, int64_t cols, bool add,
                      float* c, int64_t c_stride) {
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t i = 0; i < rows; ++i, sums += pitch, c += c_stride) {
    int64_t j = 0;
    for (; j + lanes <= cols; j += lanes) {
      const auto sum = hn::LoadU(d, sums + j);
      hn::StoreU(add ? hn::Add(hn::LoadU(d, c + j), sum) : sum, d, c + j);
    }
    for (; j < cols; ++j) c[j] = add ? c[j] + sums[j] : sums[j];
  }
}

// The first `cols` numbers of `lines` lines of a tile, each `length` long, and zeros.
void copy_part(const uint16_t* from, int64_t line_stride, int64_t stride, int64_t lines,
               int64_t cols, int64_t length, uint16_t* to) {
  std::fill_n(to, kTileRows * kTileDepth, uint16_t{0});
  for (int64_t i = 0; i < lines; ++i, from += line_stride, to += length) {
    if (stride == 1) {
      std::memcpy(to, from, static_cast<size_t>(cols) * 2);
    } else {
      for (int64_t j = 0; j < cols; ++j) std::memcpy(to + j, from + j * stride, 2);
    }
  }
}

// kTileDepth columns of sixteen numbers, to a tile in the order of pairs.
void pair_columns(const uint16_t* from, int64_t col_stride, uint16_t* to) {
  if (kMayHaveBf16 && has_bf16_dot()) return pair_tile_columns(from, col_stride, to);
  const hn::CappedTag<uint16_t, kTileRows> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t k = 0; k < kTileDepth; k += 2, from += 2 * col_stride) {
    for (int64_t i = 0; i < kTileRows; i += lanes, to += 2 * lanes) {
      hn::StoreInterleaved2(hn::LoadU(d, from + i), hn::LoadU(d, from + col_stride + i), d, to);
    }
  }
}

void copy_bf16_panel_kernel(const PanelSource& from, int64_t rows, int64_t depth, PanelOrder order,
                            uint16_t* panel) {
  alignas(64) uint16_t part[kTileRows * kTileDepth], turned[kTileRows * kTileDepth];
  const bool by_rows = from.col_stride == 1;
  const bool in_order = by_rows == (order == PanelOrder::kRows);
  for (int64_t k = 0; k < depth; k += kTileDepth, panel += kTileRows * kTileDepth) {
    const int64_t cols = std::min(kTileDepth, depth - k);
    const uint16_t* x = bf16_numbers(from.at(0, k).x);
    int64_t stride = by_rows ? from.row_stride : from.col_stride;
    if (rows < kTileRows || cols < kTileDepth || (!by_rows && from.row_stride != 1)) {
      const int64_t length = by_rows ? kTileDepth : kTileRows;
      copy_part(x, stride, by_rows ? 1 : from.row_stride, by_rows ? rows : cols,
                by_rows ? cols : rows, length, part);
      x = part;
      stride = length;
    }
    uint16_t* const to = in_order ? panel : turned;
    if (by_rows) {
      for (int64_t i = 0; i < kTileRows; ++i) {
        std::memcpy(to + i * kTileDepth, x + i * stride, kTileDepth * 2);
      }
    } else {
      pair_columns(x, stride, to);
    }
    if (!in_order) turn_tile(turned, panel);
  }
}

void round_row_kernel(const float* x, int64_t count, uint16_t* c) {
  if (kMayHaveBf16 && has_bf16_dot()) return round_rows_native(x, count, 1, count, c, count);
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    store_upper_halves(rounded_to_bf16(hn::BitCast(IntTag(), hn::LoadU(d, x + i))),
                       rounded_to_bf16(hn::BitCast(IntTag(), hn::LoadU(d, x + i + lanes))), c + i);
  }
  if (i == count) return;
  float rest[2 * hn::MaxLanes(d)] = {};
  uint16_t rounded[2 * hn::MaxLanes(d)];
  std::copy_n(x + i, count - i, rest);
  store_upper_halves(rounded_to_bf16(hn::BitCast(IntTag(), hn::LoadU(d, rest))),
                     rounded_to_bf16(hn::BitCast(IntTag(), hn::LoadU(d, rest + lanes))), rounded);
  std::copy_n(rounded, count - i, c + i);
}

void round_rows_kernel(const float* x, int64_t x_stride, int64_t rows, int64_t count, uint16_t* c,
                       int64_t c_stride) {
  if (kMayHaveBf16 && has_bf16_dot()) {
    return round_rows_native(x, x_stride, rows, count, c, c_stride);
  }
  for (int64_t i = 0; i < rows; ++i) round_row_kernel(x + i * x_stride, count, c + i * c_stride);
}

void round_codes_kernel(const CodePanel& from, const CodeForm& form, int64_t cols,
                        uint16_t* panel) {
  if (kMayHaveBf16 && has_bf16_dot()) return round_codes_native(from, form, cols, panel);
  const FloatTag d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t k = 0; k < cols; k += 4) {
    for (int64_t i = 0; i < kTileRows; i += lanes) {
      const int64_t at = k / form.sub * kTileRows + i;
      const auto scale = hn::Load(d, from.scale + at);
      const auto min = form.has_min ? hn::Load(d, from.min + at) : hn::Zero(d);
      const auto words =
          hn::Load(IntTag(), reinterpret_cast<const int32_t*>(from.codes + k * kTileRows + 4 * i));
      const auto rounded = [&](Ints upper_byte) HWY_ATTR {
        const auto code = hn::ConvertTo(d, hn::ShiftRight<24>(upper_byte));
        return rounded_to_bf16(hn::BitCast(IntTag(), hn::MulAdd(scale, code, min)));
      };
      uint16_t* const to = panel + k * kTileRows + 2 * i;
      store_pairs(rounded(hn::ShiftLeft<24>(words)), rounded(hn::ShiftLeft<16>(words)), to);
      store_pairs(rounded(hn::ShiftLeft<8>(words)), rounded(words), to + 2 * kTileRows);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lumen::kernels {
namespace {
HWY_EXPORT(pack_bf16_panel_kernel);
HWY_EXPORT(round_to_bf16_kernel);
HWY_EXPORT(move_sums_kernel);
HWY_EXPORT(copy_bf16_panel_kernel);
HWY_EXPORT(round_row_kernel);
HWY_EXPORT(round_rows_kernel);
HWY_EXPORT(round_codes_kernel);
}  // namespace

PanelContent pack_bf16_panel(const PanelSource& from, int64_t rows, int64_t depth, PanelOrder order,
                             const Bf16Panel& panel) {
  if (rows == 0) {
    for (uint16_t* numbers : {panel.high, panel.low}) {
      if (numbers) std::fill_n(numbers, kTileRows * padded_depth(depth), uint16_t{0});
    }
    return PanelContent::kOnePart;
  }
  if (from.bf16) {
    LUMEN_CHECK(panel.low == nullptr);
    HWY_DYNAMIC_DISPATCH(copy_bf16_panel_kernel)(from, rows, depth, order, panel.high);
    return PanelContent::kOnePart;
  }
  return HWY_DYNAMIC_DISPATCH(pack_bf16_panel_kernel)(from, rows, depth, order, panel);
}

void multiply_bf16_panels(const TileUnit& unit, const Bf16Operand& a, const Bf16Operand& b,
                          int64_t depth, bool add, float* sums) {
  unit.multiply({.a_high = a.panels,
                 .a_low = a.low,
                 .b_high = b.panels,
                 .b_low = b.low,
                 .a_pitch = a.pitch,
                 .b_pitch = b.pitch,
                 .steps = depth / kTileDepth,
                 .row_panels = a.rows > kTileRows ? 2 : 1,
                 .col_panels = b.rows > kTileRows ? 2 : 1,
                 .add = add ? sums : nullptr,
                 .add_stride = 2 * kTileRows,
                 .c = sums,
                 .c_stride = 2 * kTileRows,
                 .low_low = true,
                 .rows = a.rows});
}

void round_to_bf16(float* x, int64_t count) {
  HWY_DYNAMIC_DISPATCH(round_to_bf16_kernel)(x, count);
}

void move_sums(const float* sums, int64_t pitch, int64_t rows, int64_t cols, bool add, float* c,
               int64_t c_stride) {
  HWY_DYNAMIC_DISPATCH(move_sums_kernel)(sums, pitch, rows, cols, add, c, c_stride);
}

void move_sums_transposed(const float* sums, int64_t pitch, int64_t rows, int64_t cols, bool add,
                          float* c, int64_t c_stride) {
  constexpr int64_t kMost = 2 * kTileRows;
  LUMEN_CHECK(rows <= kMost && cols <= kMost);
  alignas(64) float turned[kMost * kMost];
  pack_strip({sums, pitch, 1}, rows, kMost, cols, kMost, turned);
  move_sums(turned, kMost, cols, rows, add, c, c_stride);
}

void round_row(const float* x, int64_t count, uint16_t* c) {
  HWY_DYNAMIC_DISPATCH(round_row_kernel)(x, count, c);
}

void round_rows(const float* x, int64_t x_stride, int64_t rows, int64_t count, uint16_t* c,
                int64_t c_stride) {
  HWY_DYNAMIC_DISPATCH(round_rows_kernel)(x, x_stride, rows, count, c, c_stride);
}

void round_codes(const CodePanel& from, const CodeForm& form, int64_t cols, uint16_t* panel) {
  HWY_DYNAMIC_DISPATCH(round_codes_kernel)(from, form, cols, panel);
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
