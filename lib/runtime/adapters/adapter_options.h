// What an adapter's config says beside its tensors.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lib/io/json.h"
#include "lib/nn/parameters.h"

namespace lumen::runtime {

// The ranks and scales of an adapter with PEFT's adapter_config.json. `paths` are what PEFT calls
// the places that it calls otherwise. Throws Error: kUnsupported (another PEFT method, an
// initialisation that changes the model's own weights), kMalformed.
nn::LoraOptions read_options(const io::Json& config, const NamedArrays& tensors,
                             const std::map<std::string, std::string>& paths);

// target_modules, if it is a list that is meant for every layer: not a regular expression, not for
// some layers only.
std::vector<std::string> read_targets(const io::Json& config);

// Whether target_parameters names the parameter of this path: "model.layers.0.mlp.router.weight".
bool names_parameter(const io::Json& config, std::string_view path);

// The ranks and scales of an addition B A · alpha / rank, where rank is what A has; alpha 0: B A.
nn::LoraOptions scaled_by_rank(double alpha, const NamedArrays& tensors);

}  // namespace lumen::runtime
