// Layers that are one in Hugging Face, in models from GGUF, which have two in its place
// (nn/fused_layers.h): what adapters, directories and training have of them, which follow Hugging
// Face.
#pragma once

#include "lib/io/json.h"
#include "lib/nn/parameters.h"

namespace lumen::runtime {

// In place of what `tensors` have of such a layer puts the same of its two parts: their rows, and
// of an addition the same A twice. `options` of an adapter get the ranks and scales of both, unless
// they are null. `config` is that of the model.
void part_inputs(const io::Json& config, NamedArrays& tensors, nn::LoraOptions* options);

// The other way round. An addition to one has no rows but 0 for the other; two with the same A, or
// with different ones, whose ranks then add up, are one. Weights are of one type.
void join_inputs(const io::Json& config, NamedArrays& tensors, nn::LoraOptions* options);

}  // namespace lumen::runtime
