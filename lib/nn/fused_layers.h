// Layers that are one in Hugging Face and two in GGUF, each with some of the rows: the inputs of
// Qwen3-Next's Gated DeltaNets, in_proj_qkvz of in_proj_qkv and in_proj_z; gate and up of
// feed-forward layers of Granite 4.0 without experts, shared_mlp.input_linear of gate_linear and
// up_linear, as Lumen calls them.
#pragma once

#include <string>
#include <string_view>

#include "lib/io/json.h"
#include "lib/tensor/array.h"

namespace lumen::nn {

// Whether a model with this config (ModelFiles::config) has such a layer, or may have; and whether
// it is one of GGUF, where its parts are apart.
bool has_fused_inputs(const io::Json& config);
bool has_inputs_apart(const io::Json& config);
// The name that the tensor of such a layer with this name has of the part 0 or 1, and back; "" of
// other tensors.
std::string input_part_name(std::string_view fused, int part);
std::string fused_input_name(std::string_view part);
// How many rows such a part has, and those rows of a tensor of any type that has a row for each of
// the whole layer.
int64_t input_rows(const io::Json& config, int part);
Array input_part(const Array& fused, const io::Json& config, int part);
// The other way round, of the two parts, tensors of one type with so many rows.
Array fused_inputs(const Array& first, const Array& second, const io::Json& config);

}  // namespace lumen::nn
