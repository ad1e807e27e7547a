// Rotary position embedding (Su et al. 2021).
#pragma once

#include <cstdint>

#include "lib/base/pool.h"
#include "lib/tensor/dtype.h"

namespace lumen::kernels {

// cos_sin[t][i] = (cos, sin)(position_t · inv_freq[i]) · attention_factor for `tokens` positions
// start, start+1, …; cos at [t][0][i], sin at [t][1][i]. Angles are reduced in double, so errors
// stay below 1e-6 at any position.
void rope_table(int64_t start, int64_t tokens, const float* inv_freq, int64_t half_dim,
                float attention_factor, float* cos_sin);

// Rotates the first 2·half_dim of each head_dim row of x [batch, tokens, heads, head_dim] (element
// strides given, rows contiguous) and writes y contiguous; the rest is copied. y may be x only if
// x is contiguous. Half-split (GPT-NeoX, Hugging Face): pairs (i, i + half_dim). Interleaved
// (original Llama, GGUF "llama"): pairs (2i, 2i + 1). Inverse: by the negative angles (the
// gradient).
struct RopeArgs {
  int64_t batch, tokens, heads, head_dim, half_dim;
  const float* x;
  int64_t batch_stride, token_stride, head_stride;
  const float* cos_sin;  // [tokens, 2, half_dim]
  bool interleaved;
  float* y;
  bool inverse = false;
  int64_t cos_sin_batch_stride = 0;  // elements from one batch row's table to the next; 0: one
  // kBF16: x, or y, points at such numbers; not interleaved then, and y is not x.
  DType x_type = DType::kF32, y_type = DType::kF32;
};
void rope(ThreadPool& pool, const RopeArgs& args);

}  // namespace lumen::kernels
