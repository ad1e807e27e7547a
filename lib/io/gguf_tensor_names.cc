// Tensor names of GGUF and of Hugging Face, and the matrices that are one tensor in GGUF with
// others.
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/io/gguf_architecture.h"
#include "lib/io/json.h"
#include "lib/io/write_gguf.h"

namespace lumen::io {
namespace {

// Names of tensors that are there once, and inside a layer "blk.N." → "model.layers.N.".
constexpr Renaming kModelTensors[] = {
    {"token_embd.weight", "model.embed_tokens.weight"},
    {"output_norm.weight", "model.norm.weight"},
    {"output_norm.bias", "model.norm.bias"},
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
using Renamings = std::span<const Renaming>;

// The name of `part` in the first of the tables that has it; "" if none has.
std::string_view renamed(std::string_view part, std::string_view Renaming::*from,
                         std::string_view Renaming::*to, std::initializer_list<Renamings> tables) {
  for (const Renamings& table : tables) {
    for (const Renaming& renaming : table) {
      if (renaming.*from == part) return renaming.*to;
    }
  }
  return "";
}

// The architecture's own name of a tensor that is there once, or else the common one.
std::string_view renamed_once(std::string_view name, std::string_view Renaming::*from,
                              std::string_view Renaming::*to, std::string_view architecture) {
  const Architecture* found = architecture_or_null(architecture);
  return renamed(name, from, to, {found ? found->model_tensors : Renamings(), kModelTensors});
}

// The same of a part of a layer.
std::string_view renamed_part(std::string_view part, std::string_view Renaming::*from,
                              std::string_view Renaming::*to, std::string_view architecture) {
  const Architecture* found = architecture_or_null(architecture);
  return renamed(part, from, to, {found ? found->own_tensors : Renamings(), kLayerTensors});
}

// What the names of a layer's tensors begin with in Hugging Face.
std::string_view layers_of(std::string_view architecture) {
  const Architecture* found = architecture_or_null(architecture);
  return found ? found->layers : Architecture{}.layers;
}

// `name` inside a layer, "layers.N.PART.weight", as another format calls it.
std::string renamed_in_layer(const std::string& name, std::string_view layers,
                             std::string_view other_layers, std::string_view Renaming::*from,
                             std::string_view Renaming::*to, std::string_view architecture) {
  if (!name.starts_with(layers)) return "";
  const size_t layer_end = name.find('.', layers.size()), suffix = name.rfind('.');
  if (layer_end == std::string::npos) return "";
  const std::string_view all = name;
  const std::string_view layer = all.substr(layers.size(), layer_end - layers.size());
  const std::string_view whole = renamed_part(all.substr(layer_end + 1), from, to, architecture);
  if (!whole.empty()) return str(other_layers, layer, ".", whole);
  if (suffix == layer_end) return "";
  const std::string_view part =
      renamed_part(all.substr(layer_end + 1, suffix - layer_end - 1), from, to, architecture);
  if (part.empty()) return "";
  return str(other_layers, layer, ".", part, all.substr(suffix));
}

constexpr std::string_view kGgufLayers = "blk.";
constexpr std::string_view kExpertPart = ".experts.";
// Behind what the number of a matrix stands that is one tensor in GGUF with others.
constexpr std::string_view kStacks[] = {kExpertPart, ".altup_projections.",
                                        ".altup_unembed_projections."};

// Where that number is in a name: its place and its length; {0, 0} if there is none.
std::pair<size_t, size_t> place_of_number(std::string_view name) {
  for (const std::string_view stack : kStacks) {
    const size_t at = name.find(stack);
    if (at == name.npos) continue;
    const size_t begin = at + stack.size(), end = name.find('.', begin);
    return end == name.npos ? std::pair<size_t, size_t>{0, 0} : std::pair(begin, end - begin);
  }
  return {0, 0};
}

// What is left of "blk.N.ffn_up.E.weight", the name that files before April 2024 have for the
// matrix of the expert E, without E: "blk.N.ffn_up_exps.weight"; "" for other names. Sets `expert`
// to E.
std::string without_expert(const std::string& name, int64_t& expert) {
  constexpr std::string_view kEnd = ".weight";
  if (!name.starts_with(kGgufLayers) || !name.ends_with(kEnd)) return "";
  const std::string_view front = std::string_view(name).substr(0, name.size() - kEnd.size());
  const size_t point = front.rfind('.');
  const std::string_view number = front.substr(point + 1);
  if (!parse_number(number, expert) || str(expert) != number) return "";
  return str(front.substr(0, point), "_exps", kEnd);
}

}  // namespace

std::string hugging_face_name(const std::string& name, std::string_view architecture) {
  const std::string_view in_model =
      renamed_once(name, &Renaming::gguf, &Renaming::hugging_face, architecture);
  if (!in_model.empty()) return std::string(in_model);
  const std::string in_layer =
      renamed_in_layer(name, kGgufLayers, layers_of(architecture), &Renaming::gguf,
                       &Renaming::hugging_face, architecture);
  if (!in_layer.empty()) return in_layer;
  int64_t expert = 0;
  const std::string of_all = without_expert(name, expert);
  if (of_all.empty()) return name;
  const std::string fused = hugging_face_name(of_all, architecture);
  return is_stack(fused) ? name_in_stack(fused, expert) : name;
}

bool is_stack(std::string_view name) {
  const auto [at, length] = place_of_number(name);
  return name.substr(at, length) == "*";
}

std::string name_in_stack(std::string name, int64_t number) {
  const auto [at, length] = place_of_number(name);
  return name.replace(at, length, str(number));
}

StackSize stack_size(std::string_view name, const Json& config) {
  if (name.find(kExpertPart) != name.npos) return {expert_count(config), "expert_count"};
  return {get_int(config, "altup_num_inputs", 1, limits::kDim) - 1, "altup.num_inputs, less 1,"};
}

std::optional<int64_t> number_in_stack(std::string_view name) {
  const auto [at, length] = place_of_number(name);
  int64_t number = 0;
  const bool is_number = length > 0 && parse_number(name.substr(at, length), number);
  return is_number && number >= 0 ? std::optional(number) : std::nullopt;
}

std::optional<int64_t> expert_number(std::string_view name) {
  return name.find(kExpertPart) != name.npos ? number_in_stack(name) : std::nullopt;
}

std::string gguf_tensor_name(const std::string& own_name, std::string_view architecture) {
  std::string name = own_name;
  if (number_in_stack(name)) {
    const auto [at, length] = place_of_number(name);
    name.replace(at, length, "*");
  }
  const std::string_view in_model =
      renamed_once(name, &Renaming::hugging_face, &Renaming::gguf, architecture);
  if (!in_model.empty()) return std::string(in_model);
  return renamed_in_layer(name, layers_of(architecture), kGgufLayers, &Renaming::hugging_face,
                          &Renaming::gguf, architecture);
}

}  // namespace lumen::io
