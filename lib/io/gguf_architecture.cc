// Tensor names: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include "lib/io/gguf_architecture.h"

#include "lib/base/error.h"
#include "lib/base/strings.h"
#include "lib/io/write_gguf.h"

namespace lumen::io {
namespace {

// Names of tensors that are there once, and inside a layer "blk.N." → "model.layers.N.".
constexpr Renaming kModelTensors[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output.weight", "lm_head.weight"},
};
constexpr Renaming kLayerTensors[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};
constexpr Renaming kAfterBranches[] = {{"post_attention_norm", "post_attention_layernorm"},
                                       {"post_ffw_norm", "post_feedforward_layernorm"}};
constexpr Renaming kAroundBranches[] = {{"post_attention_norm", "post_attention_layernorm"},
                                        {"ffn_norm", "pre_feedforward_layernorm"},
                                        {"post_ffw_norm", "post_feedforward_layernorm"}};
constexpr Renaming kFused[] = {{"attn_qkv", "self_attn.qkv_proj"}, {"ffn_up", "mlp.gate_up_proj"}};

constexpr Architecture kArchitectures[] = {
    {"llama", "llama", true},
    {"qwen2", "qwen2", false},
    {"qwen3", "qwen3", false},
    {"gemma", "gemma", false},
    {"gemma2", "gemma2", false, kAroundBranches},
    {"gemma3", "gemma3_text", false, kAroundBranches},
    {"granite", "granite", true},
    {"olmo2", "olmo2", false, kAfterBranches},
    {"phi3", "phi3", false, kFused},
    {"smollm3", "smollm3", true},
};

const Architecture* architecture_or_null(std::string_view name) {
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == name) return &architecture;
  }
  return nullptr;
}

// The architecture's own name of a part of a layer, or else the common one; "" if there is none.
std::string_view renamed(std::string_view part, std::string_view Renaming::*from,
                         std::string_view Renaming::*to, std::string_view architecture) {
  const Architecture* found = architecture_or_null(architecture);
  const auto own = found ? found->own_tensors : std::span<const Renaming>();
  for (const auto table : {own, std::span<const Renaming>(kLayerTensors)}) {
    for (const Renaming& renaming : table) {
      if (renaming.*from == part) return renaming.*to;
    }
  }
  return "";
}

// `name` inside a layer, "layers.N.PART.weight", as another format calls it.
std::string renamed_in_layer(const std::string& name, std::string_view layers,
                             std::string_view other_layers, std::string_view Renaming::*from,
                             std::string_view Renaming::*to, std::string_view architecture) {
  if (!name.starts_with(layers)) return "";
  const size_t layer_end = name.find('.', layers.size()), suffix = name.rfind('.');
  if (layer_end == std::string::npos || suffix <= layer_end) return "";
  const std::string_view all = name;
  const std::string_view part =
      renamed(all.substr(layer_end + 1, suffix - layer_end - 1), from, to, architecture);
  if (part.empty()) return "";
  return str(other_layers, all.substr(layers.size(), layer_end - layers.size()), ".", part,
             all.substr(suffix));
}

constexpr std::string_view kGgufLayers = "blk.", kLayers = "model.layers.";

}  // namespace

const Architecture& find_architecture(std::string_view name) {
  if (const Architecture* found = architecture_or_null(name)) return *found;
  std::string supported;
  for (const Architecture& architecture : kArchitectures) {
    supported += str(supported.empty() ? "" : ", ", architecture.name);
  }
  fail(ErrorKind::kUnsupported, "the architecture ", quoted(name),
       " is not supported; supported are ", supported);
}

std::string hugging_face_name(const std::string& name, std::string_view architecture) {
  for (const Renaming& renaming : kModelTensors) {
    if (renaming.gguf == name) return std::string(renaming.hugging_face);
  }
  const std::string in_layer = renamed_in_layer(name, kGgufLayers, kLayers, &Renaming::gguf,
                                                &Renaming::hugging_face, architecture);
  return in_layer.empty() ? name : in_layer;
}

std::string gguf_tensor_name(const std::string& name, std::string_view architecture) {
  for (const Renaming& renaming : kModelTensors) {
    if (renaming.hugging_face == name) return std::string(renaming.gguf);
  }
  return renamed_in_layer(name, kLayers, kGgufLayers, &Renaming::hugging_face, &Renaming::gguf,
                          architecture);
}

bool gguf_rotates_interleaved(std::string_view name) {
  const Architecture* found = architecture_or_null(name);
  return found != nullptr && found->interleaved;
}

std::string gguf_architecture(const Json& config) {
  std::string type = get_string(config, "model_type"), known;
  if (type == "mistral") type = "llama";
  if (type == "olmo3") type = "olmo2";
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.model_type == type) return std::string(architecture.name);
    known += str(known.empty() ? "" : ", ", architecture.model_type);
  }
  fail(ErrorKind::kUnsupported, "model_type ", quoted(type),
       " has no architecture of GGUF that Lumen knows; known are mistral, olmo3, ", known);
}

}  // namespace lumen::io
