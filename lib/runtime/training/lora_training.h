// What [lora] of a recipe trains: additions to a frozen model, and modules of it as a whole. All
// checks throw Error at the key that is wrong, as fail_at_key does.
#pragma once

#include <string>

#include "lib/nn/parameters.h"
#include "lib/runtime/training/export_model.h"
#include "lib/runtime/training/recipe.h"

namespace lumen::runtime {

// The parameters of a frozen model of this config and these tensors, with what [lora] trains. It
// gets a head of its own where that has an addition, or it or the embedding is trained whole, and
// what the adapter that is gone on from has in the place of its tensors. `options` become those of
// the additions. Throws as read_adapter and check_complete, and where the recipe says otherwise
// than the adapter.
nn::Parameters frozen_with_additions(const Recipe& recipe, io::Json& config, NamedArrays& tensors,
                                     nn::LoraOptions& options);

// Whether every target got an addition, and there is one, and PEFT takes those of experts.
// `parameters` are those of a model of type `model_type`, `additions` the tensors of what was added
// to them.
void check_lora_targets(const Recipe& recipe, const std::string& model_type,
                        const nn::Parameters& parameters, const NamedArrays& additions);

// Whether all of the adapter that is gone on from is trained.
void check_adapter_taken(const Recipe& recipe, const nn::Parameters& parameters);

// Whether every module that is trained whole is one of the model.
void check_trained_modules(const Recipe& recipe, const nn::Parameters& parameters);

// Whether the model has a bias that lora.bias means.
void check_trained_biases(const Recipe& recipe, const nn::Parameters& parameters);

// An addition that started as a part of the weight is one to the whole weight of twice the rank:
// B A − B₀ A₀ = [B, −B₀] [A; A₀], what PEFT's save_pretrained makes of it with
// path_initial_model_for_weight_conversion. Takes A₀ and B₀ out of `weights`.
void join_starts(NamedArrays& weights);
// The options of these.
nn::LoraOptions with_starts(nn::LoraOptions options);

// Whether PEFT has a form for what is trained, `trained`, and will be exported as `model`: before
// it is trained.
void check_form_in_peft(const Recipe& recipe, const nn::LoraOptions& options,
                        const NamedArrays& trained, const ExportedModel& model);

}  // namespace lumen::runtime
