#include "lib/kernels/int8_product.h"

#include <algorithm>

#include "lib/kernels/code_panel.h"
#include "lib/kernels/int8_tile.h"
#include "lib/kernels/quantize_rows.h"

namespace lumen::kernels {
namespace {

// Sizes are derived in README.md. The panels of one tile, kBlockDepth deep, stay in L1 while the
// strips of x pass by, which stay in L2 with kBlockTiles tiles' columns of y.
constexpr int64_t kBlockDepth = 512;
constexpr int64_t kBlockTiles = 4;
constexpr int64_t kMaxRows = 516;

// The two panels of a tile: codes, scales and mins.
constexpr int64_t kPanelCodes = kPanelRows * kBlockDepth;
constexpr int64_t kPanelScales = kPanelRows * kBlockDepth / 16;
constexpr int64_t kThreadBytes = 2 * (kPanelCodes + 2 * kPanelScales * int64_t{sizeof(float)});

constexpr int64_t kRowBytes = kStripBlockBytes + kStripHalfBytes;  // per 32 columns

int64_t tiles_of(const Weight& w) {
  return (w.rows + kInt8TileCols - 1) / kInt8TileCols;
}

// Up to 32 rows of one weight.
struct Tile {
  const Weight* weight;
  int64_t row, rows;
  int64_t column;  // of y
};

// One pass: at most kMaxRows rows of x.
struct Pass {
  const LinearArgs& args;
  std::span<const Weight> weights;
  int64_t first_column;
  Int8Tile shape;
  int64_t row, rows;
  // The first `longer_strips` have one row more; kept because divisions are slow.
  int64_t strip_height = rows / strips(), longer_strips = rows % strips();

  int64_t blocks() const { return weights.front().cols / 32; }

  // Strips as even as they can be: 7 rows are 4 and 3, because short strips are slow.
  int64_t strips() const { return (rows + shape.strip_rows - 1) / shape.strip_rows; }
  int64_t strip_begin(int64_t strip) const {
    return strip * strip_height + std::min(strip, longer_strips);
  }

  // Blocks [block, block + count) of a strip. Those of kBlockDepth columns of all strips follow one
  // another.
  CodeStrip strip_at(int64_t strip, int64_t block, int64_t count) const {
    const int64_t begin = strip_begin(strip), end = strip_begin(strip + 1);
    const int64_t at = rows * block + begin * count;
    std::byte* strips = args.workspace;
    std::byte* halves = strips + rows * blocks() * kStripBlockBytes;
    return {.blocks = strips + at * kStripBlockBytes,
            .halves = halves + at * kStripHalfBytes,
            .rows = end - begin};
  }

  void quantize(int64_t strip) const {
    const float* x = args.x + (row + strip_begin(strip)) * args.x_stride;
    for_each_depth([&](int64_t block, int64_t count) {
      quantize_strip(x + 32 * block, args.x_stride, count, strip_at(strip, block, count));
    });
  }

  // body(block, count) for every kBlockDepth columns; once if there are none.
  template <class Body>
  void for_each_depth(const Body& body) const {
    int64_t block = 0;
    do {
      const int64_t count = std::min(kBlockDepth / 32, blocks() - block);
      body(block, count);
      block += count;
    } while (block < blocks());
  }

  Tile tile_at(int64_t index) const {
    int64_t column = first_column;
    for (const Weight& w : weights) {
      if (index < tiles_of(w)) {
        const int64_t from = index * kInt8TileCols;
        return {&w, from, std::min(kInt8TileCols, w.rows - from), column + from};
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
        multiply(tile_at(i), block, count, begin, end, thread);
      }
    });
    if (args.epilogue == nullptr) return;
    for (int64_t i = strip_begin(begin); i < strip_begin(end); ++i) {
      (*args.epilogue)(row + i, first.column, last.column + last.rows);
    }
  }

  void multiply(const Tile& tile, int64_t block, int64_t count, int64_t begin, int64_t end,
                int thread) const {
    const CodeForm form = code_form(tile.weight->dtype);
    CodePanel panels[2];
    for (int p = 0; p < 2; ++p) {
      panels[p] = panel_of(thread, p);
      const int64_t from = p * kPanelRows;
      const int64_t panel_rows = std::clamp<int64_t>(tile.rows - from, 0, kPanelRows);
      expand_codes(*tile.weight, tile.row + from, panel_rows, 32 * block, 32 * count,
                   added_to_codes(shape, form), panels[p]);
    }
    for (int64_t strip = begin; strip < end; ++strip) {
      float* y = args.y + (row + strip_begin(strip)) * args.y_stride + tile.column;
      multiply_codes(form, panels, strip_at(strip, block, count), count, block > 0, y,
                     args.y_stride, tile.rows);
    }
  }

  CodePanel panel_of(int thread, int panel) const {
    const int64_t strips = (rows * blocks() * kRowBytes + 63) / 64 * 64;
    std::byte* memory = args.workspace + strips + thread * kThreadBytes + panel * kThreadBytes / 2;
    auto* floats = reinterpret_cast<float*>(memory + kPanelCodes);
    return {
        .codes = reinterpret_cast<uint8_t*>(memory), .scale = floats, .min = floats + kPanelScales};
  }

  void run(ThreadPool& pool) const {
    int64_t tiles = 0;
    for (const Weight& w : weights) tiles += tiles_of(w);
    pool.parallel_for(strips(), 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t strip = begin; strip < end; ++strip) quantize(strip);
    });
    // Columns are divided among the threads, or rows where there are few columns.
    const auto blocks_of = [&](int64_t begin, int64_t end, int64_t strip, int64_t last,
                               int thread) {
      for (int64_t i = begin; i < end; i += kBlockTiles) {
        multiply(i, std::min(kBlockTiles, end - i), strip, last, thread);
      }
    };
    if (tiles >= pool.threads() || tiles >= strips()) {
      pool.parallel_for(tiles, 1, [&](int64_t begin, int64_t end, int thread) {
        blocks_of(begin, end, 0, strips(), thread);
      });
    } else {
      pool.parallel_for(strips(), 1, [&](int64_t begin, int64_t end, int thread) {
        blocks_of(0, tiles, begin, end, thread);
      });
    }
  }
};

}  // namespace

size_t int8_product_bytes(int64_t m, int64_t cols, int threads) {
  const int64_t strips = (std::min(m, kMaxRows) * (cols / 32) * kRowBytes + 63) / 64 * 64;
  return static_cast<size_t>(strips + threads * kThreadBytes);
}

void int8_product(ThreadPool& pool, const LinearArgs& args, std::span<const Weight> weights,
                  int64_t column) {
  for (int64_t row = 0; row < args.m; row += kMaxRows) {
    const Pass pass{.args = args,
                    .weights = weights,
                    .first_column = column,
                    .shape = int8_tile(),
                    .row = row,
                    .rows = std::min(kMaxRows, args.m - row)};
    pass.run(pool);
  }
}

}  // namespace lumen::kernels
