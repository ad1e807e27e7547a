// The matrix unit of some x86-64 CPUs (AMX, Sapphire Rapids and later): eight tiles of 16 rows × 64
// bytes and products of bfloat16 pairs between them (Intel SDM, volume 1, chapter 18).
#pragma once

#include <cstdint>

#include "lib/base/round_up.h"

namespace lumen::kernels {

inline constexpr int64_t kTileRows = 16;   // rows of a tile; columns of a tile of sums
inline constexpr int64_t kTileDepth = 32;  // bfloat16 numbers in a row of a tile

// One call of the micro-kernel: c[i][j] = add[i][j] + Σ_k a[i][k] · b[j][k] for one or two panels
// of each operand. A panel is sixteen rows of a matrix, `steps` · kTileDepth deep, as bfloat16: of
// A [steps][16][32], of B in pairs [steps · 16][16][2]; a second panel lies `pitch` numbers behind
// the first. An operand's numbers may be sums `high` + `low`; the product of two low parts is left
// out unless `low_low`.
struct TileStrips {
  const uint16_t *a_high, *a_low;  // low null: the numbers are `high` alone
  const uint16_t *b_high, *b_low;
  int64_t a_pitch, b_pitch;
  int64_t steps;
  int row_panels, col_panels;  // 1 or 2; for multiply_short any number of row panels
  const float* add;            // what c starts with, or null: zeros; may be c
  int64_t add_stride;
  float* c;  // [16 · row_panels][16 · col_panels], rows c_stride apart
  int64_t c_stride;
  bool low_low;
  int64_t rows = 2 * kTileRows;  // of c that are asked for; the others may be left as they are
  // For multiply_row: so many pairs of panels of B, and their columns of c, so far apart.
  int64_t strips = 1, b_strip = 0, c_strip = 0;
};

// Of a depth whose two panels of B stay in tiles.
inline constexpr int64_t kShortSteps = 2;

// What computes with tiles. A thread calls `enter` before its first `multiply` and `leave` after
// the last, at the latest when its share of a parallel section ends: tiles that are in use make
// every switch of threads save 8 KiB.
struct TileUnit {
  void (*enter)();
  void (*leave)();
  void (*multiply)(const TileStrips& strips);
  // The same for any number of row panels of A, of one part, two panels of B that are at most
  // kShortSteps deep, and add = null; null: not known.
  void (*multiply_short)(const TileStrips& strips) = nullptr;
  // The same for two panels of A and any number of pairs of panels of B, add = null, both operands
  // or none with low parts; null: not known. What is left of a call is hidden behind the next
  // pair's products, and A stays in L1, B passes by.
  void (*multiply_row)(const TileStrips& strips) = nullptr;
  int64_t strip_depth = 512;  // so deep that two panels of B, of one part, stay in L1
  int64_t depth_multiple = kTileDepth, extra_depth = 0;

  // Columns that a panel of `depth` columns takes the room of, sixteen numbers of two bytes each.
  int64_t panel_depth(int64_t depth) const { return round_up(depth, depth_multiple) + extra_depth; }
};

// The CPU's, defined in amx_tile.cc; null in a build for another architecture.
const TileUnit* native_tile_unit();

// What decides whether tiles are used.
struct TileSupport {
  uint32_t features;        // CPUID leaf 7, subleaf 0, EDX
  uint64_t enabled_states;  // XCR0; 0 if XGETBV is absent
  bool (*permit)();         // asks the kernel for the process's permission; asked last
  const TileUnit* unit;
};

// True if CPU and operating system have all of it and a small product is right.
bool tiles_work(const TileSupport& support);

// tiles_work for this CPU and process; found out once. AVX-512 is not looked at.
bool has_native_tiles();

// The unit that products of the calling thread may use, or null: this CPU's if the SIMD target
// "amx" is in use (simd.h), none under an ExactProductsScope (matmul.h).
const TileUnit* tile_unit();

// The unit for products of numbers that are bfloat16 by themselves: tile_unit(), or vectors where
// their dot products are faster than multiply-adds of float32 (fast_bf16_dot), or null.
const TileUnit* bf16_unit();

// The unit for products of fixed-point numbers (fixed_tiles.h), whose panels are its own: this
// CPU's if uses_int8_tiles() and the calling thread is under no ExactProductsScope, or null.
const TileUnit* fixed_unit();

// Whether products of int8 may be computed on tiles: the SIMD target "amx" is in use and the CPU
// has AMX-INT8. Their sums are exact. Does not allocate.
bool uses_int8_tiles();

// For tests: what tile_unit and bf16_unit give whatever the SIMD target is, and fixed_unit null;
// null: as before. Not thread-safe.
void force_tile_unit(const TileUnit* unit);

}  // namespace lumen::kernels
