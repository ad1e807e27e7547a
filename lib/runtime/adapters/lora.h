// LoRA adapters as PEFT writes them (adapter_config.json and adapter_model.safetensors in a
// directory), as mlx-lm does (mlx_adapter.h), or in a GGUF file as llama.cpp has them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lib/io/json.h"
#include "lib/nn/parameters.h"

namespace lumen::runtime {

// Behind a layer's path and a dot, the names of its addition's factors.
inline constexpr std::string_view kLoraA = "lora_A.weight", kLoraB = "lora_B.weight";
// Of DoRA, the magnitudes.
inline constexpr std::string_view kMagnitude = "lora_magnitude_vector";

struct LoraAdapter {
  std::string place;  // what messages call the file of the tensors
  nn::LoraOptions options;
  // "model.layers.0.self_attn.q_proj.lora_A.weight", …; of DoRA also "….lora_magnitude_vector". An
  // embedding's are those of a layer with the transposed weight: A [rank, vocab], B [dim, rank].
  NamedArrays tensors;
  // Trained in the place of tensors of the model (PEFT's modules_to_save): "lm_head.weight".
  NamedArrays replaced;
  // Ends of the paths of the layers that have additions, in all layers of the model: "q_proj".
  // Empty if the config names them otherwise. Experts are layers only if they are not in one
  // parameter (fused_additions.h).
  std::vector<std::string> targets;
  bool experts_are_layers = true;
};

// Reads the adapter in `path`, a directory or a GGUF file, for a model with this config;
// rank_pattern and alpha_pattern are regular expressions for the end of a layer's path, as in PEFT.
// Throws Error: kMissing (no such files), kMalformed (broken), kUnsupported (another PEFT method,
// an initialisation that changes the model's own weights), kMismatch (a GGUF file for another
// architecture).
LoraAdapter read_adapter(const std::string& path, const io::Json& model_config);

// The paths of the layers that have an addition among `tensors`: "model.layers.0.mlp.up_proj", ….
std::vector<std::string> paths_of_additions(const NamedArrays& tensors);

// The last parts of the names of the layers that have an addition among `tensors`, in order:
// "q_proj", ….
std::vector<std::string> lora_targets(const NamedArrays& tensors);

// Rows of q and k lie in another order in models with interleaved rotary pairs (GGUF), and heads in
// models with tiled ones (nn/head_order.h), than in adapters and directories, which follow Hugging
// Face: brings the weights, biases and additions of such layers from one order to the other, in
// place. Does nothing for other models.
void reorder_heads_and_rows(NamedArrays& tensors, const io::Json& model_config, bool to_gguf);

}  // namespace lumen::runtime
