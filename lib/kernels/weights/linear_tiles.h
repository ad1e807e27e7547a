// `linear` (matmul.h) with many rows on tiles: blocks of weights become bfloat16, or fixed-point
// numbers. Private to this room.
#pragma once

#include <cstdint>
#include <span>

#include "lib/base/pool.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/tiles/amx.h"

namespace lumen::kernels {

// From this many rows on tiles are used where there are any. Below, expanding the weights to
// bfloat16 takes longer than the int8 products that it would save.
inline constexpr int64_t kTileUnitRows = 32;

// How weights are multiplied on a unit.
struct TileProduct {
  const TileUnit* unit = nullptr;  // null: not on one
  int products = 0;                // of parts (AmxProduct)

  friend bool operator==(const TileProduct&, const TileProduct&) = default;
};

// The calling thread's way for `w`.
TileProduct tile_product_for(const LinearArgs& args, const Weight& w);

// `weights` are all multiplied as `product`, which has a unit, says, and have one layout; their
// first row is column `column` of y. noexcept.
void linear_tiles(ThreadPool& pool, const TileProduct& product, const LinearArgs& args,
                  std::span<const Weight> weights, int64_t column);

}  // namespace lumen::kernels
