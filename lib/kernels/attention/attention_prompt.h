// Attention over prompts: many query tokens at once. Private to this room.
#pragma once

#include <cstddef>

#include "lib/base/pool.h"
#include "lib/kernels/attention.h"

namespace lumen::kernels {

// Bytes of workspace for these sizes, of which head_dim and bf16 matter.
size_t prompt_attention_bytes(const AttentionArgs& sizes, int threads);

// As attention(), for any number of tokens. noexcept.
void prompt_attention(ThreadPool& pool, const AttentionArgs& args);

}  // namespace lumen::kernels
