// Adapters as mlx-lm writes them (https://github.com/ml-explore/mlx-lm, mlx_lm/tuner):
// adapter_config.json and adapters.safetensors in a directory.
#pragma once

#include "lib/io/json.h"
#include "lib/nn/parameters.h"

namespace lumen::runtime {

// Whether an adapter_config.json is one of mlx-lm.
bool is_mlx_adapter(const io::Json& config);

// Its config in PEFT's form. Throws Error: kUnsupported (another kind of training than LoRA, DoRA
// and that of whole weights), kMalformed.
io::Json peft_config(const io::Json& mlx_config);

// Its tensors in PEFT's form, for a model with this config. A layer has "….lora_a" [in, rank] and
// "….lora_b" [rank, out], and adds scale (x lora_a) lora_b, an embedding lora_a [vocab, rank]; of
// DoRA "….m" [out], too. All experts of a layer, there "….switch_mlp.gate_proj", have lora_a
// [experts, rank, in] and lora_b [experts, out, rank], which stay so under the name of an expert
// with "*" in place of its number. What was trained whole has the names of mlx-lm's modules,
// experts in one tensor, taps of convolutions [channels, taps, 1], norms of Qwen3-Next and Qwen3.5
// stored whole and rows of kv_b_proj apart; it gets the names and form of files. Throws Error:
// kUnsupported (other tensors, a Falcon-H1), kMalformed (a factor that is no matrix of floats).
NamedArrays peft_tensors(const io::Json& mlx_config, const io::Json& model_config,
                         const NamedArrays& mlx_tensors);

}  // namespace lumen::runtime
