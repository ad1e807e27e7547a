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
// Whether attention rotates at all; true if the key is missing.
constexpr const char* kRotates = "rope.scaling.finetuned";

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
  const int64_t heads = keys.integer(kTimeStepRank, limits::kHeads);
  const int64_t head_dim = inner_head_dim(keys, config), inner = heads * head_dim;
  config["mamba_n_heads"] = heads;
  config["mamba_d_head"] = head_dim;
  config["mamba_n_groups"] = keys.integer(kGroupCount, limits::kHeads);
  config["mamba_d_state"] = keys.integer(kStateSize, limits::kDim);
  config["mamba_d_conv"] = keys.integer(kConvKernel, kMostConvTaps, 2);
  config["mamba_proj_bias"] = false;
  const int64_t hidden = config["hidden_size"].get<int64_t>();
  if (inner % hidden == 0) {
    config["mamba_expand"] = inner / hidden;
  } else {
    config["mamba_expand"] = static_cast<double>(inner) / static_cast<double>(hidden);
  }
}

void write_granitehybrid(const Json& config, const KeyWriter& keys) {
  require_no_bias(config, "mamba_proj_bias");
  if (const Json* limit = find_value(config, "time_step_limit")) {
    const bool has_none =
        limit->is_array() && limit->size() == 2 && (*limit)[0] == 0 && !(*limit)[1].is_number();
    if (!has_none) {
      cannot_write("granitehybrid", "time_step_limit", "take all time steps as they are");
    }
  }
  write_multipliers(config, keys);
  if (expert_count(config) > 0) write_all_experts(config, keys);
  keys.set(kRotates, get_string(config, "position_embedding_type", "") == "rope");
  const int64_t heads = get_int(config, "mamba_n_heads", 1, limits::kHeads);
  keys.integer(kTimeStepRank, heads);
  keys.integer(kInnerSize, heads * get_int(config, "mamba_d_head", 1, limits::kDim));
  keys.integer(kGroupCount, get_int(config, "mamba_n_groups", 1, limits::kHeads));
  keys.integer(kStateSize, get_int(config, "mamba_d_state", 1, limits::kDim));
  keys.integer(kConvKernel, get_int(config, "mamba_d_conv", 2, kMostConvTaps));
}

}  // namespace lumen::io
