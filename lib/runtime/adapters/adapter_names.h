// What adapters call the layers of a model, and what those are called here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/io/json.h"

namespace lumen::runtime {

// Names of a model's embedding.
inline constexpr const char* kEmbeddings[] = {"model.embed_tokens.weight",
                                              "transformer.wte.weight"};
// Whether this is the place of one: "model.embed_tokens.".
bool is_embedding(std::string_view place);

// Whether the layers of a model with this config are called as Mixtral's.
bool is_mixtral(const io::Json& model_config);

// The last parts of the names of an expert's matrices: of its gate, up and down.
std::vector<std::string> expert_matrices(const io::Json& model_config);

// `name` with `to` in the place of `from`, where it has that.
std::string renamed_part(std::string name, std::string_view from, std::string_view to);

// A name of the file of a PEFT adapter without what PEFT puts before all of them.
std::string without_prefix(std::string_view name);
// The same as it is in the language model alone.
std::string name_alone(std::string_view name);
// The model's name of a tensor of the file. PEFT has a layer with an addition as "base_layer" in
// it, if biases or the embedding are saved too, and calls an embedding's addition otherwise.
std::string model_name(std::string_view full, const io::Json& model_config);
// What transformers 5 calls the router that the tensor `name` is an addition to, where that is not
// what the model calls it; other names stay.
std::string router_name_in_peft(std::string name, const io::Json& model_config);

}  // namespace lumen::runtime
