// Naive loops in double precision: the oracle that kernels are tested against.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "lib/kernels/convert.h"
#include "lib/kernels/matmul.h"

namespace lumen::kernels::reference {

// Activations as products with quantised weights see them: rounded to int8 per 32 columns.
inline std::vector<float> round_activations(const float* x, int64_t cols) {
  std::vector<float> rounded(x, x + cols);
  for (int64_t k = 0; k < cols; k += 32) {
    float max_abs = 0;
    for (int64_t i = k; i < k + 32; ++i) max_abs = std::max(max_abs, std::fabs(x[i]));
    const float inverse = max_abs > 0 ? 127.0f / max_abs : 0.0f;
    for (int64_t i = k; i < k + 32; ++i) {
      rounded[i] = std::nearbyintf(x[i] * inverse) * (max_abs / 127.0f);
    }
  }
  return rounded;
}

// Appends Σ_k x[k] · w[j][k] for every row j of w.
inline void linear_row(const float* x, const Weight& w, std::vector<double>& y) {
  std::vector<float> row(w.cols);
  const std::vector<float> activations =
      is_quantized(w.dtype) ? round_activations(x, w.cols) : std::vector<float>(x, x + w.cols);
  for (int64_t j = 0; j < w.rows; ++j) {
    to_float(w.dtype, static_cast<const std::byte*>(w.data) + j * row_bytes(w.dtype, w.cols),
             row.data(), w.cols);
    double sum = 0;
    for (int64_t k = 0; k < w.cols; ++k) sum += static_cast<double>(activations[k]) * row[k];
    y.push_back(sum);
  }
}

// a · b, row-major m × n.
inline std::vector<double> gemm(const GemmArgs& args) {
  std::vector<double> c;
  for (int64_t i = 0; i < args.m; ++i) {
    for (int64_t j = 0; j < args.n; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < args.k; ++k) {
        sum += static_cast<double>(args.a[i * args.a_row_stride + k * args.a_col_stride]) *
               args.b[k * args.b_row_stride + j * args.b_col_stride];
      }
      c.push_back(sum);
    }
  }
  return c;
}

}  // namespace lumen::kernels::reference
