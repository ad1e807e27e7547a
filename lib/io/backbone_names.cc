#include "lib/io/backbone_names.h"

#include <string_view>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/strings.h"

namespace lumen::io {
namespace {

constexpr std::string_view kModel = "model.", kPart = "language_model.";

// What files of a family call the model and what is there once, with the point behind it.
struct OwnNames {
  std::string_view model_type, backbone, embedding, norm, head;
};
constexpr OwnNames kOwnNames[] = {
    {"nemotron_h", "backbone.", "embeddings.", "norm_f.", "lm_head."},
    {"mamba2", "backbone.", "embeddings.", "norm_f.", "lm_head."},
    {"gpt_neox", "gpt_neox.", "embed_in.", "final_layer_norm.", "embed_out."},
    {"bailing_moe_v2", "model.", "word_embeddings.", "norm.", "lm_head."}};
constexpr std::string_view kEmbedding = "embed_tokens.", kNorm = "norm.", kHead = "lm_head.";

bool is_part(const Json& config) {
  return get_bool(config, "language_model_part", false);
}

const OwnNames* own_names(const Json& config) {
  const std::string type = get_string(config, "model_type", "");
  for (const OwnNames& own : kOwnNames) {
    if (own.model_type == type) return &own;
  }
  return nullptr;
}

// The end of `name` behind `front` behind `other`; "" of names that do not begin so.
std::string replaced(const std::string& name, std::string_view front, std::string_view other) {
  return name.starts_with(front) ? str(other, name.substr(front.size())) : "";
}

std::string usual_name(const OwnNames& own, const std::string& name) {
  for (const std::string_view model : {own.backbone, kModel}) {
    const std::string rest = replaced(name, model, "");
    if (rest.empty()) continue;
    for (const auto& [from, to] :
         {std::pair(own.embedding, kEmbedding), std::pair(own.norm, kNorm)}) {
      const std::string once = replaced(rest, from, to);
      if (!once.empty()) return str(kModel, once);
    }
    return str(kModel, rest);
  }
  const std::string head = replaced(name, own.head, kHead);
  return head.empty() ? name : head;
}

std::string backbone_name(const OwnNames& own, const std::string& name) {
  const std::string rest = replaced(name, kModel, "");
  for (const auto& [from, to] :
       {std::pair(kEmbedding, own.embedding), std::pair(kNorm, own.norm)}) {
    const std::string once = replaced(rest, from, to);
    if (!once.empty()) return str(own.backbone, once);
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
  return own == nullptr ? name : usual_name(*own, name);
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
  if (own == nullptr || (is_addition && name.starts_with(kHead))) return name;
  const std::string stored = backbone_name(*own, name);
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
