#include "lib/kernels/weights/int8_product.h"

#include "lib/kernels/weights/code_panel.h"
#include "lib/kernels/weights/code_product-inl.h"
#include "lib/kernels/weights/int8_tile.h"
#include "lib/kernels/weights/quantize_rows.h"

namespace lumen::kernels {
namespace {

struct Int8Codes {
  using Panel = CodePanel;
  using Strip = CodeStrip;
  static constexpr int64_t kBlockDepth = 512;
  static constexpr int64_t kStripBytes = kStripBlockBytes + kStripHalfBytes;
  // Codes, and scales and mins per 16 columns.
  static constexpr int64_t kCodeBytes = kPanelRows * kBlockDepth;
  static constexpr int64_t kScales = kPanelRows * kBlockDepth / 16;
  static constexpr int64_t kPanelBytes = kCodeBytes + 2 * kScales * int64_t{sizeof(float)};

  Int8Tile tile = int8_tile();

  int strip_rows() const { return tile.strip_rows; }
  Strip strip(std::byte* memory, int64_t total, int64_t at, int64_t rows) const {
    return {.blocks = memory + at * kStripBlockBytes,
            .halves = memory + total * kStripBlockBytes + at * kStripHalfBytes,
            .rows = rows};
  }
  Panel panel(std::byte* memory) const {
    auto* floats = reinterpret_cast<float*>(memory + kCodeBytes);
    return {.codes = reinterpret_cast<uint8_t*>(memory), .scale = floats, .min = floats + kScales};
  }
  void quantize(const float* x, int64_t x_stride, int64_t blocks, const Strip& to) const {
    quantize_strip(x, x_stride, to.rows, blocks, to);
  }
  void expand(const Weight& w, int64_t row, int64_t rows, int64_t k, int64_t cols,
              const Panel& to) const {
    expand_codes(w, row, rows, k, cols, added_to_codes(tile, code_form(w.dtype)), to);
  }
  CodeMultiplier multiplier(const Weight& w) const { return code_multiplier(code_form(w.dtype)); }
};

}  // namespace

size_t int8_product_bytes(int64_t m, int64_t cols, int threads) {
  return code_product_bytes<Int8Codes>(m, cols, threads);
}

void int8_product(ThreadPool& pool, const LinearArgs& args, std::span<const Weight> weights,
                  int64_t column) {
  code_product(pool, args, weights, column, Int8Codes());
}

}  // namespace lumen::kernels
