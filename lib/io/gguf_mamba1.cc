// What files of models with the mixer of the first Mamba say: Mamba, Falcon-Mamba and Jamba.
// Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/gguf_families.h"
#include "lib/io/layer_windows.h"

namespace lumen::io {
namespace {

constexpr const char* kInnerNorms = "ssm.dt_b_c_rms";  // of steps, B and C
constexpr double kFalconEps = 1e-6;                    // of those, which files do not say

void write_sizes(int64_t inner, int64_t state, int64_t rank, int64_t kernel,
                 const KeyWriter& keys) {
  keys.integer(kInnerSize, inner);
  keys.integer(kStateSize, state);
  keys.integer(kTimeStepRank, rank);
  keys.integer(kConvKernel, kernel);
}

// What readers look for.
constexpr int64_t kExpansion = 2;

void require_expansion(const Json& config, const char* key, int64_t inner) {
  if (inner == kExpansion * get_int(config, "hidden_size", 1, limits::kDim)) return;
  cannot_write(gguf_architecture(config), str("another ", key, " than 2"),
               "look for mixers twice as wide as the model");
}

void require_conv_bias(const Json& config, const char* key) {
  if (get_bool(config, key, true)) return;
  cannot_write(gguf_architecture(config), str(key, " false"), "look for a bias of the convolution");
}

// Which of the layers `has` is true of, as every period-th from an offset on; a period of all
// layers for one, and beyond them for none.
struct Period {
  int64_t period, offset;
};
Period period_of(const std::vector<bool>& has, const char* what, const Json& config) {
  const int64_t layers = std::ssize(has);
  const auto first = std::find(has.begin(), has.end(), true);
  if (first == has.end()) return {layers + 1, layers};
  const auto second = std::find(first + 1, has.end(), true);
  const int64_t offset = first - has.begin();
  const int64_t period =
      second == has.end() ? std::max(layers - offset, offset + 1) : second - first;
  for (int64_t i = 0; i < layers; ++i) {
    if (has[static_cast<size_t>(i)] == (i % period == offset)) continue;
    fail(ErrorKind::kUnsupported, gguf_architecture(config), ": layer ", i, ": layers with ", what,
         " that are not every n-th are not supported");
  }
  return {period, offset};
}

}  // namespace

void read_mamba(const ArchitectureKeys& keys, Json& config) {
  const bool has_norms = keys.truth(kInnerNorms, false);
  if (has_norms) {
    config["model_type"] = "falcon_mamba";
    config["mixer_rms_eps"] = kFalconEps;
  }
  const int64_t inner = keys.integer(kInnerSize, limits::kDim);
  config["intermediate_size"] = inner;
  config["state_size"] = keys.integer(kStateSize, limits::kDim);
  config["time_step_rank"] = keys.integer(kTimeStepRank, limits::kDim);
  config["conv_kernel"] = keys.integer(kConvKernel, kMostConvTaps, 2);
  config["use_conv_bias"] = keys.has_in_layers(kConvBias);
  config["use_bias"] = false;
  set_expansion(keys, "expand", config);
}

void write_mamba(const Json& config, const KeyWriter& keys) {
  require_no_bias(config, "use_bias");
  require_conv_bias(config, "use_conv_bias");
  const bool has_norms = get_string(config, "model_type") == "falcon_mamba";
  if (has_norms && get_number(config, "mixer_rms_eps", 0, 1, kFalconEps) != kFalconEps) {
    cannot_write("mamba", "another mixer_rms_eps than 1e-6", "do not find it in the file");
  }
  if (has_norms) keys.set(kInnerNorms, true);
  const int64_t inner = get_int(config, "intermediate_size", 1, limits::kDim);
  require_expansion(config, "expand", inner);
  write_sizes(inner, get_int(config, "state_size", 1, limits::kDim),
              get_int(config, "time_step_rank", 1, limits::kDim),
              get_int(config, "conv_kernel", 2, kMostConvTaps), keys);
}

void read_jamba(const ArchitectureKeys& keys, Json& config) {
  const int64_t layers = config["num_hidden_layers"].get<int64_t>();
  const int64_t hidden = config["hidden_size"].get<int64_t>();
  const int64_t inner = keys.integer(kInnerSize, limits::kDim);
  if (inner % hidden != 0) {
    fail(ErrorKind::kUnsupported, "jamba.", kInnerSize, " ", inner,
         " is not a multiple of jamba.embedding_length ", hidden, ": this is not supported");
  }
  config["mamba_expand"] = inner / hidden;
  config["mamba_d_state"] = keys.integer(kStateSize, limits::kDim);
  config["mamba_dt_rank"] = keys.integer(kTimeStepRank, limits::kDim);
  config["mamba_d_conv"] = keys.integer(kConvKernel, kMostConvTaps, 2);
  config["mamba_conv_bias"] = keys.has_in_layers(kConvBias);
  config["mamba_proj_bias"] = false;
  const int64_t heads = config["num_key_value_heads"].get<int64_t>();
  std::vector<bool> attends, sparse;
  for (const int64_t count : keys.per_layer(kKvHeads, layers, limits::kHeads)) {
    if (count != 0 && count != heads) {
      fail(ErrorKind::kUnsupported, "jamba.", kKvHeads, ": layers with ", count, " and ", heads,
           " heads: different numbers are not supported");
    }
    attends.push_back(count != 0);
  }
  if (expert_count(keys) > 0) {
    read_experts(keys, "num_experts", config);
  } else {
    config["num_experts"] = 0;
    config["num_experts_per_tok"] = 2;  // what the class has, as below
  }
  config["mlp_only_layers"] = Json::array();
  for (int64_t i = 0; i < layers; ++i) {
    sparse.push_back(keys.has_tensor(i, "ffn_gate_inp.weight"));
    if (!sparse.back()) config["mlp_only_layers"].push_back(i);
  }
  const Period attention = period_of(attends, "attention", config);
  config["attn_layer_period"] = attention.period;
  config["attn_layer_offset"] = attention.offset;
  const Period experts =
      expert_count(keys) > 0 ? period_of(sparse, "experts", config) : Period{2, 1};
  config["expert_layer_period"] = experts.period;
  config["expert_layer_offset"] = experts.offset;
}

void write_jamba(const Json& config, const KeyWriter& keys) {
  require_no_bias(config, "mamba_proj_bias");
  require_conv_bias(config, "mamba_conv_bias");
  const int64_t hidden = get_int(config, "hidden_size", 1, limits::kDim);
  const int64_t inner = get_int(config, "mamba_expand", 1, 64) * hidden;
  require_expansion(config, "mamba_expand", inner);
  write_sizes(inner, get_int(config, "mamba_d_state", 1, limits::kDim),
              get_int(config, "mamba_dt_rank", 1, limits::kDim),
              get_int(config, "mamba_d_conv", 2, kMostConvTaps), keys);
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  const int64_t period = get_int(config, "attn_layer_period", 1, limits::kLayers);
  const int64_t offset = get_int(config, "attn_layer_offset", 0, limits::kLayers);
  std::vector<bool> without_attention;
  for (int64_t i = 0; i < layers; ++i) without_attention.push_back(i % period != offset);
  write_kv_heads(config, without_attention, keys);
  if (expert_count(config) > 0) write_experts(config, "num_experts", "intermediate_size", keys);
}

}  // namespace lumen::io
