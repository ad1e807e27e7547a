// The gradients of the gated delta rule (delta_rule.h).
#pragma once

#include "lib/kernels/delta_rule.h"

namespace lumen::kernels {

// `forward` as of delta_rule, without states before (they are zeros) and without results. dout
// [batch, tokens, heads, value_dim] and dafter [batch, heads, key_dim, value_dim] are the gradients
// of its results; the others, of the inputs, are contiguous.
struct DeltaRuleBackwardArgs {
  DeltaRuleArgs forward;
  const float *dout, *dafter;
  float *dq, *dk;        // [batch, tokens, key_heads, key_dim]
  float* dv;             // [batch, tokens, heads, value_dim]
  float* ddecay;         // [batch, tokens, heads], by rows [batch, tokens, heads, key_dim]
  float* dbeta;          // [batch, tokens, heads]
  std::byte* workspace;  // delta_rule_backward_workspace_bytes(...), 64-byte aligned
};

size_t delta_rule_backward_workspace_bytes(int64_t tokens, int64_t key_dim, int threads);

// In float32. Threads divide the key heads; each goes through its strips of columns block by block
// of √tokens tokens, from the last to the first, and makes the states of a block again from the one
// before it, so that memory grows with √tokens. The result does not depend on the number of
// threads. Does not allocate. noexcept.
void delta_rule_backward(ThreadPool& pool, const DeltaRuleBackwardArgs& args);

}  // namespace lumen::kernels
