// LoRA adapters as PEFT writes them: adapter_config.json and adapter_model.safetensors.
#pragma once

#include <string>

#include "lib/io/json.h"
#include "lib/nn/parameters.h"

namespace lumen::runtime {

struct LoraAdapter {
  nn::LoraOptions options;
  NamedArrays tensors;  // "model.layers.0.self_attn.q_proj.lora_A.weight", …
};

// Reads the adapter in `directory` for a model with this config. Throws Error: kMissing (no such
// files), kMalformed (broken), kUnsupported (another PEFT method, DoRA, biases).
LoraAdapter read_adapter(const std::string& directory, const io::Json& model_config);

// Rows of q and k lie in another order in models with interleaved rotary pairs (GGUF) than in
// adapters and directories, which follow Hugging Face: brings the weights, biases and B matrices of
// q_proj and k_proj from one order to the other, in place. Does nothing for other models.
void reorder_rotary_rows(NamedArrays& tensors, const io::Json& model_config, bool to_interleaved);

}  // namespace lumen::runtime
