// Attention for training: forward that keeps the logarithm of its sums, and backward.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/pool.h"
#include "lib/kernels/random_fill.h"

namespace lumen::kernels {

// A float32 [batch, rows, heads, head_dim] tensor in any order of the first three axes: strides in
// elements, head rows contiguous; with `bf16`, bfloat16 numbers in the place of floats.
struct HeadRows {
  const float* data;
  int64_t batch_stride, row_stride, head_stride;
  bool bf16 = false;

  int64_t offset(int64_t b, int64_t row, int64_t head) const {
    return b * batch_stride + row * row_stride + head * head_stride;
  }
};

// out[b,t,h] = Σ_p w[p] · v[b,p,h/g] over the positions p that query t sees, w = exp(c(scale ·
// q[b,t,h]·k[b,p,h/g]) − lse[b,h,t]) and lse = ln Σ_p exp(c(scale · q·k)); g = heads / kv_heads;
// c(x) = x or, with a cap, cap · tanh(x / cap), or, with a max_bias, x plus what
// linear_bias.h says. Query t stands at position start + t. Causal: p ≤ start + t; with window w >
// 0 also p > start + t − w. With segments (tokens = positions then): segments[b,p] = segments[b,t]
// too.
//
// With dropout, out[b,t,h] = Σ_p w[p] · f[p] · v[b,p,h/g], while lse stays: f is 0 with probability
// `dropout`, else 1 / (1 − dropout), namely what dropout() (random_fill.h) makes of a 1 at
// [b, h/g, c/16, p/4, p mod 4, c mod 16] of a [batch, kv_heads, ⌈tokens·g/16⌉, ⌈positions/4⌉, 4,
// 16] array, c = t·g + h mod g. It is computed where it is needed, in both passes, and never
// stored.
struct AttentionShape {
  int64_t batch, tokens, positions, heads, kv_heads, head_dim;
  int64_t start;
  bool causal;
  int64_t window;  // 0: no window
  float scale;
  float cap;           // 0: none
  float max_bias = 0;  // 0: none; not with a cap
  HeadRows q, k, v;
  const int32_t* segments;  // [batch, tokens], tokens contiguous, or null
  int64_t segment_stride;   // of batch
  double dropout;           // 0: none
  RandomKey key;            // of dropout
  bool bf16 = false;        // products may round to bfloat16, see below
};

// Whether q, k, v, dout, dq, dk and dv may be bfloat16: where `bf16` rounds what is multiplied.
bool attention_takes_bf16(const AttentionShape& shape);

// Bytes of workspace for either, 64-byte aligned, any content.
size_t attention_training_workspace_bytes(const AttentionShape& shape, int threads);

// Nothing of tokens × positions is stored (Dao et al. 2022): tiles of 128 keys. All but the
// products is float32, and so are their sums. With AMX numbers are multiplied as two bfloat16 parts
// each, with the errors of gemm (matmul.h), unless an ExactProductsScope lives. `bf16`: all that is
// multiplied, weights and gradients of scores too, is rounded to bfloat16 where that makes products
// faster (bf16_unit, amx.h); elsewhere it stays float32, so that the results of different machines
// agree to the precision of bfloat16 only. What is not finite makes results that are not, if not
// always the same ones: products of parts may make a NaN of an infinity.
//
// The result does not depend on the number of threads. A query that sees no position gives zeros
// and an lse of −inf. Positions < 2^24. None allocates. noexcept.

// out [batch, tokens, heads, head_dim] and lse [batch, heads, tokens], contiguous.
void attention_forward(ThreadPool& pool, const AttentionShape& shape, float* out, float* lse,
                       std::byte* workspace);

// The gradients dq [batch, tokens, heads, head_dim], dk and dv [batch, positions, kv_heads,
// head_dim] for those of out and of lse ([batch, heads, tokens], tokens contiguous). What a query
// does not see has no part in its gradient: exactly zero.
struct AttentionGradients {
  const float *out, *lse;
  HeadRows dout;
  const float* dlse;
  int64_t dlse_batch_stride, dlse_head_stride;
  float *dq, *dk, *dv;
  bool bf16 = false;  // these are rounded, bfloat16 numbers in the place of floats
};
void attention_backward(ThreadPool& pool, const AttentionShape& shape,
                        const AttentionGradients& gradients, std::byte* workspace);

}  // namespace lumen::kernels
