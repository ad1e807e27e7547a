#include "lib/io/backbone_names.h"

#include <span>
#include <string_view>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/strings.h"

namespace lumen::io {
namespace {

constexpr std::string_view kModel = "model.", kPart = "language_model.", kLayers = "layers.";
constexpr std::string_view kEmbedding = "embed_tokens.", kNorm = "norm.", kHead = "lm_head.";

// A part of a layer, between points.
struct PartName {
  std::string_view own, usual;
};
constexpr PartName kExaoneParts[] = {{".attn.attention.out_proj.", ".self_attn.o_proj."},
                                     {".attn.attention.", ".self_attn."},
                                     {".ln_1.", ".input_layernorm."},
                                     {".ln_2.", ".post_attention_layernorm."},
                                     {".mlp.c_fc_0.", ".mlp.gate_proj."},
                                     {".mlp.c_fc_1.", ".mlp.up_proj."},
                                     {".mlp.c_proj.", ".mlp.down_proj."}};
// Also in layers with attention, where it is behind it.
constexpr PartName kOlmoHybridNorms[] = {
    {".attention_layer_norm.", ".input_layernorm."},
    {".feedforward_layer_norm.", ".post_attention_layernorm."}};
// Of layers without experts, as transformers writes them; published files have the usual.
constexpr PartName kKimiLinearMlp[] = {{".block_sparse_moe.gate_proj.", ".mlp.gate_proj."},
                                       {".block_sparse_moe.up_proj.", ".mlp.up_proj."},
                                       {".block_sparse_moe.down_proj.", ".mlp.down_proj."}};
constexpr PartName kKimiLinearModules[] = {
    {".forget_gate.f_a_proj.", ".f_a_proj."},
    {".forget_gate.f_b_proj.", ".f_b_proj."},
    {".mlp.shared_experts.", ".block_sparse_moe.shared_experts."},
    {".mlp.gate.", ".block_sparse_moe.gate."}};
constexpr PartName kLfm3Modules[] = {{".self_attn.g_proj.", ".self_attn.gate_proj."}};
constexpr PartName kHyV3Modules[] = {{".mlp.shared_experts.", ".mlp.shared_mlp."},
                                     {".mlp.gate.", ".mlp.router.gate."}};
constexpr PartName kLagunaModules[] = {{".mlp.shared_experts.", ".mlp.shared_expert."}};
// Of layers with a norm for each branch, as GGUF has it: that of the mlp is the usual one.
constexpr PartName kFalconNorms[] = {{".ln_mlp.", ".input_layernorm."}};

bool has_two_norms(const Json& config) {
  const bool grouped = get_bool(config, "new_decoder_architecture", false);
  return grouped && get_int(config, "num_ln_in_parallel_attn", 1, 2, 2) == 2;
}

// What files of a family call the model and what is there once, with the point behind it, and what
// they call parts of layers.
struct OwnNames {
  std::string_view model_type, backbone = kModel, embedding = kEmbedding, norm = kNorm;
  std::string_view head = kHead, layers = kLayers;
  std::span<const PartName> parts = {};
  bool llama_modules = false;  // what transformers and adapters call the parts is the usual
  bool (*is_meant)(const Json& config) = nullptr;  // null: of all models of the type
  std::span<const PartName> read_parts = {};       // of some files, and never written
  std::span<const PartName> modules = {};          // of adapters
};
constexpr OwnNames kOwnNames[] = {
    {"exaone", "transformer.", "wte.", "ln_f.", "lm_head.", "h.", kExaoneParts,
     /*llama_modules=*/true},
    {"falcon", "transformer.", "word_embeddings.", "ln_f.", "lm_head.", "h.", kFalconNorms,
     /*llama_modules=*/false, has_two_norms},
    {"falcon", "transformer.", "word_embeddings.", "ln_f.", "lm_head.", "h."},
    {"bloom", "transformer.", "word_embeddings.", "ln_f.", "lm_head.", "h."},
    {"mpt", "transformer.", "wte.", "norm_f.", "lm_head.", "blocks."},
    {"gpt_bigcode", "transformer.", "wte.", "ln_f.", "lm_head.", "h."},
    {"gptj", "transformer.", "wte.", "ln_f.", "lm_head.", "h."},
    {.model_type = "kimi_linear", .read_parts = kKimiLinearMlp, .modules = kKimiLinearModules},
    {.model_type = "hy_v3", .modules = kHyV3Modules},
    {.model_type = "laguna", .modules = kLagunaModules},
    {.model_type = "lfm3", .modules = kLfm3Modules},
    {.model_type = "olmo_hybrid", .parts = kOlmoHybridNorms},
    {"opt", "model.decoder.", "embed_tokens.", "final_layer_norm.", "lm_head."},
    {"nemotron_h", "backbone.", "embeddings.", "norm_f.", "lm_head."},
    {"falcon_mamba", "backbone.", "embeddings.", "norm_f.", "lm_head."},
    {"mamba", "backbone.", "embeddings.", "norm_f.", "lm_head."},
    {"mamba2", "backbone.", "embeddings.", "norm_f.", "lm_head."},
    {"gpt_neox", "gpt_neox.", "embed_in.", "final_layer_norm.", "embed_out."},
    {"bailing_moe_v2", "model.", "word_embeddings.", "norm.", "lm_head."}};

bool is_part(const Json& config) {
  return get_bool(config, "language_model_part", false);
}

const OwnNames* own_names(const Json& config) {
  const std::string type = get_string(config, "model_type", "");
  for (const OwnNames& own : kOwnNames) {
    if (own.model_type != type) continue;
    if (own.is_meant == nullptr || own.is_meant(config)) return &own;
  }
  return nullptr;
}

// The end of `name` behind `front` behind `other`; "" of names that do not begin so.
std::string replaced(const std::string& name, std::string_view front, std::string_view other) {
  return name.starts_with(front) ? str(other, name.substr(front.size())) : "";
}

// `name` with the first of such parts that is in it under its other name.
std::string with_part(std::string name, std::span<const PartName> parts,
                      std::string_view PartName::*from, std::string_view PartName::*to) {
  for (const PartName& part : parts) {
    const size_t at = name.find(part.*from);
    if (at != name.npos) return name.replace(at, (part.*from).size(), part.*to);
  }
  return name;
}

std::string usual_name(const OwnNames& own, const std::string& name) {
  for (const std::string_view model : {own.backbone, kModel}) {
    const std::string rest = replaced(name, model, "");
    if (rest.empty()) continue;
    for (const auto& [from, to] :
         {std::pair(own.embedding, kEmbedding), {own.norm, kNorm}, {own.layers, kLayers}}) {
      const std::string other = replaced(rest, from, to);
      if (!other.empty()) return str(kModel, other);
    }
    return str(kModel, rest);
  }
  const std::string head = replaced(name, own.head, kHead);
  return head.empty() ? name : head;
}

std::string backbone_name(const OwnNames& own, const std::string& name) {
  const std::string rest = replaced(name, kModel, "");
  for (const auto& [from, to] :
       {std::pair(kEmbedding, own.embedding), {kNorm, own.norm}, {kLayers, own.layers}}) {
    const std::string other = replaced(rest, from, to);
    if (!other.empty()) return str(own.backbone, other);
  }
  if (!rest.empty()) return str(own.backbone, rest);
  const std::string head = replaced(name, kHead, own.head);
  return head.empty() ? name : head;
}

}  // namespace

bool has_backbone(const Json& config) {
  return own_names(config) != nullptr;
}

std::string usual_name(const Json& config, std::string name) {
  const OwnNames* own = own_names(config);
  if (own == nullptr) return name;
  name = usual_name(*own, name);
  for (const std::span<const PartName> parts : {own->parts, own->read_parts, own->modules}) {
    name = with_part(std::move(name), parts, &PartName::own, &PartName::usual);
  }
  return name;
}

bool has_own_names(const Json& config) {
  return has_backbone(config) || is_part(config);
}

std::string stored_name(const Json& config, std::string name) {
  const bool is_addition = name.find(".lora_") != name.npos;
  if (is_part(config) && is_addition && name.starts_with(kModel)) {
    return str(kModel, kPart, name.substr(kModel.size()));
  }
  const OwnNames* own = own_names(config);
  if (own == nullptr || (is_addition && (name.starts_with(kHead) || own->llama_modules))) {
    return name;
  }
  std::string stored =
      with_part(backbone_name(*own, name), own->parts, &PartName::usual, &PartName::own);
  if (is_addition) {
    stored = with_part(std::move(stored), own->modules, &PartName::usual, &PartName::own);
  }
  if (!is_addition || own->model_type != "nemotron_h") return stored;
  const std::string of_module = replaced(stored, own->backbone, kModel);
  return of_module.empty() ? stored : of_module;
}

std::string name_in_language_model(std::string_view name) {
  if (name.starts_with(kPart)) return std::string(name.substr(kPart.size()));
  const bool is_inside = name.starts_with(kModel) && name.substr(kModel.size()).starts_with(kPart);
  return is_inside ? str(kModel, name.substr(kModel.size() + kPart.size())) : "";
}

NamedArrays with_usual_names(const Json& config, NamedArrays tensors) {
  NamedArrays named;
  for (auto& [name, array] : tensors) {
    const auto [at, is_new] = named.emplace(usual_name(config, name), std::move(array));
    if (!is_new) fail(ErrorKind::kMalformed, "tensor ", quoted(at->first), " is there twice");
  }
  return named;
}

}  // namespace lumen::io
