// Norms of queries and keys with a weight for each head. StableLM's directories have a tensor for
// each, "….q_layernorm.norms.N.weight" [dim], GGUF and the models here one of all,
// "….q_layernorm.weight" [heads, dim].
#pragma once

#include <string>
#include <string_view>

#include "lib/tensor/named_arrays.h"

namespace lumen::io {

// What directories call the part of the head `head` of such a tensor; "" of other tensors.
std::string head_norm_name(std::string_view name, const Array& array, int64_t head);
// Puts the tensors of all heads in place of those of each. Throws Error(kMalformed) if some are
// missing or unlike the others.
void join_head_norms(NamedArrays& tensors);
// The other way round.
void split_head_norms(NamedArrays& tensors);

}  // namespace lumen::io
