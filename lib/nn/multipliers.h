// Falcon-H1 multiplies what its layers are given and give by numbers of its config; in GGUF these
// are in the weights, and nothing tells of them.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "lib/io/json.h"
#include "lib/tensor/array.h"

namespace lumen::nn {

// A multiplier of a config, 1 if it has none, and a list of `count`. Throw Error(kMalformed).
double multiplier(const io::Json& config, const char* key);
std::vector<double> multipliers(const io::Json& config, const char* key, size_t count);
// Whether the weights of a model with this config (ModelFiles::config) have them: one of GGUF.
bool has_multiplied_weights(const io::Json& config);
// What GGUF has in the tensor `name` of such a model, a weight, bias or lora_B, times the numbers
// of a directory with this config: one factor for all rows, or one for each; empty: the same.
std::vector<double> row_multipliers(const io::Json& config, std::string_view name);
// The numbers of `array` in float32, times such factors, or divided by them.
Array with_multipliers(const Array& array, const std::vector<double>& factors, bool divide = false);

}  // namespace lumen::nn
