// The loops of a product whose operands are both codes with a scale per 32 columns: shared by
// int8_product.cc and int16_product.cc. Sizes are derived in ../README.md.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/base/pool.h"
#include "lib/base/round_up.h"
#include "lib/kernels/matmul.h"
#include "lib/kernels/panels.h"

namespace lumen::kernels {

// `Codes` says what the codes are:
//
//   Panel, Strip           sixteen rows of weights and some rows of x
//   kBlockDepth            columns of two panels that stay in L1 while the strips of x pass by
//   kStripBytes            of a row of x per 32 columns
//   kPanelBytes            of a panel kBlockDepth deep
//   strip_rows()           of x in a strip, at most, and best
//   strip(memory, total, at, rows)   the strip of `rows` rows that begins `at` of `total` blocks
//                                    into the memory of them all
//   panel(memory)
//   quantize(x, x_stride, blocks, strip), expand(weight, row, rows, k, cols, panel)
//   multiplier(weight)     multiplies (panels, strip, blocks, add, y, y_stride, cols)
//
// One pass: at most kMostRows rows of x, whose strips stay in L2 with kBlockTiles tiles' columns of
// y.
template <class Codes>
struct CodePass {
  static constexpr int64_t kMostRows = 516, kBlockTiles = 4;
  static constexpr int64_t kTileCols = 2 * kPanelRows;

  // Up to 32 rows of one weight.
  struct Tile {
    const Weight* weight;
    int64_t row, rows;
    int64_t column;  // of y
  };

  const LinearArgs& args;
  std::span<const Weight> weights;
  int64_t first_column;
  Codes codes;
  int64_t row, rows;
  // The first `longer_strips` have one row more; kept because divisions are slow.
  int64_t strip_height = rows / strips(), longer_strips = rows % strips();

  int64_t blocks() const { return weights.front().cols / 32; }

  // Strips as even as they can be: 7 rows are 4 and 3, because short strips are slow.
  int64_t strips() const { return divide_up(rows, codes.strip_rows()); }
  int64_t strip_begin(int64_t strip) const {
    return strip * strip_height + std::min(strip, longer_strips);
  }

  // Blocks [block, block + count) of a strip. Those of kBlockDepth columns of all strips follow one
  // another.
  typename Codes::Strip strip_at(int64_t strip, int64_t block, int64_t count) const {
    const int64_t begin = strip_begin(strip), end = strip_begin(strip + 1);
    return codes.strip(args.workspace, rows * blocks(), rows * block + begin * count, end - begin);
  }

  void quantize(int64_t strip) const {
    const float* x = args.x + (row + strip_begin(strip)) * args.x_stride;
    for_each_depth([&](int64_t block, int64_t count) {
      codes.quantize(x + 32 * block, args.x_stride, count, strip_at(strip, block, count));
    });
  }

  // body(block, count) for every kBlockDepth columns; once if there are none.
  template <class Body>
  void for_each_depth(const Body& body) const {
    int64_t block = 0;
    do {
      const int64_t count = std::min(Codes::kBlockDepth / 32, blocks() - block);
      body(block, count);
      block += count;
    } while (block < blocks());
  }

  static int64_t tiles_of(const Weight& w) { return divide_up(w.rows, kTileCols); }

  Tile tile_at(int64_t index) const {
    int64_t column = first_column;
    for (const Weight& w : weights) {
      if (index < tiles_of(w)) {
        const int64_t from = index * kTileCols;
        return {&w, from, std::min(kTileCols, w.rows - from), column + from};
      }
      index -= tiles_of(w);
      column += w.rows;
    }
    LUMEN_CHECK(!"a tile");
  }

  // Columns of `tiles` consecutive tiles from `index` on, for strips [begin, end).
  void multiply(int64_t index, int64_t tiles, int64_t begin, int64_t end, int thread) const {
    const Tile first = tile_at(index), last = tile_at(index + tiles - 1);
    for_each_depth([&](int64_t block, int64_t count) {
      for (int64_t i = index; i < index + tiles; ++i) {
        const bool more = i + 1 < index + tiles;
        const StoredColumns next = more ? stored(tile_at(i + 1), block, count)
                                        : stored(first, block + count, blocks() - block - count);
        multiply(tile_at(i), block, count, begin, end, thread, next);
      }
    });
    if (args.epilogue == nullptr) return;
    for (int64_t i = strip_begin(begin); i < strip_begin(end); ++i) {
      (*args.epilogue)(row + i, first.column, last.column + last.rows,
                       args.y + (row + i) * args.y_stride + first.column);
    }
  }

  // Where a tile in panels lies in memory: there, and as much of the next panel.
  StoredColumns stored(const Tile& tile, int64_t block, int64_t count) const {
    if (count <= 0) return {};
    const int64_t depth = std::min(count, Codes::kBlockDepth / 32);
    return stored_columns(*tile.weight, tile.row / kPanelRows, 32 * block, 32 * depth);
  }

  // Meanwhile the weights of the next tile are fetched, a part with every strip: they are far from
  // this one's, where the processor does not foresee them.
  void multiply(const Tile& tile, int64_t block, int64_t count, int64_t begin, int64_t end,
                int thread, const StoredColumns& next) const {
    typename Codes::Panel panels[2];
    for (int p = 0; p < 2; ++p) {
      panels[p] = codes.panel(panel_memory(thread, p));
      const int64_t from = p * kPanelRows;
      const int64_t panel_rows = std::clamp<int64_t>(tile.rows - from, 0, kPanelRows);
      codes.expand(*tile.weight, tile.row + from, panel_rows, 32 * block, 32 * count, panels[p]);
    }
    const auto multiply_strip = codes.multiplier(*tile.weight);
    for (int64_t strip = begin; strip < end; ++strip) {
      fetch_columns(next, strip - begin, end - begin);
      float* y = args.y + (row + strip_begin(strip)) * args.y_stride + tile.column;
      multiply_strip(panels, strip_at(strip, block, count), count, block > 0, y, args.y_stride,
                     tile.rows);
    }
  }

  static int64_t strips_bytes(int64_t rows, int64_t blocks) {
    return round_up(rows * blocks * Codes::kStripBytes, 64);
  }

  std::byte* panel_memory(int thread, int panel) const {
    return args.workspace + strips_bytes(rows, blocks()) +
           (2 * thread + panel) * Codes::kPanelBytes;
  }

  void run(ThreadPool& pool) const {
    int64_t tiles = 0;
    for (const Weight& w : weights) tiles += tiles_of(w);
    pool.parallel_for(strips(), 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t strip = begin; strip < end; ++strip) quantize(strip);
    });
    // Columns are divided among the threads, or rows where there are few columns.
    if (tiles >= pool.threads() || tiles >= strips()) {
      pool.parallel_pieces(tiles, 1, kBlockTiles, [&](int64_t begin, int64_t end, int thread) {
        multiply(begin, end - begin, 0, strips(), thread);
      });
    } else {
      pool.parallel_for(strips(), 1, [&](int64_t begin, int64_t end, int thread) {
        for (int64_t i = 0; i < tiles; i += kBlockTiles) {
          multiply(i, std::min(kBlockTiles, tiles - i), begin, end, thread);
        }
      });
    }
  }
};

// Bytes of workspace for rows of `cols` columns; never decreases with m.
template <class Codes>
size_t code_product_bytes(int64_t m, int64_t cols, int threads) {
  using Pass = CodePass<Codes>;
  return static_cast<size_t>(Pass::strips_bytes(std::min(m, Pass::kMostRows), cols / 32) +
                             threads * 2 * Codes::kPanelBytes);
}

// The part of linear(pool, args) that `weights` make.
template <class Codes>
void code_product(ThreadPool& pool, const LinearArgs& args, std::span<const Weight> weights,
                  int64_t column, const Codes& codes) {
  using Pass = CodePass<Codes>;
  for (int64_t row = 0; row < args.m; row += Pass::kMostRows) {
    const Pass pass{.args = args,
                    .weights = weights,
                    .first_column = column,
                    .codes = codes,
                    .row = row,
                    .rows = std::min(Pass::kMostRows, args.m - row)};
    pass.run(pool);
  }
}

}  // namespace lumen::kernels
