#include "lib/kernels/weights/int8_product.h"

#include <algorithm>

#include "lib/kernels/simd.h"
#include "lib/kernels/weights/code_panel.h"
#include "lib/kernels/weights/code_product-inl.h"
#include "lib/kernels/weights/int8_tile.h"
#include "lib/kernels/weights/quantize_rows.h"
#include "lib/kernels/weights/split_tile.h"

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

// Of eight bits, magnitudes and signs: half as deep, as there are twice as many bytes.
struct SplitCodes {
  using Panel = SplitPanel;
  using Strip = CodeStrip;
  static constexpr int64_t kBlockDepth = 256;
  static constexpr int64_t kStripBytes = Int8Codes::kStripBytes;
  static constexpr int64_t kCodeBytes = kPanelRows * kBlockDepth;
  static constexpr int64_t kScales = kPanelRows * kBlockDepth / 32;
  static constexpr int64_t kPanelBytes = 2 * kCodeBytes + 2 * kScales * int64_t{sizeof(float)};

  Int8Codes bytes;

  int strip_rows() const { return kSplitStripRows; }
  Strip strip(std::byte* memory, int64_t total, int64_t at, int64_t rows) const {
    return bytes.strip(memory, total, at, rows);
  }
  Panel panel(std::byte* memory) const {
    auto* codes = reinterpret_cast<uint8_t*>(memory);
    auto* floats = reinterpret_cast<float*>(memory + 2 * kCodeBytes);
    return {.codes = codes,
            .signs = codes + kCodeBytes,
            .scale = floats,
            .owed = reinterpret_cast<int32_t*>(floats + kScales)};
  }
  void quantize(const float* x, int64_t x_stride, int64_t blocks, const Strip& to) const {
    bytes.quantize(x, x_stride, blocks, to);
  }
  void expand(const Weight& w, int64_t row, int64_t rows, int64_t k, int64_t cols,
              const Panel& to) const {
    if (w.dtype == DType::kQ8_0 && w.layout == Layout::kPanels && rows > 0) {
      const auto* panel = static_cast<const std::byte*>(w.data) + row * row_bytes(w.dtype, w.cols);
      return split_q8_0(panel + kPanelRows * row_bytes(w.dtype, k), cols / 32, to);
    }
    expand_codes(w, row, rows, k, cols, 0, {.codes = to.codes, .scale = to.scale, .min = nullptr});
    split_codes(cols / 32, to);
  }
  auto multiplier(const Weight&) const { return multiply_split; }
};

}  // namespace

bool takes_split_product(const Weight& w) {
  return is_quantized(w.dtype) && code_form(w.dtype).bits == 8 && fast_word_pairs() &&
         !uses_native_dot();
}

size_t int8_product_bytes(int64_t m, int64_t cols, int threads) {
  return std::max(code_product_bytes<Int8Codes>(m, cols, threads),
                  code_product_bytes<SplitCodes>(m, cols, threads));
}

void int8_product(ThreadPool& pool, const LinearArgs& args, std::span<const Weight> weights,
                  int64_t column) {
  code_product(pool, args, weights, column, Int8Codes());
}

void split_product(ThreadPool& pool, const LinearArgs& args, std::span<const Weight> weights,
                   int64_t column) {
  code_product(pool, args, weights, column, SplitCodes());
}

}  // namespace lumen::kernels
