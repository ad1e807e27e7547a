// What an adapter changes in a model, and whether the two belong together.
#pragma once

#include <string>
#include <vector>

#include "lib/io/json.h"
#include "lib/runtime/adapters/lora.h"

namespace lumen::runtime {

// The first addition to a layer of the model with these tensors that `targets` promise and the
// adapter lacks; "" if none is.
std::string lacking_addition(const LoraAdapter& adapter, const NamedArrays& model_tensors);

// Throws Error(kMalformed) if the adapter changes nothing, or lacks the addition to a layer of the
// model with these tensors that its config names.
void check_complete(const LoraAdapter& adapter, const NamedArrays& model_tensors);

// Gives a model whose head is its embedding a head of its own, if the adapter has another embedding
// or anything of a head: as in PEFT, each is changed alone. For `tensors` before replace_tensors.
void untie_head(const LoraAdapter& adapter, io::Json& model_config, NamedArrays& tensors);

// Puts `replaced` in the place of the model's tensors. Throws Error(kMismatch) naming one that the
// model lacks or has in another shape.
void replace_tensors(const NamedArrays& replaced, NamedArrays& tensors);

// The places ("model.embed_tokens.") of the additions that no layer can have beside its weight:
// those to embeddings and to experts, and those with magnitudes (DoRA).
std::vector<std::string> places_in_weights(const LoraAdapter& adapter);

// Brings the model's config and tensors to where nn::Parameters::with_lora takes `adapter` from:
// untie_head and replace_tensors, and the additions of places_in_weights are worked into the
// weights and taken out of the adapter. Throws Error as check_complete and replace_tensors.
void apply_adapter(LoraAdapter& adapter, io::Json& model_config, NamedArrays& tensors);

}  // namespace lumen::runtime
