// The tile unit of the CPU.
#include "lib/kernels/simd/x86_intrinsics.h"
#include "lib/kernels/tiles/amx.h"

#if HWY_ARCH_X86_64

#include <cstddef>

// Everything up to HWY_POP_ATTRIBUTES is compiled for this instruction set and reached only through
// native_tile_unit.
HWY_PUSH_ATTRIBUTES("amx-tile,amx-bf16")

#include "lib/kernels/tiles/amx_tile-inl.h"

namespace lumen::kernels {
namespace {

// The numbers of tiles are written out because they are part of the instructions: GCC's intrinsics
// take nothing but digits.
struct NativeTiles {
  // Sums and panels of A pass by once: TILELOADDT1 leaves them in L2, and L1 to the strip of B.
  template <int kTile>
  static void load(const void* from, size_t stride) {
    if constexpr (kTile == 0) _tile_stream_loadd(0, from, stride);
    if constexpr (kTile == 1) _tile_stream_loadd(1, from, stride);
    if constexpr (kTile == 2) _tile_stream_loadd(2, from, stride);
    if constexpr (kTile == 3) _tile_stream_loadd(3, from, stride);
    if constexpr (kTile == 4) _tile_stream_loadd(4, from, stride);
    if constexpr (kTile == 5) _tile_stream_loadd(5, from, stride);
    if constexpr (kTile == 6) _tile_loadd(6, from, stride);
    if constexpr (kTile == 7) _tile_loadd(7, from, stride);
  }

  template <int kTile>
  static void zero() {
    if constexpr (kTile == 0) _tile_zero(0);
    if constexpr (kTile == 1) _tile_zero(1);
    if constexpr (kTile == 2) _tile_zero(2);
    if constexpr (kTile == 3) _tile_zero(3);
  }

  template <int kTile>
  static void store(void* to, size_t stride) {
    if constexpr (kTile == 0) _tile_stored(0, to, stride);
    if constexpr (kTile == 1) _tile_stored(1, to, stride);
    if constexpr (kTile == 2) _tile_stored(2, to, stride);
    if constexpr (kTile == 3) _tile_stored(3, to, stride);
  }

  template <int kSum>
  static void multiply() {
    if constexpr (kSum == 0) _tile_dpbf16ps(0, 4, 6);
    if constexpr (kSum == 1) _tile_dpbf16ps(1, 4, 7);
    if constexpr (kSum == 2) _tile_dpbf16ps(2, 5, 6);
    if constexpr (kSum == 3) _tile_dpbf16ps(3, 5, 7);
  }

  template <int kStep>
  static void multiply_short() {
    if constexpr (kStep == 0) {
      _tile_dpbf16ps(0, 2, 4);
      _tile_dpbf16ps(1, 2, 6);
    } else {
      _tile_dpbf16ps(0, 3, 5);
      _tile_dpbf16ps(1, 3, 7);
    }
  }
};

// Of a row of strips it is B that passes by.
struct RowTiles : NativeTiles {
  template <int kTile>
  static void load(const void* from, size_t stride) {
    if constexpr (kTile == 4) _tile_loadd(4, from, stride);
    if constexpr (kTile == 5) _tile_loadd(5, from, stride);
    if constexpr (kTile == 6) _tile_stream_loadd(6, from, stride);
    if constexpr (kTile == 7) _tile_stream_loadd(7, from, stride);
  }
};

const TileConfig kConfig;

void enter() {
  _tile_loadconfig(&kConfig);
}

void leave() {
  _tile_release();
}

void multiply(const TileStrips& strips) {
  // GCC 12's tile loads do not say that they read memory.
  asm volatile("" ::: "memory");
  multiply_any_strips<NativeTiles>(strips);
}

void multiply_short(const TileStrips& strips) {
  asm volatile("" ::: "memory");
  multiply_any_short_strips<NativeTiles>(strips);
}

void multiply_row(const TileStrips& strips) {
  asm volatile("" ::: "memory");
  multiply_any_row<RowTiles>(strips);
}

constexpr TileUnit kUnit = {enter, leave, multiply, multiply_short, multiply_row};

}  // namespace

const TileUnit* native_tile_unit() {
  return &kUnit;
}

}  // namespace lumen::kernels

HWY_POP_ATTRIBUTES

#else  // not x86-64

namespace lumen::kernels {

const TileUnit* native_tile_unit() {
  return nullptr;
}

}  // namespace lumen::kernels

#endif  // HWY_ARCH_X86_64
