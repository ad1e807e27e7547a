#include "lib/kernels/weights/panel_dot_tiles.h"

#include <algorithm>

#include "lib/base/check.h"
#include "lib/base/round_up.h"
#include "lib/kernels/simd.h"
#include "lib/kernels/simd/targets-inl.h"
#include "lib/kernels/simd/x86_intrinsics.h"
#include "lib/kernels/tiles/amx_tile-inl.h"
#include "lib/kernels/weights/quantize_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/kernels/weights/panel_dot_tiles.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lib/kernels/weights/panel_isa-inl.h"

#if HWY_TARGET == HWY_AVX3

HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",amx-tile,amx-int8")
namespace lumen::kernels {
namespace HWY_NAMESPACE {
namespace int8_tiles {

struct Isa : PanelIsa<16> {
  static constexpr int kSignedOffset = 0;
  static constexpr int kMostCode = 63;
};

#include "lib/kernels/weights/panel_formats-inl.h"

// How many sub-blocks after it was taken apart one is multiplied, its sums leave their tile (three
// later ones are in flight meanwhile), and are added to those of float32: long enough for stores to
// have reached L1, as neither loads of tiles nor loads of what tiles stored are forwarded.
inline constexpr int64_t kMultiplied = 2, kStored = kMultiplied + 3, kAdded = kStored + 3;

// What is under way, of sub-block s at s modulo the length.
template <class Format, int kRows>
struct alignas(64) UnderWay {
  static constexpr int64_t kCodes = 4, kSums = 4, kScales = 16;
  static_assert(kMultiplied < kCodes && kAdded - kStored < kSums && kAdded < kScales);

  uint8_t codes[kCodes][Format::kSub * kPanelRows];
  int32_t sums[kSums][kRows][kPanelRows];
  float scale[kScales][kPanelRows], min[kScales][kPanelRows];
};

// Four tiles of sums take turns, and two of either operand. The numbers of tiles are written out as
// in amx_tile.cc.
template <int kTile>
LUMEN_PIECE void multiply_tile(const std::byte* x, const uint8_t* codes) {
  constexpr size_t kXStride = 32, kCodeStride = 4 * kPanelRows;
  if constexpr (kTile % 2 == 0) {
    _tile_loadd(4, x, kXStride);
    _tile_loadd(6, codes, kCodeStride);
  } else {
    _tile_loadd(5, x, kXStride);
    _tile_loadd(7, codes, kCodeStride);
  }
  if constexpr (kTile == 0) {
    _tile_zero(0);
    _tile_dpbssd(0, 4, 6);
  } else if constexpr (kTile == 1) {
    _tile_zero(1);
    _tile_dpbssd(1, 5, 7);
  } else if constexpr (kTile == 2) {
    _tile_zero(2);
    _tile_dpbssd(2, 4, 6);
  } else {
    _tile_zero(3);
    _tile_dpbssd(3, 5, 7);
  }
}

template <int kTile>
LUMEN_PIECE void store_tile(int32_t* sums) {
  constexpr size_t kStride = kPanelRows * sizeof(int32_t);
  if constexpr (kTile == 0) _tile_stored(0, sums, kStride);
  if constexpr (kTile == 1) _tile_stored(1, sums, kStride);
  if constexpr (kTile == 2) _tile_stored(2, sums, kStride);
  if constexpr (kTile == 3) _tile_stored(3, sums, kStride);
}

// Multiplies sub-block `sub`, unless there is no such, and stores the sums of the one three before
// it; if that would be before the first, of nothing.
template <bool kMultiply, class Format, int kRows>
LUMEN_PIECE void use_tiles(int64_t sub, const CodeStrip& x, UnderWay<Format, kRows>& under_way) {
  using State = UnderWay<Format, kRows>;
  constexpr int64_t kSubs = 32 / Format::kSub;  // per block of x
  const std::byte* codes_of_x = x.blocks + sub / kSubs * (kRows * kStripBlockBytes);
  if constexpr (kSubs > 1) codes_of_x += sub % kSubs * Format::kSub;
  const uint8_t* codes = under_way.codes[sub & (State::kCodes - 1)];
  int32_t* sums = under_way.sums[(sub - 3) & (State::kSums - 1)][0];
  // The intrinsics of GCC 12 do not say that they read and write memory.
  asm volatile("" ::: "memory");
  switch (sub & 3) {
    case 0:
      if (kMultiply) multiply_tile<0>(codes_of_x, codes);
      store_tile<1>(sums);
      break;
    case 1:
      if (kMultiply) multiply_tile<1>(codes_of_x, codes);
      store_tile<2>(sums);
      break;
    case 2:
      if (kMultiply) multiply_tile<2>(codes_of_x, codes);
      store_tile<3>(sums);
      break;
    default:
      if (kMultiply) multiply_tile<3>(codes_of_x, codes);
      store_tile<0>(sums);
  }
  asm volatile("" ::: "memory");
}

// Rows kRow and on of sums. Not loops: an array that a loop indexes would be in memory, as the
// compiler takes loops apart too late.
template <int kRow, int kRows>
LUMEN_PIECE void clear_rows(Isa::Floats* y) {
  if constexpr (kRow < kRows) {
    y[kRow] = Isa::set(0.0f);
    clear_rows<kRow + 1, kRows>(y);
  }
}

template <int kRow, int kRows>
LUMEN_PIECE void store_rows(const Isa::Floats* y, float (*out)[kPanelRows]) {
  if constexpr (kRow < kRows) {
    Isa::store(y[kRow], out[kRow]);
    store_rows<kRow + 1, kRows>(y, out);
  }
}

template <int kRow, int kRows>
LUMEN_PIECE void add_rows(const int32_t (*sums)[kPanelRows], const float* x_scale,
                          Isa::Floats scale, Isa::Floats* y) {
  if constexpr (kRow < kRows) {
    const auto sum = Isa::to_float(hn::Load(Isa::IntTag(), sums[kRow]));
    y[kRow] = Isa::fma(sum, Isa::mul(Isa::set(x_scale[kRow]), scale), y[kRow]);
    add_rows<kRow + 1, kRows>(sums, x_scale, scale, y);
  }
}

template <int kRow, int kRows>
LUMEN_PIECE void add_mins(const float* x_sum, Isa::Floats min, Isa::Floats* y) {
  if constexpr (kRow < kRows) {
    y[kRow] = Isa::fma(Isa::set(x_sum[kRow]), min, y[kRow]);
    add_mins<kRow + 1, kRows>(x_sum, min, y);
  }
}

// Adds the sums of sub-block `sub` to y, in the order of panel_dot.h.
template <class Format, int kRows>
LUMEN_PIECE void add_sums(int64_t sub, const CodeStrip& x, const UnderWay<Format, kRows>& under_way,
                          Isa::Floats* y) {
  using State = UnderWay<Format, kRows>;
  constexpr int64_t kSubs = 32 / Format::kSub;
  const std::byte* block = x.blocks + sub / kSubs * (kRows * kStripBlockBytes);
  const auto* x_scale = reinterpret_cast<const float*>(block + kRows * 32);
  const int64_t at = sub & (State::kScales - 1);
  add_rows<0, kRows>(under_way.sums[sub & (State::kSums - 1)], x_scale,
                     hn::Load(Isa::FloatTag(), under_way.scale[at]), y);
  if constexpr (Format::kHasMin) {
    const float* x_sum = x_scale + kRows;
    if constexpr (kSubs > 1) {
      const std::byte* halves = x.halves + sub / kSubs * (kRows * kStripHalfBytes);
      x_sum = reinterpret_cast<const float*>(halves) + sub % kSubs * kRows;
    }
    add_mins<0, kRows>(x_sum, hn::Load(Isa::FloatTag(), under_way.min[at]), y);
  }
}

// Takes sub-blocks kIndex and on of a group apart, whose first one is number `first` of the row,
// and each time does the next step of those before.
template <class Format, int kRows, int kIndex, class Scales>
LUMEN_PIECE void add_subs(const uint8_t* p, int group, const Scales& scales, int64_t first,
                          const CodeStrip& x, UnderWay<Format, kRows>& under_way, Isa::Floats* y) {
  if constexpr (kIndex < kIndices<Format>) {
    using State = UnderWay<Format, kRows>;
    const int64_t sub = first + kIndex, at = sub & (State::kScales - 1);
    fetch_ahead<Format, kRows, kIndex>(p, 0, group);
    expand_quads<Format, kIndex, 0>(p, 0, group, -Format::kOffset,
                                    under_way.codes[sub & (State::kCodes - 1)]);
    Isa::store(scales.template scale<kIndex>(group), under_way.scale[at]);
    if constexpr (Format::kHasMin) {
      Isa::store(scales.template min<kIndex>(group), under_way.min[at]);
    }
    if (sub >= kMultiplied) use_tiles<true>(sub - kMultiplied, x, under_way);
    if (sub >= kAdded) add_sums(sub - kAdded, x, under_way, y);
    add_subs<Format, kRows, kIndex + 1>(p, group, scales, first, x, under_way, y);
  }
}

// out[r][j] = Σ_k panel[j][k] · x[r][k] for the kRows rows of x and the sixteen rows of a panel.
template <class Format, int kRows>
HWY_NOINLINE void sum_panel(const uint8_t* panel, const CodeStrip& x, int64_t cols,
                            float (*out)[kPanelRows]) {
  constexpr int64_t kBlock = info(Format::kType).block_elements;
  constexpr int64_t kBytes = kPanelRows * info(Format::kType).block_bytes;
  UnderWay<Format, kRows> under_way;
  Isa::Floats y[kRows];
  clear_rows<0, kRows>(y);
  // Number `first` is computed so that the compiler sees which bits of it are 0: of most formats
  // the places of what is under way, and the tiles, are constants then.
  for (int64_t block = 0; block < cols / kBlock; ++block, panel += kBytes) {
    const auto scales = Format::scales(panel, 0);
    if constexpr (Format::kGroups == 1) {
      add_subs<Format, kRows, 0>(panel, 0, scales, block * kIndices<Format>, x, under_way, y);
    } else {
      for (int group = 0; group < Format::kGroups; ++group) {
        const int64_t first = (block * Format::kGroups + group) * kIndices<Format>;
        add_subs<Format, kRows, 0>(panel, group, scales, first, x, under_way, y);
      }
    }
  }
  const int64_t subs = cols / Format::kSub;
  for (int64_t sub = subs; sub < subs + kAdded; ++sub) {
    if (sub < subs + kMultiplied) {
      if (sub >= kMultiplied) use_tiles<true>(sub - kMultiplied, x, under_way);
    } else if (sub < subs + kStored) {
      use_tiles<false>(sub - kMultiplied, x, under_way);
    }
    if (sub >= kAdded) add_sums(sub - kAdded, x, under_way, y);
  }
  store_rows<0, kRows>(y, out);
}

// Rows [begin, end) of the weights with all rows of x, in strips of kRows.
template <class Format, int kRows>
void dot_panels(const Weight& w, int64_t begin, int64_t end, const StripRows& x, float* y,
                int64_t y_stride) {
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    config.rows[i] = i < 6 ? kRows : Format::kSub / 4;
    config.bytes_per_row[i] = i == 4 || i == 5 ? Format::kSub : 4 * kPanelRows;
  }
  asm volatile("" ::: "memory");
  _tile_loadconfig(&config);
  const int64_t bytes = kPanelRows * row_bytes(Format::kType, w.cols);
  for (int64_t first = begin / kPanelRows * kPanelRows; first < end; first += kPanelRows) {
    const auto* panel = static_cast<const uint8_t*>(w.data) + first / kPanelRows * bytes;
    const int64_t from = std::max(begin, first), to = std::min(end, first + kPanelRows);
    for (int64_t row = 0; row < x.m; row += kRows) {
      alignas(64) float out[kRows][kPanelRows];
      sum_panel<Format, kRows>(panel, x.strip(row, 0), w.cols, out);
      for (int64_t r = row; r < std::min(x.m, row + kRows); ++r) {
        std::copy(out[r - row] + (from - first), out[r - row] + (to - first),
                  y + r * y_stride + from - begin);
      }
    }
  }
  _tile_release();
}

template <class Format>
struct DotPanels {
  static void run(const Weight& w, int64_t begin, int64_t end, const StripRows& x, float* y,
                  int64_t y_stride) {
    if (x.height == 8) {
      dot_panels<Format, 8>(w, begin, end, x, y, y_stride);
    } else {
      dot_panels<Format, 16>(w, begin, end, x, y, y_stride);
    }
  }
};

void dot_panels_of_any_format(const Weight& w, int64_t begin, int64_t end, const StripRows& x,
                              float* y, int64_t y_stride) {
  for_format<DotPanels>(w.dtype, w, begin, end, x, y, y_stride);
}

}  // namespace int8_tiles
}  // namespace HWY_NAMESPACE
}  // namespace lumen::kernels
HWY_POP_ATTRIBUTES

#endif  // HWY_TARGET == HWY_AVX3

#if HWY_ONCE
namespace lumen::kernels {

StripRows tile_strips(std::byte* memory, int64_t m, int64_t cols) {
  const int64_t height = m <= 8 ? 8 : 16;
  return {memory, m, cols, height, height};
}

void dot_panels_tiles(const Weight& w, int64_t begin, int64_t end, const StripRows& x, float* y,
                      int64_t y_stride) {
#if HWY_TARGETS & HWY_AVX3
  N_AVX3::int8_tiles::dot_panels_of_any_format(w, begin, end, x, y, y_stride);
#else
  LUMEN_CHECK(!"int8 tiles");
#endif
}

}  // namespace lumen::kernels
#endif  // HWY_ONCE
