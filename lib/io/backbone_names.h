// Files of Nemotron-H and Mamba-2 have names of their own for what is called as in Llama here:
// "backbone.embeddings.weight" is "model.embed_tokens.weight", "backbone.norm_f.weight"
// "model.norm.weight", and "backbone.layers.…" "model.layers.…". So have those of GPT-NeoX
// ("gpt_neox.embed_in", "gpt_neox.final_layer_norm", "embed_out"), and older families, whose layers
// are "transformer.h.…" or "model.decoder.layers.…". In models that read more than text the
// language model is a part.
#pragma once

#include <string>
#include <string_view>

#include "lib/io/json.h"
#include "lib/tensor/named_arrays.h"

namespace lumen::io {

// Whether files of a model with this config have names with a backbone.
bool has_backbone(const Json& config);
// Whether files or adapters of such a model have other names than those here.
bool has_own_names(const Json& config);
// The name of a tensor of such a file, or of an adapter, for which the module is called "model" in
// newer versions of transformers, as it is here. Other names stay.
std::string usual_name(const Json& config, std::string name);
// What a directory of a model with this config calls a tensor; additions have the names of the
// modules of transformers, which is not all that of files.
std::string stored_name(const Json& config, std::string name);
// The name that a tensor of a model that reads more than text, or of an adapter to one, has in its
// language model alone; "" of what is in no part called so. Versions of transformers put the prefix
// in different places: "language_model.model.layers.…", "model.language_model.layers.…".
std::string name_in_language_model(std::string_view name);
// All of a file with a backbone as they are called here.
NamedArrays with_usual_names(const Json& config, NamedArrays tensors);

}  // namespace lumen::io
