// What files of Granite say: multipliers, experts, and of Granite 4.0 the sizes of Mamba-2.
// Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <cmath>
#include <string>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/gguf_families.h"
#include "lib/io/layer_windows.h"

namespace lumen::io {
namespace {

struct Multiplier {
  const char *gguf, *hugging_face;
};
constexpr Multiplier kGraniteMultipliers[] = {{"attention.scale", "attention_multiplier"},
                                              {"embedding_scale", "embedding_multiplier"},
                                              {"residual_scale", "residual_multiplier"},
                                              {"logit_scale", "logits_scaling"}};
constexpr MambaSizes kSizes = {"mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state",
                               "mamba_d_conv"};

bool is_hybrid(const Json& config) {
  return get_string(config, "model_type") == "granitemoehybrid";
}

void read_multipliers(const ArchitectureKeys& keys, Json& config) {
  for (const Multiplier& multiplier : kGraniteMultipliers) {
    config[multiplier.hugging_face] = keys.number(multiplier.gguf, 1.0);
  }
}

void write_multipliers(const Json& config, const KeyWriter& keys) {
  for (const Multiplier& multiplier : kGraniteMultipliers) {
    keys.number(multiplier.gguf, get_number(config, multiplier.hugging_face, 1e-9, 1e9, 1));
  }
}

// Of the layer that all tokens go through beside experts; 0: there is none.
int64_t read_shared_length(const ArchitectureKeys& keys) {
  return keys.has(kSharedLength) ? keys.integer(kSharedLength, limits::kDim, 0) : 0;
}

void write_all_experts(const Json& config, const KeyWriter& keys) {
  write_experts(config, "num_local_experts", "intermediate_size", keys);
  if (get_string(config, "model_type") == "granitemoe") return;
  const int64_t shared = get_int(config, "shared_intermediate_size", 0, limits::kDim, 0);
  if (shared > 0) keys.integer(kSharedLength, shared);
}

// Layers without heads of keys have Mamba-2.
Json hybrid_layer_types(const ArchitectureKeys& keys, const Json& config) {
  const int64_t layers = config["num_hidden_layers"].get<int64_t>();
  const int64_t heads = config["num_key_value_heads"].get<int64_t>();
  Json types = Json::array();
  for (const int64_t count : keys.per_layer(kKvHeads, layers, limits::kHeads)) {
    if (count != 0 && count != heads) {
      fail(ErrorKind::kUnsupported, "granitehybrid.", kKvHeads, ": layers with ", count, " and ",
           heads, " heads: different numbers are not supported");
    }
    types.push_back(count == 0 ? "mamba" : "attention");
  }
  return types;
}

}  // namespace

void read_granite(const ArchitectureKeys& keys, Json& config) {
  read_multipliers(keys, config);
  if (keys.truth(kRotates, true)) return;
  fail(ErrorKind::kUnsupported, gguf_architecture(config), ".", kRotates,
       " false: such models without rotation are not supported");
}

void write_granite(const Json& config, const KeyWriter& keys) {
  if (!is_hybrid(config)) require_windows(config, gguf_architecture(config), nullptr);
  write_multipliers(config, keys);
}

void read_granitemoe(const ArchitectureKeys& keys, Json& config) {
  read_granite(keys, config);
  read_experts(keys, "num_local_experts", config);
  const int64_t shared = read_shared_length(keys);
  if (shared == 0) return;
  config["model_type"] = "granitemoeshared";
  config["shared_intermediate_size"] = shared;
}

void write_granitemoe(const Json& config, const KeyWriter& keys) {
  write_granite(config, keys);
  write_all_experts(config, keys);
}

void read_granitehybrid(const ArchitectureKeys& keys, Json& config) {
  read_multipliers(keys, config);
  config["position_embedding_type"] = keys.truth(kRotates, true) ? "rope" : "nope";
  config["linear_inputs_apart"] = true;
  if (expert_count(keys) > 0) {
    read_experts(keys, "num_local_experts", config);
    config["intermediate_size"] =
        keys.integer_or(config["intermediate_size"].get<int64_t>(), kExpertLength, limits::kDim);
    config["shared_intermediate_size"] = read_shared_length(keys);
  } else {
    config["num_local_experts"] = 0;
    config["num_experts_per_tok"] = 0;
    config["shared_intermediate_size"] = Json(config["intermediate_size"]);
  }
  config["layer_types"] = hybrid_layer_types(keys, config);
  read_mamba_sizes(keys, kSizes, config);
  config["mamba_proj_bias"] = false;
  config["mamba_conv_bias"] = keys.has_in_layers(kConvBias);
  set_expansion(keys, "mamba_expand", config);
}

void write_granitehybrid(const Json& config, const KeyWriter& keys) {
  require_no_bias(config, "mamba_proj_bias");
  require_no_step_limit(config);
  write_multipliers(config, keys);
  if (expert_count(config) > 0) write_all_experts(config, keys);
  keys.set(kRotates, get_string(config, "position_embedding_type", "") == "rope");
  write_kv_heads(config, mamba_layers(config), keys);
  write_mamba_sizes(config, kSizes, keys);
}

// Bases of rotation are the model's in all layers that rotate.
constexpr const char* kRotatingLayers = "attention.rope_pattern";

void read_granite_swa(const ArchitectureKeys& keys, Json& config) {
  read_multipliers(keys, config);
  const int64_t layers = config["num_hidden_layers"].get<int64_t>();
  config["sliding_window"] = keys.integer(kWindow, limits::kContext);
  config["layer_types"] = layer_types_of(keys.flags(kWindowPattern, layers));
  const double theta = config["rope_theta"].get<double>();
  config["layer_rope_theta"] = std::vector<double>(static_cast<size_t>(layers), theta);
  if (keys.has(kRotatingLayers)) {
    const std::vector<bool> rotates = keys.flags(kRotatingLayers, layers);
    for (size_t i = 0; i < rotates.size(); ++i) {
      if (!rotates[i]) config["layer_rope_theta"][i] = 0.0;
    }
  }
  if (expert_count(keys) == 0) return;
  config["model_type"] = "granitemoe_swa";
  read_experts(keys, "num_local_experts", config);
  config["shared_intermediate_size"] = 0;
}

void write_granite_swa(const Json& config, const KeyWriter& keys) {
  const double theta = get_number(config, "rope_theta", 1e-3, 1e12);
  std::vector<bool> rotates;
  if (const Json* list = find_value(config, "layer_rope_theta")) {
    for (const Json& own : *list) {
      if (own != 0 && own != theta) {
        cannot_write("granite_swa", "layer_rope_theta with other bases than rope_theta",
                     "rotate all layers by one");
      }
      rotates.push_back(own != 0);
    }
  }
  if (get_int(config, "shared_intermediate_size", 0, limits::kDim, 0) > 0) {
    fail(
        ErrorKind::kUnsupported,
        "shared_intermediate_size: what all tokens go through beside the experts cannot be written "
        "as GGUF for granite_swa by Lumen; a Hugging Face directory keeps it");
  }
  write_multipliers(config, keys);
  keys.integer(kWindow, get_int(config, "sliding_window", 1, limits::kContext));
  keys.set(kWindowPattern, windowed_layers(config));
  if (!rotates.empty()) keys.set(kRotatingLayers, rotates);
  if (expert_count(config) > 0) write_all_experts(config, keys);
}

}  // namespace lumen::io
