// What files of models with Gated DeltaNets say (Qwen3-Next, Qwen3.5): keys of state space models
// tell of those. Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <algorithm>
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/gguf_families.h"
#include "lib/io/layer_windows.h"

namespace lumen::io {
namespace {

constexpr const char *kKeyHeads = kGroupCount, *kValueHeads = kTimeStepRank;
constexpr const char* kFullInterval = "full_attention_interval";
constexpr int64_t kFullPeriod = 4;

void read_delta_net(const ArchitectureKeys& keys, Json& config) {
  say_rotary_factor(config);
  config["rms_norm_offset"] = 0;  // the files have the sums
  config["linear_conv_kernel_dim"] = keys.integer(kConvKernel, kMostConvTaps, 2);
  config["linear_key_head_dim"] = keys.integer(kStateSize, limits::kDim);
  config["linear_num_key_heads"] = keys.integer(kKeyHeads, limits::kHeads);
  config["linear_num_value_heads"] = keys.integer(kValueHeads, limits::kHeads);
  config["linear_value_head_dim"] = inner_head_dim(keys, config);
  leave_out_guessing_layers(keys, config);
  const int64_t period = keys.integer_or(kFullPeriod, kFullInterval, limits::kLayers);
  const int64_t layers = config["num_hidden_layers"].get<int64_t>();
  config["layer_types"] = periodic_layer_types(layers, period, "linear_attention");
}

// The n with which every n-th layer has attention, and no other. Throws if there is none.
int64_t full_attention_interval(const Json& config) {
  const std::vector<bool> linear = linear_attention_layers(config);
  const auto first = std::find(linear.begin(), linear.end(), false);
  const int64_t period = first - linear.begin() + 1;
  for (size_t i = 0; i < linear.size(); ++i) {
    if (linear[i] == ((static_cast<int64_t>(i) + 1) % period != 0)) continue;
    cannot_write(gguf_architecture(config), "layer_types without a period",
                 "look for attention in every n-th layer");
  }
  return period;
}

void write_delta_net(const Json& config, const KeyWriter& keys) {
  require_no_bias(config, "attention_bias");
  const int64_t dim = get_int(config, "linear_key_head_dim", 1, limits::kDim);
  const int64_t heads = get_int(config, "linear_num_value_heads", 1, limits::kHeads);
  const int64_t value_dim = get_int(config, "linear_value_head_dim", 1, limits::kDim);
  if (dim != value_dim) {
    cannot_write(gguf_architecture(config),
                 "another linear_value_head_dim than linear_key_head_dim",
                 "look for heads of one size");
  }
  keys.integer(kConvKernel, get_int(config, "linear_conv_kernel_dim", 2, kMostConvTaps));
  keys.integer(kStateSize, dim);
  keys.integer(kKeyHeads, get_int(config, "linear_num_key_heads", 1, limits::kHeads));
  keys.integer(kValueHeads, heads);
  keys.integer(kInnerSize, heads * value_dim);
  keys.integer(kFullInterval, full_attention_interval(config));
}

}  // namespace

int64_t inner_head_dim(const ArchitectureKeys& keys, const Json& config) {
  const int64_t heads = keys.integer(kTimeStepRank, limits::kHeads);
  const int64_t inner = keys.integer(kInnerSize, limits::kDim);
  if (inner % heads == 0) return inner / heads;
  const std::string prefix = gguf_architecture(config) + ".";
  fail(ErrorKind::kMalformed, prefix, kInnerSize, " ", inner, " is not a multiple of ", prefix,
       kTimeStepRank, " ", heads);
}

void read_qwen35(const ArchitectureKeys& keys, Json& config) {
  read_delta_net(keys, config);
  config["linear_heads_tiled"] = true;
}

void read_qwen35moe(const ArchitectureKeys& keys, Json& config) {
  read_qwen35(keys, config);
  read_shared_experts(keys, true, config);
}

void read_qwen3next(const ArchitectureKeys& keys, Json& config) {
  read_delta_net(keys, config);
  config["linear_inputs_apart"] = keys.has_tensor(0, "attn_gate.weight");
  read_shared_experts(keys, true, config);
}

void write_qwen35(const Json& config, const KeyWriter& keys) {
  write_delta_net(config, keys);
  write_sections(config, 1.0 / 3, keys);
}

void write_qwen35moe(const Json& config, const KeyWriter& keys) {
  write_qwen35(config, keys);
  write_shared_experts(config, true, keys);
}

void write_qwen3next(const Json& config, const KeyWriter& keys) {
  write_delta_net(config, keys);
  write_shared_experts(config, true, keys);
}

}  // namespace lumen::io
