#include "lib/runtime/adapters/adapter_names.h"

#include <algorithm>
#include <utility>

#include "lib/io/backbone_names.h"

namespace lumen::runtime {
namespace {

// Granite's files have a layer in the router, which is a parameter of it in transformers 5.
constexpr std::string_view kRouter = ".block_sparse_moe.router.",
                           kNestedRouter = ".block_sparse_moe.router.layer.";

constexpr std::string_view kGate = ".block_sparse_moe.gate.";

bool has_nested_router(const io::Json& model_config) {
  const std::string type = io::get_string(model_config, "model_type", "");
  return type.starts_with("granitemoe") && type != "granitemoe_swa";
}

}  // namespace

bool is_embedding(std::string_view place) {
  return std::ranges::any_of(kEmbeddings, [&](std::string_view name) {
    return name.starts_with(place) && name.substr(place.size()) == "weight";
  });
}

bool is_mixtral(const io::Json& model_config) {
  const std::string type = io::get_string(model_config, "model_type", "");
  return type == "mixtral" || type == "minimax_m2" || type == "phimoe" || type == "kimi_linear";
}

std::vector<std::string> expert_matrices(const io::Json& model_config) {
  const bool is_lfm2 = io::get_string(model_config, "model_type", "") == "lfm2_moe";
  if (is_mixtral(model_config) || is_lfm2) return {"w1", "w3", "w2"};
  return {"gate_proj", "up_proj", "down_proj"};
}

std::string renamed_part(std::string name, std::string_view from, std::string_view to) {
  if (const size_t at = name.find(from); at != name.npos) name.replace(at, from.size(), to);
  return name;
}

std::string without_prefix(std::string_view name) {
  constexpr std::string_view kPrefix = "base_model.model.";
  return std::string(name.substr(name.starts_with(kPrefix) ? kPrefix.size() : 0));
}

std::string name_alone(std::string_view name) {
  const std::string own = without_prefix(name), alone = io::name_in_language_model(own);
  return alone.empty() ? own : alone;
}

std::string model_name(std::string_view full, const io::Json& model_config) {
  constexpr std::pair<std::string_view, std::string_view> kSpellings[] = {
      {".base_layer.", "."},
      {".lora_embedding_A", ".lora_A.weight"},
      {".lora_embedding_B", ".lora_B.weight"},
      {".lora_magnitude_vector.weight", ".lora_magnitude_vector"}};
  std::string name = name_alone(full);
  for (const auto& [from, to] : kSpellings) name = renamed_part(std::move(name), from, to);
  // transformers 5 has other names than files.
  if (is_mixtral(model_config)) {
    for (const std::string_view router : {".mlp.gate.", ".mlp.router."}) {
      name = renamed_part(std::move(name), router, kGate);
    }
  }
  if (has_nested_router(model_config) && name.find(kNestedRouter) == name.npos) {
    name = renamed_part(std::move(name), kRouter, kNestedRouter);
  }
  return io::usual_name(model_config, std::move(name));
}

std::string router_name_in_peft(std::string name, const io::Json& model_config) {
  const bool is_phi = io::get_string(model_config, "model_type", "") == "phimoe";
  if (is_phi) name = renamed_part(std::move(name), kGate, ".mlp.router.");
  if (has_nested_router(model_config)) name = renamed_part(std::move(name), kNestedRouter, kRouter);
  return name;
}

}  // namespace lumen::runtime
