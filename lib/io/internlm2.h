// InternLM2 is a Llama by other names, with queries, keys and values from one product, "wqkv".
#pragma once

#include "lib/io/json.h"
#include "lib/tensor/named_arrays.h"

namespace lumen::io {

// Whether a config.json is that of an InternLM2.
bool is_internlm2(const Json& config);
// The config of the Llama that it is, without what says how its own code is found.
Json internlm2_as_llama(Json config);
// The tensors of such a directory under Llama's names. "….attention.wqkv.weight" has, of one head
// of keys after the other, the rows of its queries, of the key and of the value: they are copied
// into q_proj, k_proj and v_proj. `config` is that of the Llama. Throws Error(kMalformed) for rows
// that are not those of the heads.
NamedArrays internlm2_as_llama(const Json& config, NamedArrays tensors);

}  // namespace lumen::io
