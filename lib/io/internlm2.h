// InternLM2 is a Llama by other names, with queries, keys and values from one product, "wqkv".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/io/json.h"
#include "lib/tensor/named_arrays.h"

namespace lumen::io {

// Whether a config.json is that of an InternLM2.
bool is_internlm2(const Json& config);
// The config of the Llama that it is, without what says how its own code is found.
Json internlm2_as_llama(Json config);
// What a tensor, or the place "….attention.wqkv." of some, is called in it: three names, of q_proj,
// k_proj and v_proj, for what is of wqkv, else one, which is `name` if that is no other there.
std::vector<std::string> internlm2_names_as_llama(std::string_view name);
// The tensors of such a directory, or of an adapter to it, under Llama's names.
// "….attention.wqkv.weight" has, of one head of keys after the other, the rows of its queries, of
// the key and of the value: they are copied into q_proj, k_proj and v_proj; "….lora_A.weight" is
// that of all three. `config` is that of the Llama. Throws Error(kMalformed) for rows that are not
// those of the heads.
NamedArrays internlm2_as_llama(const Json& config, NamedArrays tensors);

}  // namespace lumen::io
