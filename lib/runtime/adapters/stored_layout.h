// What Hugging Face stores in another order or form than GGUF, beside names and types: rows that
// rotate (nn/rope.h), norms whose weights are stored less 1, scalings of positions, experts that
// are one tensor (io/fused_experts.h), layers that are (fused_inputs.h).
#pragma once

#include <string>
#include <string_view>

#include "lib/io/json.h"
#include "lib/tensor/named_arrays.h"

namespace lumen::runtime {

// What is added to the numbers of the tensor `name` of a model with this config
// (ModelFiles::config) where its norms are to be stored less `offset`: 1 in Hugging Face's Gemma, 0
// in GGUF. 0 for models and tensors that know no such difference.
double norm_shift(const io::Json& config, std::string_view name, double offset);

// The numbers of `array` in float32, each plus `shift`.
Array shifted(const Array& array, double shift);

// The rate of decay of a Gated DeltaNet or of Mamba-2: Hugging Face has A_log, GGUF A =
// −exp(A_log), under linear_attn or mamba. What the tensor `name` has to become there, or here.
enum class RateForm { kAsItIs, kLog, kRate };
RateForm rate_form(std::string_view name, bool to_gguf);
std::string other_rate_name(std::string_view name);
// float32, unless it stays as it is.
Array with_rate_form(const Array& array, RateForm form);

// Brings tensors of a model with this config, and the config, into the form that Hugging Face has.
// False if the tensors scale positions in a way that has no name in config.json; then those stay.
bool to_hugging_face(NamedArrays& tensors, io::Json& config);

// Takes out of `config` what Lumen added and Hugging Face does not know, and names what it knows by
// other names alone.
void erase_added_keys(io::Json& config);

}  // namespace lumen::runtime
