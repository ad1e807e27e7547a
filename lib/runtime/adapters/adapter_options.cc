#include "lib/runtime/adapters/adapter_options.h"

#include <algorithm>
#include <utility>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/runtime/adapters/lora.h"
#include "lib/text/regex.h"

namespace lumen::runtime {
namespace {

constexpr const char* kInstead =
    "; merge it into the model with PEFT (merge_and_unload), if that can be";

// Keys with which PEFT computes something else than W + scale B A, and what that is called.
constexpr std::pair<const char*, const char*> kOtherMethods[] = {
    {"use_qalora", "QA-LoRA adapters"},
    {"use_bdlora", "block-diagonal adapters"},
    {"alora_invocation_tokens", "activated adapters, which begin at given tokens,"},
    {"arrow_config", "adapters that Arrow chooses for each token"},
    {"kasa_config", "KaSA adapters"},
    {"monteclora_config", "MonteCLoRA adapters"},
    {"lora_bias", "biases of lora_B"},
    {"layer_replication", "models with repeated layers"},
    {"trainable_token_indices", "adapters with single rows of the embedding"}};

// A member that is there and not null, false or empty.
bool is_set(const io::Json& config, const char* key) {
  const io::Json* value = io::find_value(config, key);
  return value != nullptr && (value->is_boolean() ? value->get<bool>() : !value->empty());
}

// The value of a pattern in `config` that fits the layer `path`, like PEFT the first; or
// `fallback`.
double pattern_value(const io::Json& config, const char* key, const std::string& path,
                     double fallback) {
  const io::Json* patterns = io::find_value(config, key);
  if (patterns == nullptr) return fallback;
  for (const auto& [pattern, value] : patterns->items()) {
    const text::Regex regex("^(?:.*\\.)?(?:" + pattern + ")$");
    bool fits = false;
    text::RegexMatcher(regex).find_all(path, [&](size_t, size_t) { fits = true; });
    if (fits) return io::get_number(*patterns, pattern, 0, 1e9);
  }
  return fallback;
}

// Refuses what is not W + scale B A with the W of the model.
void check_method(const io::Json& config) {
  for (const auto& [key, what] : kOtherMethods) {
    if (!is_set(config, key)) continue;
    fail(ErrorKind::kUnsupported, key, ": ", what, " are not supported", kInstead);
  }
  const io::Json* init = io::find_value(config, "init_lora_weights");
  if (init == nullptr || !init->is_string()) return;
  const auto name = init->get<std::string>();
  for (const char* known : {"gaussian", "orthogonal", "eva", "mica"}) {
    if (name == known) return;
  }
  fail(ErrorKind::kUnsupported, "init_lora_weights is ", quoted(name),
       ", which changes the model's own weights before the adapter is added; save it for the "
       "unchanged ones (PEFT: save_pretrained with path_initial_model_for_weight_conversion)");
}

}  // namespace

nn::LoraOptions read_options(const io::Json& config, const NamedArrays& tensors,
                             const std::map<std::string, std::string>& paths) {
  const std::string type = io::get_string(config, "peft_type", "LORA");
  if (type != "LORA") {
    fail(ErrorKind::kUnsupported, "peft_type ", quoted(type), " is not supported; known: LORA");
  }
  check_method(config);
  nn::LoraOptions options;
  options.rank = io::get_int(config, "r", 1, limits::kDim);
  const double alpha = io::get_number(config, "lora_alpha", 0, 1e9);
  const bool rslora = io::get_bool(config, "use_rslora", false);
  options.scale = nn::lora_scale(alpha, options.rank, rslora);
  for (const auto& [name, array] : tensors) {
    if (!name.ends_with(kLoraA)) continue;
    const std::string place = name.substr(0, name.size() - kLoraA.size());  // "….q_proj."
    const auto other = paths.find(place);
    std::string path = other != paths.end() ? other->second : place.substr(0, place.size() - 1);
    if (names_parameter(config, path + ".weight")) path += ".weight";
    const double own_alpha = pattern_value(config, "alpha_pattern", path, alpha);
    const auto rank = static_cast<int64_t>(
        pattern_value(config, "rank_pattern", path, static_cast<double>(options.rank)));
    if (rank < 1) fail(ErrorKind::kMalformed, "rank_pattern: ", quoted(path), " has no rank");
    if (own_alpha == alpha && rank == options.rank) continue;
    options.own[place] = {rank, nn::lora_scale(own_alpha, rank, rslora)};
  }
  return options;
}

std::vector<std::string> read_targets(const io::Json& config) {
  std::vector<std::string> targets;
  const io::Json* modules = io::find_value(config, "target_modules");
  if (modules == nullptr || !modules->is_array()) return targets;
  for (const char* key : {"layers_to_transform", "layers_pattern", "exclude_modules"}) {
    if (is_set(config, key)) return targets;
  }
  for (const io::Json& module : *modules) {
    if (module.is_string()) targets.push_back(module.get<std::string>());
  }
  return targets;
}

bool names_parameter(const io::Json& config, std::string_view path) {
  const io::Json* targets = io::find_value(config, "target_parameters");
  if (targets == nullptr || !targets->is_array()) return false;
  return std::ranges::any_of(*targets, [&](const io::Json& target) {
    if (!target.is_string()) return false;
    const auto& name = target.get_ref<const std::string&>();
    return path == name || path.ends_with("." + name);
  });
}

nn::LoraOptions scaled_by_rank(double alpha, const NamedArrays& tensors) {
  nn::LoraOptions options;
  for (const auto& [name, array] : tensors) {
    if (!name.ends_with(kLoraA)) continue;
    const int64_t rank = array.shape()[0];
    const double scale = alpha == 0 ? 1 : nn::lora_scale(alpha, rank, false);
    if (options.rank == 0) options.rank = rank, options.scale = scale;
    if (rank != options.rank)
      options.own[name.substr(0, name.size() - kLoraA.size())] = {rank, scale};
  }
  return options;
}

}  // namespace lumen::runtime
