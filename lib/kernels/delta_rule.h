// The gated delta rule (Yang et al. 2024, "Gated Delta Networks"), which the linear attention of
// Qwen3-Next and Qwen3.5 computes, and with a decay per row of the state that of Kimi Linear (Kimi
// Team 2025); without its correction the recurrence of Mamba-2 (Dao & Gu 2024, "Transformers are
// SSMs").
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/pool.h"

namespace lumen::kernels {

// Rows of heads [batch, tokens, heads, dim]: strides in elements, the numbers of a row contiguous.
struct DeltaRows {
  const float* data;
  int64_t batch_stride, token_stride, head_stride;

  const float* at(int64_t batch, int64_t token, int64_t head) const {
    return data + batch * batch_stride + token * token_stride + head * head_stride;
  }
};

// For every batch row and head, token after token, with S [key_dim, value_dim] the state:
//   P = decay · S, u = beta · (v − Pᵀ k), S' = P + k uᵀ, out = S'ᵀ q,
// or, where it does not correct, u = beta · v. Where the decay is by rows, there is one for each
// row of S. heads is a multiple of key_heads: head h reads q and k of head h / (heads / key_heads),
// tiled of head h % key_heads.
struct DeltaRuleArgs {
  int64_t batch, tokens, key_heads, heads, key_dim, value_dim;
  bool tiled;
  bool corrects;
  bool by_rows;
  DeltaRows q, k;   // [batch, tokens, key_heads, key_dim]
  DeltaRows v;      // [batch, tokens, heads, value_dim]
  DeltaRows decay;  // [batch, tokens, heads, 1], by rows [batch, tokens, heads, key_dim]
  DeltaRows beta;   // [batch, tokens, heads, 1]
  // The states before, [rows, heads, key_dim, value_dim]: of batch row b the row slots[b], or b if
  // slots is null, unless position[b · position_stride] is 0: then zeros, whatever is there. Null:
  // zeros.
  const float* before = nullptr;
  const int32_t* position = nullptr;
  int64_t position_stride = 0;  // 1, or 0: the same for all
  const int32_t* slots = nullptr;
  float* out = nullptr;    // [batch, tokens, heads, value_dim] contiguous
  float* after = nullptr;  // the last states [batch, heads, key_dim, value_dim] contiguous
  std::byte* workspace;    // delta_rule_workspace_bytes(...), 64-byte aligned, any content
};

// The key head that head `head` reads.
inline int64_t key_head_of(const DeltaRuleArgs& args, int64_t head) {
  return args.tiled ? head % args.key_heads : head / (args.heads / args.key_heads);
}

size_t delta_rule_workspace_bytes(int64_t key_dim, int threads);

// In float32. Threads divide heads and columns of the state, which do not depend on each other: a
// strip of columns stays in the first cache through all tokens. A token's result depends neither on
// the number of threads nor on how many tokens come with it. Does not allocate. noexcept.
void delta_rule(ThreadPool& pool, const DeltaRuleArgs& args);

}  // namespace lumen::kernels
