// What files of models with Mamba-2 say of it, and those of Nemotron-H and Falcon-H1 beside.
// Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <algorithm>
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/gguf_families.h"
#include "lib/io/layer_windows.h"

namespace lumen::io {
namespace {

constexpr const char* kLatentSize = "moe_latent_size";
constexpr MambaSizes kNemotronSizes = {"mamba_num_heads", "mamba_head_dim", "n_groups",
                                       "ssm_state_size", "conv_kernel"};
constexpr MambaSizes kMamba2Sizes = {"num_heads", "head_dim", "n_groups", "state_size",
                                     "conv_kernel"};
constexpr MambaSizes kFalconSizes = {"mamba_n_heads", "mamba_d_head", "mamba_n_groups",
                                     "mamba_d_state", "mamba_d_conv"};

int64_t layers_of(const Json& config) {
  return config["num_hidden_layers"].get<int64_t>();
}

// Layers with a feed-forward length are such, or have experts; of the others those with heads of
// keys attend.
Json single_layer_types(const ArchitectureKeys& keys, const Json& config, bool has_experts) {
  const int64_t layers = layers_of(config);
  const auto lengths = keys.per_layer(kLength, layers, limits::kDim);
  const auto heads = keys.per_layer(kKvHeads, layers, limits::kHeads);
  const auto refuse_others = [&](const char* key, const std::vector<int64_t>& counts) {
    const int64_t most = *std::max_element(counts.begin(), counts.end());
    for (const int64_t count : counts) {
      if (count == 0 || count == most) continue;
      fail(ErrorKind::kUnsupported, gguf_architecture(config), ".", key, ": layers with ", count,
           " and ", most, ": different numbers are not supported");
    }
  };
  refuse_others(kLength, lengths);
  refuse_others(kKvHeads, heads);
  Json types = Json::array();
  for (size_t i = 0; i < lengths.size(); ++i) {
    types.push_back(lengths[i] > 0 ? (has_experts ? "moe" : "mlp")
                    : heads[i] > 0 ? "attention"
                                   : "mamba");
  }
  return types;
}

void read_any_nemotron(const ArchitectureKeys& keys, bool has_experts, Json& config) {
  Json types = single_layer_types(keys, config, has_experts);
  leave_out_guessing_layers(keys, config);
  while (std::ssize(types) > layers_of(config)) types.erase(types.size() - 1);
  config["layers_block_type"] = std::move(types);
  config["hidden_act"] = config["mlp_hidden_act"] = "relu2";
  config["use_conv_bias"] = keys.has_in_layers(kConvBias);
  read_mamba_sizes(keys, kNemotronSizes, config);
}

void write_any_nemotron(const Json& config, const KeyWriter& keys) {
  require_no_bias(config, "use_bias");
  require_no_step_limit(config);
  keys.set(kRotates, false);
  // Beside the same for norms of RMS, which all layers have: llama.cpp asks for both.
  keys.number(kNormEpsilon, get_number(config, "rms_norm_eps", 0, 1));
  std::vector<bool> without_attention;
  std::vector<int32_t> lengths;  // by which readers know what a layer is
  const int64_t length =
      get_int(config, expert_count(config) > 0 ? "moe_intermediate_size" : "intermediate_size", 1,
              limits::kDim);
  for (const SingleLayer layer : single_layers(config)) {
    without_attention.push_back(layer != SingleLayer::kAttention);
    const bool has_any = layer == SingleLayer::kMlp || layer == SingleLayer::kExperts;
    lengths.push_back(has_any ? static_cast<int32_t>(length) : 0);
  }
  keys.set(kLength, lengths);
  write_kv_heads(config, without_attention, keys);
  write_mamba_sizes(config, kNemotronSizes, keys);
}

}  // namespace

void read_mamba_sizes(const ArchitectureKeys& keys, const MambaSizes& sizes, Json& config) {
  config[sizes.heads] = keys.integer(kTimeStepRank, limits::kHeads);
  config[sizes.head_dim] = inner_head_dim(keys, config);
  config[sizes.groups] = keys.integer(kGroupCount, limits::kHeads);
  config[sizes.state] = keys.integer(kStateSize, limits::kDim);
  config[sizes.conv] = keys.integer(kConvKernel, kMostConvTaps, 2);
}

void write_mamba_sizes(const Json& config, const MambaSizes& sizes, const KeyWriter& keys) {
  const int64_t heads = get_int(config, sizes.heads, 1, limits::kHeads);
  keys.integer(kTimeStepRank, heads);
  keys.integer(kInnerSize, heads * get_int(config, sizes.head_dim, 1, limits::kDim));
  keys.integer(kGroupCount, get_int(config, sizes.groups, 1, limits::kHeads));
  keys.integer(kStateSize, get_int(config, sizes.state, 1, limits::kDim));
  keys.integer(kConvKernel, get_int(config, sizes.conv, 2, kMostConvTaps));
}

void set_expansion(const ArchitectureKeys& keys, const char* name, Json& config) {
  const int64_t inner = keys.integer(kInnerSize, limits::kDim);
  const int64_t hidden = config["hidden_size"].get<int64_t>();
  if (inner % hidden == 0) {  // as an integer, which transformers asks for
    config[name] = inner / hidden;
  } else {
    config[name] = static_cast<double>(inner) / static_cast<double>(hidden);
  }
}

void require_no_step_limit(const Json& config) {
  const Json* limit = find_value(config, "time_step_limit");
  if (limit == nullptr) return;
  const bool has_none =
      limit->is_array() && limit->size() == 2 && (*limit)[0] == 0 && !(*limit)[1].is_number();
  if (has_none) return;
  cannot_write(gguf_architecture(config), "time_step_limit", "take all time steps as they are");
}

void read_nemotron_h(const ArchitectureKeys& keys, Json& config) {
  read_any_nemotron(keys, false, config);
}

void write_nemotron_h(const Json& config, const KeyWriter& keys) {
  write_any_nemotron(config, keys);
}

void read_nemotron_h_moe(const ArchitectureKeys& keys, Json& config) {
  read_any_nemotron(keys, true, config);
  read_grouped_experts(keys, /*only_sigmoid=*/true, config);
  config["moe_shared_expert_intermediate_size"] = keys.integer(kSharedLength, limits::kDim);
  if (keys.has(kLatentSize)) config[kLatentSize] = keys.integer(kLatentSize, limits::kDim);
}

void write_nemotron_h_moe(const Json& config, const KeyWriter& keys) {
  const std::vector<SingleLayer> layers = single_layers(config);
  if (std::find(layers.begin(), layers.end(), SingleLayer::kMlp) != layers.end()) {
    cannot_write("nemotron_h_moe", "layers of type mlp beside those with experts",
                 "look for experts in all that have a feed-forward length");
  }
  require_no_bias(config, "mlp_bias");
  write_any_nemotron(config, keys);
  write_grouped_experts(config, /*sigmoid=*/true, keys);
  keys.integer(kSharedLength,
               get_int(config, "moe_shared_expert_intermediate_size", 1, limits::kDim));
  if (find_value(config, kLatentSize) == nullptr) return;
  keys.integer(kLatentSize, get_int(config, kLatentSize, 1, limits::kDim));
}

void read_falcon_h1(const ArchitectureKeys& keys, Json& config) {
  read_mamba_sizes(keys, kFalconSizes, config);
  config["mamba_d_ssm"] = keys.integer(kInnerSize, limits::kDim);
  config["mamba_norm_before_gate"] = false;
  config["mamba_conv_bias"] = keys.has_in_layers(kConvBias);
  config["mamba_rms_norm"] = keys.has_in_layers("ssm_norm.weight");
  config["multipliers_in_weights"] = true;
}

void write_falcon_h1(const Json& config, const KeyWriter& keys) {
  require_no_bias(config, "mamba_proj_bias");
  require_no_bias(config, "projectors_bias");
  require_no_step_limit(config);
  if (get_bool(config, "mamba_rms_norm", false) &&
      get_bool(config, "mamba_norm_before_gate", true)) {
    cannot_write("falcon-h1", "mamba_norm_before_gate true", "take the norm of what is gated");
  }
  write_mamba_sizes(config, kFalconSizes, keys);
}

void read_mamba2(const ArchitectureKeys& keys, Json& config) {
  read_mamba_sizes(keys, kMamba2Sizes, config);
  config["intermediate_size"] = keys.integer(kInnerSize, limits::kDim);
  config["use_conv_bias"] = keys.has_in_layers(kConvBias);
  set_expansion(keys, "expand", config);
}

void write_mamba2(const Json& config, const KeyWriter& keys) {
  require_no_bias(config, "use_bias");
  require_no_step_limit(config);
  write_mamba_sizes(config, kMamba2Sizes, keys);
}

}  // namespace lumen::io
