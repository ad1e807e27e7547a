// For tests: the tile registers in plain C++, with the arithmetic of the Intel SDM (TDPBF16PS), and
// a TileUnit made of them and the micro-kernel.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

#include "lib/base/check.h"
#include "lib/base/testing.h"
#include "lib/kernels/tiles/amx_tile-inl.h"

namespace lumen::kernels {

// Eight tiles of 16 × 64 bytes, per thread; using them between `leave` and `enter` fails.
struct EmulatedTiles {
  static constexpr int kRows = 16, kRowBytes = 64;

  struct State {
    bool entered = false;
    std::byte tiles[8][kRows][kRowBytes];
  };
  static State& state() {
    static thread_local State state;
    return state;
  }
  static std::byte (*tile(int index))[kRowBytes] {
    LUMEN_CHECK(state().entered);
    return state().tiles[index];
  }

  static void enter() {
    LUMEN_CHECK(!state().entered);
    state() = {};
    state().entered = true;
  }
  static void leave() {
    LUMEN_CHECK(state().entered);
    state().entered = false;
  }

  template <int kTile>
  static void load(const void* from, size_t stride) {
    for (int i = 0; i < kRows; ++i) {
      std::memcpy(tile(kTile)[i], static_cast<const std::byte*>(from) + i * stride, kRowBytes);
    }
  }
  template <int kTile>
  static void zero() {
    std::memset(tile(kTile), 0, sizeof State::tiles[kTile]);
  }
  template <int kTile>
  static void store(void* to, size_t stride) {
    for (int i = 0; i < kRows; ++i) {
      std::memcpy(static_cast<std::byte*>(to) + i * stride, tile(kTile)[i], kRowBytes);
    }
  }
  template <int kSum>
  static void multiply() {
    multiply(tile(kSum), tile(4 + kSum / 2), tile(6 + kSum % 2));
  }
  template <int kStep>
  static void multiply_short() {
    multiply(tile(0), tile(2 + kStep), tile(4 + kStep));
    multiply(tile(1), tile(2 + kStep), tile(6 + kStep));
  }

  // "DAZ=FTZ=1, RNE rounding": subnormal numbers count as zero, before and after. For each row,
  // sums of the even and of the odd products, one fused multiply-add each; the two are added, then
  // that to the destination.
  static void multiply(std::byte (*sum)[kRowBytes], std::byte (*a)[kRowBytes],
                       std::byte (*b)[kRowBytes]);
};

extern const TileUnit kEmulatedTileUnit;

// While it lives, products use `unit`, whatever the SIMD target is.
class TileUnitScope {
 public:
  explicit TileUnitScope(const TileUnit* unit) { force_tile_unit(unit); }
  ~TileUnitScope() { force_tile_unit(nullptr); }
  TileUnitScope(const TileUnitScope&) = delete;
};

// The units to test: always the emulated one, and this CPU's if it has one.
inline std::vector<const TileUnit*> tile_units() {
  std::vector<const TileUnit*> units = {&kEmulatedTileUnit};
  if (has_native_tiles()) units.push_back(native_tile_unit());
  return units;
}

// Runs body() with products on each unit in turn.
template <class Body>
void on_every_tile_unit(Body&& body) {
  for (const TileUnit* unit : tile_units()) {
    INFO((unit == &kEmulatedTileUnit ? "emulated tiles" : "the CPU's tiles"));
    const TileUnitScope scope(unit);
    body();
  }
}

}  // namespace lumen::kernels
