// Products of activations with weights in panels (panels.h): each weight is read once from memory
// for as many rows of x as stay in cache. And what products with many rows take apart.
#pragma once

#include <cstdint>

#include "lib/kernels/matmul.h"
#include "lib/kernels/weights/code_panel.h"
#include "lib/kernels/weights/quantize_rows.h"

namespace lumen::kernels {

// y[r][j − begin] = Σ_k x[r][k] · w[j][k] for weight rows j in [begin, end) and r in [0, m). Rows
// of y are y_stride floats apart. Every sum has the same bits whatever m, begin and end are.
// Single-threaded, noexcept.

// The strips in which dot_panels_quantized, and dot_panels_portable, takes rows of x, laid out in
// `memory` (strip_rows_bytes(m, cols), 64-byte aligned); quantize_strip_rows fills them.
StripRows panel_strips(std::byte* memory, int64_t m, int64_t cols);
StripRows portable_panel_strips(std::byte* memory, int64_t m, int64_t cols);

// Quantised weights; r in [0, x.m), x in the strips of the function's own. One float32 chain per
// row of x and row of w over the sub-blocks s of 32 (q6_k: 16) columns in order, rounded where a
// function ends:
//
//   acc = fma(float(Σ_k (code − offset) · xcode), mul(xscale[s], scale[s]), acc)
//   acc = fma(xsum[s], min[s], acc)                                    if the format has mins
//
// Targets without fused multiply-add round its product as well. Takes the native kernel
// (panel_dot_native.h) where the SIMD target in use has one, else the portable one: the same bits.
void dot_panels_quantized(const Weight& w, int64_t begin, int64_t end, const StripRows& x, float* y,
                          int64_t y_stride);
void dot_panels_portable(const Weight& w, int64_t begin, int64_t end, const StripRows& x, float* y,
                         int64_t y_stride);

// Float weights (f32 f16 bf16), float32 accumulation; rows of x are x_stride floats apart.
void dot_panels_float(const Weight& w, int64_t begin, int64_t end, const float* x, int64_t x_stride,
                      int64_t m, float* y, int64_t y_stride);

// What expand_codes (code_panel.h) does, for panel `index` of a quantised matrix in panels.
// noexcept.
void expand_panel(const Weight& w, int64_t index, int64_t k, int64_t cols, int added,
                  const CodePanel& to);

}  // namespace lumen::kernels
