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

// Granite 4.0 without experts and Mamba-2 is a Granite in GGUF: brings the additions of an adapter
// to its feed-forward layers, shared_mlp, from a directory to the names that the model of such a
// file has, mlp, and the other way round those of a GGUF file to what part_inputs has for a model
// of a directory. Does nothing for other models.
void name_as_granite(const io::Json& config, NamedArrays& tensors, nn::LoraOptions& options);
void name_as_granite_hybrid(const io::Json& config, NamedArrays& tensors, nn::LoraOptions& options);

}  // namespace lumen::runtime
