// The order of heads in the tensors of a layer, where GGUF has another than Hugging Face.
//
// Heads come in groups: the value heads of a Gated DeltaNet that share a key head; the queries of a
// head of keys, the key and the value in the one product of all of GPT-NeoX, Falcon and BLOOM
// (query_key_value). Those of a group follow each other in Hugging Face. In GGUF all first ones
// come before all second ones ("tiled"), but queries in their order, before keys and values.
#pragma once

#include <string_view>

#include "lib/io/json.h"
#include "lib/tensor/array.h"

namespace lumen::nn {

// Whether the heads of a model with this config (ModelFiles::config) are in GGUF's order, while
// those of its Hugging Face directory are not.
bool has_tiled_heads(const io::Json& config);
// Whether they are in GGUF: not where the inputs of Gated DeltaNets are in one tensor (Qwen3-Next),
// nor where all queries come before the keys in either (Ling).
bool may_tile_heads(const io::Json& config);
// Whether `name` is a tensor, or an adapter's addition to one, that has rows or columns for each of
// these heads.
bool has_grouped_heads(std::string_view name);
// Such a tensor of any type brought into GGUF's order, or back. One that does not fit the config
// stays as it is. Throws Error(kMalformed) as io::get_int, and Error(kResource).
Array reorder_heads(const Array& tensor, std::string_view name, const io::Json& config,
                    bool to_tiled);

}  // namespace lumen::nn
