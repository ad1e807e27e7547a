// LoRA adapters as mlx-lm writes them (https://github.com/ml-explore/mlx-lm, mlx_lm/tuner):
// adapter_config.json and adapters.safetensors in a directory.
#pragma once

#include "lib/io/json.h"
#include "lib/nn/parameters.h"

namespace lumen::runtime {

// Whether an adapter_config.json is one of mlx-lm.
bool is_mlx_adapter(const io::Json& config);

// Its config in PEFT's form. Throws Error: kUnsupported (another kind of training than LoRA and
// DoRA), kMalformed.
io::Json peft_config(const io::Json& mlx_config);

// Its tensors in PEFT's form. A layer has "….lora_a" [in, rank] and "….lora_b" [rank, out], and
// adds scale (x lora_a) lora_b, an embedding lora_a [vocab, rank]; of DoRA "….m" [out], too. Throws
// Error: kUnsupported (additions to experts, other tensors), kMalformed (a factor that is no matrix
// of floats).
NamedArrays peft_tensors(const NamedArrays& mlx_tensors);

}  // namespace lumen::runtime
