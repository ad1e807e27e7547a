// Scaled dot-product attention with grouped queries, and the KV cache it reads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/pool.h"
#include "lib/tensor/dtype.h"

namespace lumen::kernels {

// A [batch, kv_heads, positions, head_dim] tensor: each row of head_dim elements is contiguous,
// the other strides are in bytes.
struct KvView {
  const std::byte* data;
  DType dtype;  // f32 f16 bf16 q8_0 (q8_0: head_dim a multiple of 32)
  int64_t batch_stride, head_stride, position_stride;
};

// out[b,t,h] = softmax_p(c(scale · q[b,t,h]·k[s,h/g,p])) · v[s,h/g,p] over the positions p that
// query t sees, with s = slots[b] and c(x) = x or, with a cap, cap · tanh(x / cap). Query t stands
// at position start[b] + t. Causal: p ≤ start[b] + t; with window w > 0 also p > start[b] + t − w,
// with a chunk c > 0 also p ≥ ⌊(start[b] + t) / c⌋ · c (Llama 4). Not causal: all of
// [0, positions). g = heads / kv_heads. With sinks (Xiao et al. 2023; gpt-oss) exp(sinks[h]) joins
// what the softmax divides by, and nothing else: weights add up to less than 1.
// With a max_bias, 8 in most models, there is added to c(…) what linear_bias.h says.
struct AttentionArgs {
  int64_t batch, tokens, heads, kv_heads, head_dim;
  int64_t positions;     // of k and v; causal: those behind a query need not hold data
  const int32_t* start;  // of batch row b: start[b · start_stride]
  int64_t start_stride;  // 1, or 0: the same for all
  const int32_t* slots;  // [batch]: the batch row of k and v that each reads; null: its own
  bool causal;
  int64_t window;  // 0: no window
  int64_t chunk;   // 0: no chunks
  float scale;
  float cap;           // 0: none
  float max_bias;      // 0: none
  const float* sinks;  // [heads]; null: none
  bool bf16;           // products may round to bfloat16, see below
  const float* q;      // element strides below, head rows contiguous
  int64_t q_batch_stride, q_token_stride, q_head_stride;
  KvView k, v;
  float* out;            // [batch, tokens, heads, head_dim] contiguous
  std::byte* workspace;  // attention_workspace_bytes(...), 64-byte aligned, any content
};

// Bytes of workspace that a call with these sizes (batch, tokens, heads, kv_heads, head_dim, bf16)
// takes, whatever its pointers and positions.
size_t attention_workspace_bytes(const AttentionArgs& sizes, int threads);

// Up to this many tokens a query's result does not depend on how many come with it: drafts of
// speculative decoding are verified in one pass with the bits of decoding one token at a time.
inline constexpr int64_t kFewTokens = 16;

// Online softmax (Milakov & Gimelshein 2018; Dao et al. 2022): no tokens × positions matrix is
// stored. Accumulates in float32. K and V rows are read once per group of query heads. The result
// does not depend on the number of threads. More than kFewTokens tokens over a cache of 16 or 8
// bits are multiplied as int16 where that is faster, but not under an ExactProductsScope: queries
// and keys are rounded to √(2^31 / head_dim) steps, weights to 8191 and values to 4095 of their
// row's largest, which for normally distributed numbers costs 2e-4 of a value. `bf16`, for models
// whose products with weights round as much (linear): queries, keys, weights and values of more
// than kFewTokens tokens are rounded to bfloat16 instead where there are tiles (amx.h), which costs
// 2e-3 and is three times as fast. A NaN or infinity in
// a query, or in a key or value it reads, shows in its output, but that a cap makes finite scores
// of infinite ones; a query that sees no position gives zeros. Positions < 2^24. Does not allocate.
// noexcept.
void attention(ThreadPool& pool, const AttentionArgs& args);

}  // namespace lumen::kernels
