// Writing what was trained: a Hugging Face directory, or a PEFT adapter.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lib/runtime/adapters/fused_additions.h"
#include "lib/runtime/training/training_data.h"

namespace lumen::runtime {

struct ExportedModel {
  io::Json config;                       // config.json
  std::map<std::string, Array> weights;  // float32
  std::string dtype = "f32";             // f32, f16, bf16: of matrices; vectors stay float32
  const TrainingData* data = nullptr;
  // What the training began with, whose token ids, end tokens and sampling settings are kept; null:
  // a new model, or another tokenizer.
  const io::ModelFiles* base = nullptr;
};

// The names of all files that write_model and write_adapter may write.
std::vector<std::string> exported_names();

// Says the type of the matrices (f32, f16, bf16) under the keys of older and newer transformers
// that are in `config`, or under the older one.
void set_dtype(const std::string& dtype, io::Json& config);

// Writes model.safetensors, config.json, generation_config.json, and of language models the
// tokenizer's files with the chat template, into the existing `directory`. Throws Error(kIo).
void write_model(const std::string& directory, const ExportedModel& model);

// adapter_config.json of additions to the layers `targets` of the model `base`, which has the
// config `model_config`, as PEFT reads it.
io::Json adapter_config(const std::string& base, int64_t rank, double alpha,
                        const std::vector<std::string>& targets, const io::Json& model_config);
// Brings additions under the names that PEFT has for those to a model with this config, and with
// their places the ranks of `options`. Those to experts that are one parameter there are taken out
// and returned. Throws as fuse_additions.
FusedExperts name_as_peft(const io::Json& model_config, NamedArrays& tensors,
                          nn::LoraOptions& options);
// Moves layers of a model with this config that are parameters for PEFT from target_modules to
// target_parameters: routers that are no linear layers in transformers, and the feed-forward layers
// without experts of Qwen3-MoE and Qwen3-Next and the latter's shared experts, whose names PEFT
// would take for those of experts.
void name_parameters(const io::Json& model_config, const NamedArrays& tensors, io::Json& config);
// Adds those of `experts` to target_parameters, and to rank_pattern and alpha_pattern the ranks and
// scales that are not those that the config has.
void name_experts(const FusedExperts& experts, io::Json& config);
// Writes it into the existing `directory`, and adapter_model.safetensors of `tensors`, which are
// called as in LoraAdapter, in `dtype`.
void write_adapter_files(const std::string& directory, const io::Json& config,
                         const NamedArrays& tensors, DType dtype);

// What was trained, as PEFT has it. The weights of `model` are those of additions, made as
// `options` say, and of modules and biases that are trained whole.
struct PeftAdapter {
  io::Json config;
  NamedArrays tensors;  // called as in LoraAdapter
};
PeftAdapter peft_adapter(const ExportedModel& model, const LoraRecipe& lora,
                         nn::LoraOptions options, const std::string& base_path);
// Writes it, beside the tokenizer's files.
void write_adapter(const std::string& directory, const ExportedModel& model,
                   const PeftAdapter& adapter);

}  // namespace lumen::runtime
