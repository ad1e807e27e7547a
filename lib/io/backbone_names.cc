#include "lib/io/backbone_names.h"

#include <string_view>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/strings.h"

namespace lumen::io {
namespace {

constexpr std::string_view kBackbone = "backbone.", kModel = "model.", kPart = "language_model.";
constexpr std::pair<std::string_view, std::string_view> kOnce[] = {{"embeddings.", "embed_tokens."},
                                                                   {"norm_f.", "norm."}};

}  // namespace

bool has_backbone(const Json& config) {
  const std::string type = get_string(config, "model_type", "");
  return type == "nemotron_h" || type == "mamba2";
}

std::string usual_name(std::string name) {
  const bool has_own = name.starts_with(kBackbone);
  if (!has_own && !name.starts_with(kModel)) return name;
  const std::string rest = name.substr((has_own ? kBackbone : kModel).size());
  for (const auto& [own, usual] : kOnce) {
    if (rest.starts_with(own)) return str(kModel, usual, rest.substr(own.size()));
  }
  return str(kModel, rest);
}

std::string backbone_name(std::string name) {
  if (!name.starts_with(kModel)) return name;
  const std::string rest = name.substr(kModel.size());
  for (const auto& [own, usual] : kOnce) {
    if (rest.starts_with(usual)) return str(kBackbone, own, rest.substr(usual.size()));
  }
  return str(kBackbone, rest);
}

namespace {

bool is_part(const Json& config) {
  return get_bool(config, "language_model_part", false);
}

}  // namespace

bool has_own_names(const Json& config) {
  return has_backbone(config) || is_part(config);
}

std::string stored_name(const Json& config, std::string name) {
  const bool is_addition = name.find(".lora_") != name.npos;
  if (is_part(config) && is_addition && name.starts_with(kModel)) {
    return str(kModel, kPart, name.substr(kModel.size()));
  }
  if (!has_backbone(config)) return name;
  std::string stored = backbone_name(std::move(name));
  const bool has_modules = is_addition && get_string(config, "model_type", "") == "nemotron_h";
  if (has_modules && stored.starts_with(kBackbone)) stored.replace(0, kBackbone.size(), kModel);
  return stored;
}

std::string name_in_language_model(std::string_view name) {
  if (name.starts_with(kPart)) return std::string(name.substr(kPart.size()));
  const bool is_inside = name.starts_with(kModel) && name.substr(kModel.size()).starts_with(kPart);
  return is_inside ? str(kModel, name.substr(kModel.size() + kPart.size())) : "";
}

NamedArrays with_usual_names(NamedArrays tensors) {
  NamedArrays named;
  for (auto& [name, array] : tensors) {
    const auto [at, is_new] = named.emplace(usual_name(name), std::move(array));
    if (!is_new) fail(ErrorKind::kMalformed, "tensor ", quoted(at->first), " is there twice");
  }
  return named;
}

}  // namespace lumen::io
