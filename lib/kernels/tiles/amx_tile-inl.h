// The micro-kernel of amx.h, over tile registers given as a type: the CPU's in amx_tile.cc, those
// of amx_emulation.h in tests.
//
// Tiles has static functions on tiles by number: load<tile>(memory, row stride in bytes),
// zero<tile>(), store<tile>(memory, row stride); multiply<sum>(): tile `sum` = 2 i + j gets the
// product of tile 4 + i (of A) and tile 6 + j (of B) added; and multiply_short<step>(): tiles 0 and
// 1 get the products of tile 2 + step (of A) and tiles 4 + step and 6 + step (of B) added. Compiled
// for the instruction set of the place of inclusion; see ../README.md for the shape.
#pragma once

#include "lib/kernels/tiles/amx.h"

namespace lumen::kernels {

// The operand of LDTILECFG: eight tiles of 16 rows × 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

template <class Tiles, int kRowPanels>
inline void load_a(const uint16_t* a, int64_t pitch) {
  Tiles::template load<4>(a, kTileDepth * 2);
  if constexpr (kRowPanels == 2) Tiles::template load<5>(a + pitch, kTileDepth * 2);
}

template <class Tiles, int kColPanels>
inline void load_b(const uint16_t* b, int64_t pitch) {
  Tiles::template load<6>(b, kTileDepth * 2);
  if constexpr (kColPanels == 2) Tiles::template load<7>(b + pitch, kTileDepth * 2);
}

template <class Tiles, int kRowPanels, int kColPanels>
inline void multiply_loaded() {
  Tiles::template multiply<0>();
  if constexpr (kColPanels == 2) Tiles::template multiply<1>();
  if constexpr (kRowPanels == 2) Tiles::template multiply<2>();
  if constexpr (kRowPanels == 2 && kColPanels == 2) Tiles::template multiply<3>();
}

template <class Tiles, int kTile>
inline void start_sums(const float* from, int64_t stride) {
  if (from == nullptr) {
    Tiles::template zero<kTile>();
  } else {
    constexpr int64_t kRow = kTile / 2 * kTileRows, kColumn = kTile % 2 * kTileRows;
    Tiles::template load<kTile>(from + kRow * stride + kColumn, stride * sizeof(float));
  }
}

template <class Tiles, int kTile>
inline void store_sums(float* c, int64_t stride) {
  constexpr int64_t kRow = kTile / 2 * kTileRows, kColumn = kTile % 2 * kTileRows;
  Tiles::template store<kTile>(c + kRow * stride + kColumn, stride * sizeof(float));
}

template <class Tiles, int kRowPanels, int kColPanels>
inline void store_all_sums(float* c, int64_t stride) {
  store_sums<Tiles, 0>(c, stride);
  if constexpr (kColPanels == 2) store_sums<Tiles, 1>(c, stride);
  if constexpr (kRowPanels == 2) store_sums<Tiles, 2>(c, stride);
  if constexpr (kRowPanels == 2 && kColPanels == 2) store_sums<Tiles, 3>(c, stride);
}

template <class Tiles, int kRowPanels, int kColPanels>
void multiply_strips(const TileStrips& s) {
  constexpr int64_t kTile = kTileRows * kTileDepth;  // numbers in a tile
  start_sums<Tiles, 0>(s.add, s.add_stride);
  if constexpr (kColPanels == 2) start_sums<Tiles, 1>(s.add, s.add_stride);
  if constexpr (kRowPanels == 2) start_sums<Tiles, 2>(s.add, s.add_stride);
  if constexpr (kRowPanels == 2 && kColPanels == 2) start_sums<Tiles, 3>(s.add, s.add_stride);
  for (int64_t at = 0; at < s.steps * kTile; at += kTile) {
    // Small products first; in this order eight loads do for three products, ten for four.
    if (s.a_low != nullptr) {
      load_a<Tiles, kRowPanels>(s.a_low + at, s.a_pitch);
      if (s.low_low && s.b_low != nullptr) {
        load_b<Tiles, kColPanels>(s.b_low + at, s.b_pitch);
        multiply_loaded<Tiles, kRowPanels, kColPanels>();
      }
      load_b<Tiles, kColPanels>(s.b_high + at, s.b_pitch);
      multiply_loaded<Tiles, kRowPanels, kColPanels>();
    } else {
      load_b<Tiles, kColPanels>(s.b_high + at, s.b_pitch);
    }
    load_a<Tiles, kRowPanels>(s.a_high + at, s.a_pitch);
    multiply_loaded<Tiles, kRowPanels, kColPanels>();
    if (s.b_low != nullptr) {
      load_b<Tiles, kColPanels>(s.b_low + at, s.b_pitch);
      multiply_loaded<Tiles, kRowPanels, kColPanels>();
    }
  }
  store_all_sums<Tiles, kRowPanels, kColPanels>(s.c, s.c_stride);
}

// Stores what tile kTile holds of the strip before, if there is one, and clears it.
template <class Tiles, int kTile>
inline void next_sums(float* before, int64_t stride) {
  if (before != nullptr) store_sums<Tiles, kTile>(before, stride);
  Tiles::template zero<kTile>();
}

// The first products of a strip, between which the sums of the one before are stored.
template <class Tiles>
inline void multiply_first(float* before, int64_t stride) {
  next_sums<Tiles, 0>(before, stride);
  Tiles::template multiply<0>();
  next_sums<Tiles, 1>(before, stride);
  Tiles::template multiply<1>();
  next_sums<Tiles, 2>(before, stride);
  Tiles::template multiply<2>();
  next_sums<Tiles, 3>(before, stride);
  Tiles::template multiply<3>();
}

// TileUnit::multiply_row, of one part.
template <class Tiles>
void multiply_row_of_strips(const TileStrips& s) {
  constexpr int64_t kTile = kTileRows * kTileDepth;
  const uint16_t* b = s.b_high;
  float* before = nullptr;
  for (int64_t strip = 0; strip < s.strips; ++strip, b += s.b_strip) {
    load_b<Tiles, 2>(b, s.b_pitch);
    load_a<Tiles, 2>(s.a_high, s.a_pitch);
    multiply_first<Tiles>(before, s.c_stride);
    for (int64_t at = kTile; at < s.steps * kTile; at += kTile) {
      load_b<Tiles, 2>(b + at, s.b_pitch);
      load_a<Tiles, 2>(s.a_high + at, s.a_pitch);
      multiply_loaded<Tiles, 2, 2>();
    }
    before = s.c + strip * s.c_strip;
  }
  store_all_sums<Tiles, 2, 2>(before, s.c_stride);
}

// Likewise of two.
template <class Tiles>
void multiply_row_of_parts(const TileStrips& s) {
  constexpr int64_t kTile = kTileRows * kTileDepth;
  const uint16_t *high = s.b_high, *low = s.b_low;
  float* before = nullptr;
  for (int64_t strip = 0; strip < s.strips; ++strip, high += s.b_strip, low += s.b_strip) {
    for (int64_t at = 0; at < s.steps * kTile; at += kTile) {
      // In the order of multiply_strips.
      load_a<Tiles, 2>(s.a_low + at, s.a_pitch);
      if (s.low_low) {
        load_b<Tiles, 2>(low + at, s.b_pitch);
        at == 0 ? multiply_first<Tiles>(before, s.c_stride) : multiply_loaded<Tiles, 2, 2>();
      }
      load_b<Tiles, 2>(high + at, s.b_pitch);
      at == 0 && !s.low_low ? multiply_first<Tiles>(before, s.c_stride)
                            : multiply_loaded<Tiles, 2, 2>();
      load_a<Tiles, 2>(s.a_high + at, s.a_pitch);
      multiply_loaded<Tiles, 2, 2>();
      load_b<Tiles, 2>(low + at, s.b_pitch);
      multiply_loaded<Tiles, 2, 2>();
    }
    before = s.c + strip * s.c_strip;
  }
  store_all_sums<Tiles, 2, 2>(before, s.c_stride);
}

// TileUnit::multiply_row.
template <class Tiles>
void multiply_any_row(const TileStrips& strips) {
  strips.a_low == nullptr ? multiply_row_of_strips<Tiles>(strips)
                          : multiply_row_of_parts<Tiles>(strips);
}

// TileUnit::multiply.
template <class Tiles>
void multiply_any_strips(const TileStrips& strips) {
  if (strips.row_panels == 2) {
    if (strips.col_panels == 2) return multiply_strips<Tiles, 2, 2>(strips);
    return multiply_strips<Tiles, 2, 1>(strips);
  }
  if (strips.col_panels == 2) return multiply_strips<Tiles, 1, 2>(strips);
  multiply_strips<Tiles, 1, 1>(strips);
}

template <class Tiles, int kSteps>
void multiply_short_strips(const TileStrips& s) {
  constexpr int64_t kTile = kTileRows * kTileDepth;
  Tiles::template load<4>(s.b_high, kTileDepth * 2);
  Tiles::template load<6>(s.b_high + s.b_pitch, kTileDepth * 2);
  if constexpr (kSteps == 2) {
    Tiles::template load<5>(s.b_high + kTile, kTileDepth * 2);
    Tiles::template load<7>(s.b_high + s.b_pitch + kTile, kTileDepth * 2);
  }
  for (int64_t i = 0; i < s.row_panels; ++i) {
    const uint16_t* const a = s.a_high + i * s.a_pitch;
    Tiles::template zero<0>();
    Tiles::template zero<1>();
    Tiles::template load<2>(a, kTileDepth * 2);
    if constexpr (kSteps == 2) Tiles::template load<3>(a + kTile, kTileDepth * 2);
    Tiles::template multiply_short<0>();
    if constexpr (kSteps == 2) Tiles::template multiply_short<1>();
    float* const c = s.c + i * kTileRows * s.c_stride;
    Tiles::template store<0>(c, s.c_stride * sizeof(float));
    Tiles::template store<1>(c + kTileRows, s.c_stride * sizeof(float));
  }
}

// TileUnit::multiply_short.
template <class Tiles>
void multiply_any_short_strips(const TileStrips& strips) {
  strips.steps == 2 ? multiply_short_strips<Tiles, 2>(strips)
                    : multiply_short_strips<Tiles, 1>(strips);
}

}  // namespace lumen::kernels
