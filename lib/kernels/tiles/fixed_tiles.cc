#include "lib/kernels/tiles/fixed_tiles.h"

#include <algorithm>
#include <cstring>

#include "lib/base/check.h"
#include "lib/base/round_up.h"
#include "lib/kernels/simd.h"
#include "lib/kernels/simd/targets-inl.h"
#include "lib/kernels/simd/x86_intrinsics.h"
#include "lib/kernels/tiles/amx_tile-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/tiles/fixed_tiles.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/simd/float16-inl.h"

#if HWY_TARGET == HWY_AVX3

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",amx-tile,amx-int8")
namespace lumen::kernels {
namespace HWY_NAMESPACE {
namespace fixed_tiles {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, kTileRows>;
using IntTag = hn::RebindToSigned<FloatTag>;
using WordTag = hn::Repartition<int16_t, FloatTag>;
using ByteTag = hn::Repartition<uint8_t, FloatTag>;
using Floats = hn::VFromD<FloatTag>;
using Ints = hn::VFromD<IntTag>;
using Words = hn::VFromD<WordTag>;

inline constexpr int64_t kStepDepth = 64;  // columns of a tile
inline constexpr int64_t kTileBytes = kTileRows * kStepDepth;
inline constexpr int64_t kStepBytes = 2 * kTileBytes;  // of both parts
inline constexpr int64_t kScaleBytes = 2 * kTileRows * sizeof(float);
inline constexpr float kMostCode = 127 * 256 + 127;
inline constexpr float kLeast = 0x1p-110f;  // so that kMostCode / kLeast is finite
inline constexpr float kOutlier = 12.0f;    // times the quadratic mean

// A number that this is added to is rounded to an integer, and the low 16 bits of the sum are that
// integer + 128: their upper byte is `high`, the lower one `low` + 128.
inline constexpr float kMagic = 0x1.8p23f + 128;

float* scales_of(std::byte* panel, int64_t depth) {
  return reinterpret_cast<float*>(panel + divide_up(depth, kStepDepth) * kStepBytes);
}

// ---- Packing.

// Of numbers whose largest magnitude is `largest`.
HWY_INLINE Floats scale_for(Floats largest) {
  const FloatTag d;
  const auto scale = hn::Div(largest, hn::Set(d, kMostCode));
  const auto enough = hn::Ge(largest, hn::Set(d, kLeast));
  return hn::IfThenElse(hn::IsFinite(largest), hn::IfThenElseZero(enough, scale), hn::NaN(d));
}

HWY_INLINE Floats inverse_for(Floats largest) {
  const FloatTag d;
  const auto usable = hn::And(hn::IsFinite(largest), hn::Ge(largest, hn::Set(d, kLeast)));
  return hn::IfThenElseZero(usable, hn::Div(hn::Set(d, kMostCode), largest));
}

HWY_INLINE Ints code(Floats number, Floats inverse) {
  const FloatTag d;
  return hn::BitCast(IntTag(), hn::MulAdd(number, inverse, hn::Set(d, kMagic)));
}

// The low 16 bits of both, lane by lane: two lower bytes, then two upper ones.
HWY_INLINE Words pair_bytes(Ints first, Ints second) {
  const WordTag dw;
  const ByteTag db;
  const auto words =
      hn::OddEven(hn::BitCast(dw, hn::ShiftLeft<16>(second)), hn::BitCast(dw, first));
  alignas(16) static constexpr uint8_t kOrder[] = {0, 2,  1, 3,  4,  6,  5,  7,
                                                   8, 10, 9, 11, 12, 14, 13, 15};
  const auto order = hn::LoadDup128(db, kOrder);
  return hn::BitCast(dw, hn::TableLookupBytes(hn::BitCast(db, words), order));
}

// Stores the parts of four numbers of every lane: `high`, and kTileBytes behind it `low`.
HWY_INLINE void store_fours(Ints c0, Ints c1, Ints c2, Ints c3, std::byte* to) {
  const IntTag d;
  const WordTag dw;
  const ByteTag db;
  const auto front = pair_bytes(c0, c1), back = pair_bytes(c2, c3);
  const auto low = hn::OddEven(hn::BitCast(dw, hn::ShiftLeft<16>(hn::BitCast(d, back))), front);
  const auto high = hn::OddEven(
      back,
      hn::BitCast(dw, hn::ShiftRight<16>(hn::BitCast(hn::RebindToUnsigned<IntTag>(), front))));
  auto* const bytes = reinterpret_cast<uint8_t*>(to);
  hn::StoreU(hn::BitCast(db, high), db, bytes);
  hn::StoreU(hn::Xor(hn::BitCast(db, low), hn::Set(db, 0x80)), db, bytes + kTileBytes);
}

// Sixteen numbers of a row from column k on, those behind its end 0.
HWY_INLINE Floats load_row(const float* x, int64_t k, int64_t depth) {
  const FloatTag d;
  if (k + kTileRows <= depth) return hn::LoadU(d, x + k);
  const auto valid = hn::FirstN(d, static_cast<size_t>(std::max<int64_t>(0, depth - k)));
  return hn::MaskedLoad(valid, d, x + std::min(k, depth));
}

// One row, whose bytes in the first step are at `to`.
void pack_row(const float* x, int64_t depth, std::byte* to, float& scale, float& low_scale) {
  const FloatTag d;
  auto largest = hn::Zero(IntTag());
  auto squares = hn::Zero(d);
  for (int64_t k = 0; k < depth; k += kTileRows) {
    const auto v = load_row(x, k, depth);
    largest = hn::Max(largest, hn::BitCast(IntTag(), hn::Abs(v)));  // NaNs are above infinity
    squares = hn::MulAdd(v, v, squares);
  }
  const auto most = hn::BitCast(d, hn::MaxOfLanes(IntTag(), largest));
  const auto inverse = inverse_for(most);
  for (int64_t k = 0; k < depth; k += kStepDepth, to += kStepBytes) {
    store_fours(code(load_row(x, k, depth), inverse),
                code(load_row(x, k + kTileRows, depth), inverse),
                code(load_row(x, k + 2 * kTileRows, depth), inverse),
                code(load_row(x, k + 3 * kTileRows, depth), inverse), to);
  }
  scale = hn::GetLane(scale_for(most));
  const float mean_square = hn::GetLane(hn::SumOfLanes(d, squares)) / static_cast<float>(depth);
  const float square = hn::GetLane(most) * hn::GetLane(most);
  low_scale = square > kOutlier * kOutlier * mean_square ? scale : 0.0f;
  scale *= 256;
}

void pack_rows(const float* x, int64_t row_stride, int64_t rows, int64_t depth, std::byte* panel) {
  float* const scale = scales_of(panel, depth);
  float* const low_scale = scale + kTileRows;
  for (int64_t i = 0; i < rows; ++i) {
    pack_row(x + i * row_stride, depth, panel + i * kStepDepth, scale[i], low_scale[i]);
  }
  if (rows == kTileRows) return;
  for (std::byte* step = panel; step < reinterpret_cast<std::byte*>(scale); step += kTileBytes) {
    std::fill(step + rows * kStepDepth, step + kTileBytes, std::byte{0});
  }
  std::fill(scale + rows, scale + kTileRows, 0.0f);
  std::fill(low_scale + rows, low_scale + kTileRows, 0.0f);
}

// The largest magnitude of every row.
HWY_INLINE Floats largest_of_columns(const uint16_t* halves, int64_t depth) {
  const WordTag dw;
  const hn::Half<WordTag> column;
  const auto magnitude = hn::Set(dw, 0x7fff);
  const auto* p = reinterpret_cast<const int16_t*>(halves);
  auto even = hn::Zero(dw), odd = even;
  int64_t k = 0;
  for (; k + 4 <= depth; k += 4, p += 4 * kTileRows) {
    even = hn::Max(even, hn::And(hn::LoadU(dw, p), magnitude));
    odd = hn::Max(odd, hn::And(hn::LoadU(dw, p + 2 * kTileRows), magnitude));
  }
  even = hn::Max(even, odd);
  auto largest = hn::Max(hn::LowerHalf(column, even), hn::UpperHalf(column, even));
  for (; k < depth; ++k, p += kTileRows) {
    largest = hn::Max(largest, hn::And(hn::LoadU(column, p), hn::LowerHalf(column, magnitude)));
  }
  const hn::Rebind<hwy::float16_t, FloatTag> half;
  return hn::PromoteTo(FloatTag(), hn::BitCast(half, largest));
}

template <bool kWhole>
HWY_INLINE Ints column_code(const uint16_t* halves, int64_t k, int64_t depth, Floats inverse) {
  const FloatTag d;
  if (!kWhole && k >= depth) return code(hn::Zero(d), inverse);
  return code(load_half(d, halves + k * kTileRows), inverse);
}

template <bool kWhole>
HWY_INLINE void pack_step(const uint16_t* halves, int64_t k, int64_t depth, Floats inverse,
                          std::byte* to) {
  for (int64_t four = 0; four < kTileRows; ++four, ++k, to += kStepDepth) {
    store_fours(column_code<kWhole>(halves, k, depth, inverse),
                column_code<kWhole>(halves, k + kTileRows, depth, inverse),
                column_code<kWhole>(halves, k + 2 * kTileRows, depth, inverse),
                column_code<kWhole>(halves, k + 3 * kTileRows, depth, inverse), to);
  }
}

void pack_columns(const uint16_t* halves, int64_t depth, std::byte* panel) {
  const auto largest = largest_of_columns(halves, depth);
  const auto inverse = inverse_for(largest);
  hn::StoreU(scale_for(largest), FloatTag(), scales_of(panel, depth));
  int64_t k = 0;
  for (; k + kStepDepth <= depth; k += kStepDepth, panel += kStepBytes) {
    pack_step<true>(halves, k, depth, inverse, panel);
  }
  if (k < depth) pack_step<false>(halves, k, depth, inverse, panel);
}

// ---- Products. Tiles 0 and 2 are the sums of `high` · `high` of two panels of B, 1 and 3 the
// mixed ones; 4 and 5 hold `high` and `low` of A, 6 and 7 those of B. The numbers of tiles are
// written out as in amx_tile.cc, and what passes by once is loaded past L1 like there.

struct Sums {
  alignas(64) int32_t tiles[4][kTileRows][kTileRows];
};

HWY_INLINE void store_tiles(Sums& sums) {
  constexpr size_t kStride = kTileRows * sizeof(int32_t);
  _tile_stored(0, sums.tiles[0], kStride);
  _tile_stored(1, sums.tiles[1], kStride);
  _tile_stored(2, sums.tiles[2], kStride);
  _tile_stored(3, sums.tiles[3], kStride);
  asm volatile("" ::: "memory");
}

// One panel of A with one or two of B, and where its sums go.
struct Panels {
  const std::byte *a, *b;
  int64_t b_pitch;  // bytes
  int64_t steps;
  const float* add;  // or null
  int64_t add_stride;
  float* c;
  int64_t c_stride;

  const float* a_scale() const { return reinterpret_cast<const float*>(a + steps * kStepBytes); }
  const float* low_scale() const { return a_scale() + kTileRows; }
  const float* b_scale(int panel) const {
    return reinterpret_cast<const float*>(b + panel * b_pitch + steps * kStepBytes);
  }
};

// Rows [begin, end) of c without the sums of `low` · `low`.
template <int kColPanels>
HWY_INLINE void scale_sums(const Sums& sums, const Panels& p, int64_t begin, int64_t end) {
  const FloatTag d;
  const IntTag di;
  for (int64_t i = begin; i < end; ++i) {
    for (int panel = 0; panel < kColPanels; ++panel) {
      const int64_t column = panel * kTileRows;
      const auto high = hn::ConvertTo(d, hn::Load(di, sums.tiles[2 * panel][i]));
      const auto mixed = hn::ConvertTo(d, hn::Load(di, sums.tiles[2 * panel + 1][i]));
      const auto before =
          p.add == nullptr ? hn::Zero(d) : hn::LoadU(d, p.add + i * p.add_stride + column);
      const auto sum =
          hn::Mul(hn::MulAdd(high, hn::Set(d, 256.0f), mixed), hn::Set(d, p.a_scale()[i]));
      hn::StoreU(hn::MulAdd(sum, hn::Load(d, p.b_scale(panel)), before), d,
                 p.c + i * p.c_stride + column);
    }
  }
}

// Multiplies a panel of A. Meanwhile the sums of the panel before it, if any, are scaled, some rows
// with every step.
template <int kColPanels>
HWY_INLINE void multiply_parts(const Panels& p, Sums& sums, const Panels* previous,
                               const Sums& previous_sums) {
  const std::byte *a = p.a, *b = p.b;
  const int64_t rows = divide_up(kTileRows, p.steps);  // per step
  asm volatile("" ::: "memory");  // the intrinsics of GCC 12 do not say that they read it
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t step = 0; step < p.steps; ++step, a += kStepBytes, b += kStepBytes) {
    _tile_stream_loadd(4, a, kStepDepth);
    _tile_loadd(6, b, kStepDepth);
    _tile_dpbssd(0, 4, 6);
    _tile_stream_loadd(5, a + kTileBytes, kStepDepth);
    _tile_dpbssd(1, 5, 6);
    _tile_loadd(7, b + kTileBytes, kStepDepth);
    _tile_dpbssd(1, 4, 7);
    if constexpr (kColPanels == 2) {
      _tile_loadd(6, b + p.b_pitch, kStepDepth);
      _tile_dpbssd(2, 4, 6);
      _tile_dpbssd(3, 5, 6);
      _tile_loadd(7, b + p.b_pitch + kTileBytes, kStepDepth);
      _tile_dpbssd(3, 4, 7);
    }
    if (previous != nullptr) {
      scale_sums<kColPanels>(previous_sums, *previous, std::min(kTileRows, step * rows),
                             std::min(kTileRows, (step + 1) * rows));
    }
  }
  store_tiles(sums);
}

// Adds the sums of `low` · `low` to c.
template <int kColPanels>
HWY_NOINLINE void add_low_parts(const Panels& p) {
  const std::byte *a = p.a + kTileBytes, *b = p.b + kTileBytes;
  Sums sums;
  _tile_zero(0);
  _tile_zero(2);
  for (int64_t step = 0; step < p.steps; ++step, a += kStepBytes, b += kStepBytes) {
    _tile_stream_loadd(5, a, kStepDepth);
    _tile_loadd(6, b, kStepDepth);
    _tile_dpbssd(0, 5, 6);
    if constexpr (kColPanels == 2) {
      _tile_loadd(7, b + p.b_pitch, kStepDepth);
      _tile_dpbssd(2, 5, 7);
    }
  }
  store_tiles(sums);
  const FloatTag d;
  for (int64_t i = 0; i < kTileRows; ++i) {
    for (int panel = 0; panel < kColPanels; ++panel) {
      float* const c = p.c + i * p.c_stride + panel * kTileRows;
      const auto low = hn::ConvertTo(d, hn::Load(IntTag(), sums.tiles[2 * panel][i]));
      const auto sum = hn::Mul(low, hn::Set(d, p.low_scale()[i]));
      hn::StoreU(hn::MulAdd(sum, hn::Load(d, p.b_scale(panel)), hn::LoadU(d, c)), d, c);
    }
  }
}

HWY_INLINE bool has_low_parts(const Panels& p) {
  const FloatTag d;
  return !hn::AllTrue(d, hn::Eq(hn::Load(d, p.low_scale()), hn::Zero(d)));
}

template <int kColPanels>
void multiply_panels(const TileStrips& s) {
  Panels panels[2];
  Sums sums[2];
  const Panels* previous = nullptr;
  for (int panel = 0; panel < s.row_panels; ++panel) {
    Panels& p = panels[panel % 2];
    const int64_t row = panel * kTileRows;
    p = {.a = reinterpret_cast<const std::byte*>(s.a_high + panel * s.a_pitch),
         .b = reinterpret_cast<const std::byte*>(s.b_high),
         .b_pitch = s.b_pitch * int64_t{sizeof(uint16_t)},
         .steps = s.steps * kTileDepth / kStepDepth,
         .add = s.add == nullptr ? nullptr : s.add + row * s.add_stride,
         .add_stride = s.add_stride,
         .c = s.c + row * s.c_stride,
         .c_stride = s.c_stride};
    multiply_parts<kColPanels>(p, sums[panel % 2], previous, sums[(panel + 1) % 2]);
    previous = &p;
    if (has_low_parts(p) || panel + 1 == s.row_panels) {
      scale_sums<kColPanels>(sums[panel % 2], p, 0, kTileRows);
      if (has_low_parts(p)) add_low_parts<kColPanels>(p);
      previous = nullptr;
    }
  }
}

void enter() {
  static const TileConfig config;
  _tile_loadconfig(&config);
}

void leave() {
  _tile_release();
}

void multiply(const TileStrips& s) {
  s.col_panels == 2 ? multiply_panels<2>(s) : multiply_panels<1>(s);
}

constexpr TileUnit kUnit = {.enter = enter,
                            .leave = leave,
                            .multiply = multiply,
                            .strip_depth = kFixedDepth,
                            .depth_multiple = kStepDepth,
                            .extra_depth = kScaleBytes / (kTileRows * sizeof(uint16_t))};

}  // namespace fixed_tiles
}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_POP_ATTRIBUTES

#endif  // HWY_TARGET == HWY_AVX3

#if HWY_ONCE
namespace lumen::kernels {

#if HWY_TARGETS & HWY_AVX3

const TileUnit* native_fixed_unit() {
  return &N_AVX3::fixed_tiles::kUnit;
}

void pack_fixed_rows(const float* x, int64_t row_stride, int64_t rows, int64_t depth,
                     uint16_t* panel) {
  N_AVX3::fixed_tiles::pack_rows(x, row_stride, rows, depth, reinterpret_cast<std::byte*>(panel));
}

void pack_fixed_columns(const uint16_t* halves, int64_t depth, uint16_t* panel) {
  N_AVX3::fixed_tiles::pack_columns(halves, depth, reinterpret_cast<std::byte*>(panel));
}

#else

const TileUnit* native_fixed_unit() {
  return nullptr;
}

void pack_fixed_rows(const float*, int64_t, int64_t, int64_t, uint16_t*) {
  LUMEN_CHECK(!"int8 tiles");
}

void pack_fixed_columns(const uint16_t*, int64_t, uint16_t*) {
  LUMEN_CHECK(!"int8 tiles");
}

#endif

}  // namespace lumen::kernels
#endif  // HWY_ONCE
