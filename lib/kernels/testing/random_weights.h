// For tests of products: random matrices in every stored format, in rows and panels, a run of a
// product of codes, and how results are compared.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "lib/base/pool.h"
#include "lib/base/random.h"
#include "lib/base/testing.h"
#include "lib/kernels/convert.h"
#include "lib/kernels/panels.h"
#include "lib/kernels/reference.h"
#include "lib/kernels/short_panels.h"
#include "lib/kernels/testing/random_floats.h"
#include "lib/kernels/weights/quantize_rows.h"
#include "lib/tensor/dtype.h"

namespace lumen::kernels {

inline constexpr DType kWeightTypes[] = {
    DType::kF32,  DType::kF16,    DType::kBF16,   DType::kQ8_0,  DType::kQ4_0, DType::kQ4_1,
    DType::kQ5_0, DType::kQ5_1,   DType::kQ2_K,   DType::kQ3_K,  DType::kQ4_K, DType::kQ5_K,
    DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4,
};

// Where the f16 scales of a block are; the rest may be any bits.
inline std::vector<int> scale_places(DType dtype) {
  switch (dtype) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ2_K:
      return {80, 82};
    case DType::kQ3_K:
      return {108};
    case DType::kQ6_K:
      return {208};
    default:
      return {0};
  }
}

// The exponent of MXFP4 for a scale: that of the largest power of two that is no larger.
inline std::byte mxfp4_exponent(float scale) {
  if (!std::isfinite(scale)) return std::byte{255};
  return static_cast<std::byte>(scale > 0 ? std::ilogb(scale) + 127 : 0);
}

// Sets every scale of stored blocks to a value of next(), or near it.
template <class Next>
void set_scales(DType dtype, std::vector<std::byte>& bytes, const Next& next) {
  for (size_t at = 0; at < bytes.size(); at += info(dtype).block_bytes) {
    if (dtype == DType::kMXFP4) {
      bytes[at] = mxfp4_exponent(next());
      continue;
    }
    for (int place : scale_places(dtype)) {
      const f16 scale = to_f16(next());
      std::memcpy(bytes.data() + at + place, &scale, 2);
    }
  }
}

// Stored rows with random codes and scales near 0.01.
inline std::vector<std::byte> random_weights(Philox& random, DType dtype, int64_t rows,
                                             int64_t cols) {
  std::vector<std::byte> bytes(row_bytes(dtype, cols) * rows);
  if (!is_quantized(dtype)) {
    const auto values = random_floats(random, rows * cols);
    from_float(dtype, values.data(), bytes.data(), rows * cols);
    return bytes;
  }
  for (std::byte& b : bytes) b = static_cast<std::byte>(random.next_u32());
  set_scales(dtype, bytes, [&] { return static_cast<float>(0.005 + 0.01 * random.uniform()); });
  return bytes;
}

// The panels of `w`.
inline std::vector<std::byte> pack(const Weight& w) {
  const int64_t bytes = matrix_bytes(Layout::kPanels, w.dtype, kPanelRows, w.cols);
  std::vector<std::byte> panels(matrix_bytes(Layout::kPanels, w.dtype, w.rows, w.cols));
  for (int64_t i = 0; i * kPanelRows < w.rows; ++i) pack_panel(w, i, panels.data() + i * bytes);
  return panels;
}

// The short panels of `w`; none if its numbers do not fit.
inline std::vector<std::byte> pack_short(const Weight& w) {
  std::vector<std::byte> panels(matrix_bytes(Layout::kShortPanels, w.dtype, w.rows, w.cols));
  for (int64_t i = 0; i * kPanelRows < w.rows; ++i) {
    if (!pack_short_panel(w, i, panels.data())) return {};
  }
  return panels;
}

inline Weight in_short_panels(const Weight& w, const std::vector<std::byte>& panels) {
  return {panels.data(), w.dtype, w.rows, w.cols, Layout::kShortPanels};
}

inline Weight in_panels(const Weight& w, const std::vector<std::byte>& panels) {
  return {panels.data(), w.dtype, w.rows, w.cols, Layout::kPanels};
}

inline std::byte* align_64(std::vector<std::byte>& memory) {
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  return memory.data() + (64 - address % 64) % 64;
}

// ‖a − b‖ / ‖b‖.
inline double relative_error(const std::vector<float>& a, const std::vector<double>& b) {
  double difference = 0, norm = 1e-30;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Quantised rows of x [m, cols] in `memory`.
inline QuantizedRows quantize(const std::vector<float>& x, int64_t m, int64_t cols,
                              std::vector<std::byte>& memory) {
  memory.resize(quantized_rows_bytes(m, cols) + 64);
  const QuantizedRows rows = place_quantized_rows(align_64(memory), m, cols);
  for (int64_t r = 0; r < m; ++r) quantize_row(x.data() + r * cols, r, rows);
  return rows;
}

// The same in the strips that `place` lays out: panel_strips (panel_dot.h) or one like it.
inline StripRows quantize_strips(StripRows (*place)(std::byte*, int64_t, int64_t),
                                 const std::vector<float>& x, int64_t m, int64_t cols,
                                 std::vector<std::byte>& memory) {
  memory.assign(strip_rows_bytes(m, cols) + 64, std::byte{0xFF});
  const StripRows rows = place(align_64(memory), m, cols);
  quantize_strip_rows(x.data(), cols, 0, cols / 32 / 2, rows);
  quantize_strip_rows(x.data(), cols, cols / 32 / 2, cols / 32, rows);
  return rows;
}

// int8_product.h or int16_product.h.
struct CodeProduct {
  size_t (*bytes)(int64_t m, int64_t cols, int threads);
  void (*run)(ThreadPool& pool, const LinearArgs& args, std::span<const Weight> weights,
              int64_t column);
};

// y [m, Σ rows] of x [m, cols] with `weights`; checks that nothing is written behind its rows.
inline std::vector<float> run_product(const CodeProduct& product, int threads,
                                      const std::vector<float>& x, int64_t m,
                                      const std::vector<Weight>& weights) {
  ThreadPool pool(threads);
  const int64_t cols = weights.front().cols;
  int64_t n = 0;
  for (const Weight& w : weights) n += w.rows;
  constexpr float kUntouched = -12345.0f;
  const int64_t y_stride = n + 3;
  std::vector<float> y(m * y_stride, kUntouched);
  std::vector<std::byte> memory(product.bytes(m, cols, threads) + 64);
  const LinearArgs args{.x = x.data(),
                        .x_stride = cols,
                        .m = m,
                        .weights = weights,
                        .y = y.data(),
                        .y_stride = y_stride,
                        .workspace = align_64(memory)};
  product.run(pool, args, weights, 0);
  std::vector<float> result;
  int64_t untouched = 0;
  for (int64_t i = 0; i < m; ++i) {
    const auto row = y.begin() + i * y_stride;
    result.insert(result.end(), row, row + n);
    untouched += std::count(row + n, row + y_stride, kUntouched);
  }
  CHECK(untouched == 3 * m);
  return result;
}

// [m, Σ rows] by the naive loop, of x with rows x_stride floats apart; `weights` are in rows.
inline std::vector<double> expected_linear(const float* x, int64_t x_stride, int64_t m,
                                           const std::vector<Weight>& weights) {
  std::vector<double> expected;
  std::vector<std::vector<double>> parts;
  for (const Weight& w : weights) parts.push_back(reference::linear(x, x_stride, m, w));
  for (int64_t i = 0; i < m; ++i) {
    for (size_t p = 0; p < parts.size(); ++p) {
      const auto row = parts[p].begin() + i * weights[p].rows;
      expected.insert(expected.end(), row, row + weights[p].rows);
    }
  }
  return expected;
}

}  // namespace lumen::kernels
