#include "lib/kernels/weights/int16_product.h"

#include "lib/kernels/panels.h"
#include "lib/kernels/simd.h"
#include "lib/kernels/weights/code_product-inl.h"
#include "lib/kernels/weights/int16_tile.h"
#include "lib/kernels/weights/quantize_rows.h"

namespace lumen::kernels {
namespace {

struct Int16Codes {
  using Panel = Int16Panel;
  using Strip = Int16Strip;
  static constexpr int64_t kBlockDepth = 256;
  static_assert(kBlockDepth % kInt16Group == 0);
  static constexpr int64_t kStripBytes = kInt16StripBytes;
  static constexpr int64_t kCodeBytes = kPanelRows * kBlockDepth * int64_t{sizeof(int16_t)};
  static constexpr int64_t kPanelBytes =
      kCodeBytes + kPanelRows * kBlockDepth / 32 * int64_t{sizeof(float)};

  int strip_rows() const { return kInt16StripRows; }
  Strip strip(std::byte* memory, int64_t, int64_t at, int64_t rows) const {
    return {.blocks = memory + at * kInt16StripBytes, .rows = rows, .group = kInt16Group / 32};
  }
  Panel panel(std::byte* memory) const {
    return {.codes = reinterpret_cast<int16_t*>(memory),
            .scale = reinterpret_cast<float*>(memory + kCodeBytes)};
  }
  auto multiplier(const Weight&) const { return multiply_int16; }
  void quantize(const float* x, int64_t x_stride, int64_t blocks, const Strip& to) const {
    quantize_int16_strip(x, x_stride, blocks, to);
  }
  void expand(const Weight& w, int64_t row, int64_t rows, int64_t k, int64_t cols,
              const Panel& to) const {
    if (w.layout == Layout::kPanels || rows == 0) return expand_int16(w, row, k, cols, to);
    alignas(64) std::byte panel[kPanelRows * kBlockDepth * sizeof(uint16_t)];
    pack_panel(w, row / kPanelRows, k, cols, panel);
    expand_int16({panel, w.dtype, kPanelRows, cols, Layout::kPanels}, 0, 0, cols, to);
  }
};

}  // namespace

bool takes_int16_product(const Weight& w) {
  return w.layout != Layout::kRows && (w.dtype == DType::kF16 || w.dtype == DType::kBF16) &&
         w.cols % 32 == 0 && (uses_vnni() || fast_word_pairs()) && !ExactProductsScope::active();
}

size_t int16_product_bytes(int64_t m, int64_t cols, int threads) {
  return code_product_bytes<Int16Codes>(m, cols, threads);
}

void int16_product(ThreadPool& pool, const LinearArgs& args, std::span<const Weight> weights,
                   int64_t column) {
  code_product(pool, args, weights, column, Int16Codes());
}

}  // namespace lumen::kernels
