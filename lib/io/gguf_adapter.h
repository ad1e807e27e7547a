// LoRA adapters in GGUF, as llama.cpp reads and writes them: general.type "adapter", adapter.type
// "lora", adapter.lora.alpha, and a pair of tensors "blk.0.attn_q.weight.lora_a" [rank, in] and
// ".lora_b" [out, rank] for every layer with an addition.
#pragma once

#include <string>

#include "lib/io/model_files.h"
#include "lib/io/write_gguf.h"
#include "lib/tensor/named_arrays.h"

namespace lumen::io {

struct GgufAdapter {
  std::string architecture;  // of the model that it is for
  double alpha = 0;          // the addition is B A · alpha / rank; 0: B A
  // "model.layers.0.self_attn.q_proj.lora_A.weight", or of a tensor that stands for the model's own
  // its name there; mapped. Rows of q and k are in the order of the architecture.
  NamedArrays tensors;
  ChatTemplates chat_templates;  // which llama.cpp does not look for
};

// Whether general.type says that a GGUF file is an adapter, not a model.
bool is_adapter(const GgufFile& file);

// Reads the adapter in a GGUF file. Throws Error as read_gguf; kUnsupported for a model or another
// kind of adapter; kMalformed for tensors without a place in a model.
GgufAdapter read_gguf_adapter(const std::string& path);

// What such a file says beside its tensors, and the name there, for a model of this architecture,
// of one that is called as above; "" if GGUF has none for it.
void set_gguf_adapter(const GgufAdapter& adapter, GgufWriter& writer);
std::string gguf_adapter_tensor_name(const std::string& name, std::string_view architecture);

}  // namespace lumen::io
