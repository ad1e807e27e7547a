// What files of mixtures of experts say of whose layers some have windows, or other heads: Command
// A+, Hy3, Laguna and Mellum 2. Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <algorithm>
#include <cmath>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/gguf_families.h"
#include "lib/io/layer_windows.h"

namespace lumen::io {
namespace {

// As transformers has what mlp_only_layers says.
void set_mlp_types(Json& config) {
  Json types = Json::array();
  for (const bool sparse : sparse_layers(config)) types.push_back(sparse ? "sparse" : "dense");
  config["mlp_layer_types"] = std::move(types);
}

}  // namespace

// Hy3: the correction of scores is a tensor that readers may miss.
void read_hy_v3(const ArchitectureKeys& keys, Json& config) {
  leave_out_guessing_layers(keys, config);
  const int64_t layers = config["num_hidden_layers"].get<int64_t>();
  Json dense = Json::array();
  for (int64_t i = 0; i < layers; ++i) {
    if (!keys.has_tensor(i, "ffn_gate_inp.weight")) dense.push_back(i);
  }
  read_grouped_experts(keys, /*only_sigmoid=*/true, config);
  const int64_t inner = config["moe_intermediate_size"].get<int64_t>();
  const int64_t shared = keys.integer_or(inner, kSharedLength, limits::kDim);
  if (shared % inner != 0) {
    fail(ErrorKind::kUnsupported, "hy_v3.", kSharedLength, " ", shared,
         " is no multiple of expert_feed_forward_length ", inner);
  }
  config["num_shared_experts"] = config["n_shared_experts"] = shared / inner;
  config["router_scaling_factor"] = Json(config["routed_scaling_factor"]);
  if (!config["norm_topk_prob"].get<bool>()) {
    fail(ErrorKind::kUnsupported, "hy_v3.", kNormalized,
         " false is not supported: weights of experts add up to 1");
  }
  config["first_k_dense_replace"] = dense.size();
  config["mlp_only_layers"] = std::move(dense);
  set_mlp_types(config);
}

void write_hy_v3(const Json& config, const KeyWriter& keys) {
  for (const char* key : {"attention_bias", "mlp_bias"}) require_no_bias(config, key);
  const int64_t shared = get_int(config, "n_shared_experts", 1, limits::kExperts);
  keys.integer(kSharedLength, shared * get_int(config, "moe_intermediate_size", 1, limits::kDim));
  write_dense_layers(config, keys);
  write_grouped_experts(config, /*sigmoid=*/true, keys);
}

// Mellum 2. All layers rotate by one base, those with a window unscaled.
void read_mellum(const ArchitectureKeys& keys, Json& config) {
  read_experts(keys, "num_experts", config);
  config["moe_intermediate_size"] = keys.integer(kExpertLength, limits::kDim);
  config["norm_topk_prob"] = true;
  config["mlp_only_layers"] = Json::array();
  set_mlp_types(config);
  config[kLocalBase] = keys.number(kLocalTheta, config["rope_theta"].get<double>());
  if (read_windows(keys, 4, config)) return;
  config["sliding_window"] = nullptr;
  config["layer_types"] = periodic_layer_types(config["num_hidden_layers"].get<int64_t>(), 1);
}

void write_mellum(const Json& config, const KeyWriter& keys) {
  require_own_output(config);
  require_no_bias(config, "attention_bias");
  const std::vector<bool> sparse = sparse_layers(config);
  if (std::find(sparse.begin(), sparse.end(), false) != sparse.end()) {
    cannot_write("mellum", "layers without experts", "look for experts in every layer");
  }
  if (!get_bool(config, "norm_topk_prob", true)) {
    cannot_write("mellum", "norm_topk_prob false", "make the chosen experts' weights add up to 1");
  }
  write_experts(config, "num_experts", "moe_intermediate_size", keys);
  const std::vector<bool> windowed = windowed_layers(config);
  if (std::find(windowed.begin(), windowed.end(), true) == windowed.end()) return;
  const double local = get_number(config, kLocalBase, 1e-3, 1e12, 10000);
  if (local != get_number(config, "rope_theta", 1e-3, 1e12)) {
    cannot_write("mellum", "another rope_theta of layers with a window", "rotate all by one base");
  }
  write_window(config, keys);
  keys.set(kWindowPattern, windowed);
  keys.number(kLocalTheta, local);
}

// Laguna. The first of so many layers, and every so-manieth behind it, sees all.
constexpr int64_t kLagunaPeriod = 4;
constexpr const char* kLocalRotaryDim = "rope.dimension_count_swa";

void read_laguna(const ArchitectureKeys& keys, Json& config) {
  const int64_t layers = config["num_hidden_layers"].get<int64_t>();
  const int64_t head_dim = config["head_dim"].get<int64_t>();
  const std::vector<int64_t> heads = keys.per_layer(kQueryHeads, layers, limits::kHeads);
  config["num_attention_heads_per_layer"] = heads;
  config["num_attention_heads"] = heads[0];
  config["gating"] =
      keys.rows_of("blk.0.attn_gate.weight", heads[0]) == heads[0] ? "per-head" : "per-element";
  say_rotary_factor(config);
  config["first_k_dense_replace"] = read_dense_layers(keys, config);
  set_mlp_types(config);
  read_experts(keys, "num_experts", config);
  config["moe_intermediate_size"] = keys.integer(kExpertLength, limits::kDim);
  config["shared_expert_intermediate_size"] = keys.integer(kSharedLength, limits::kDim);
  config["moe_routed_scaling_factor"] = keys.number(kExpertScale, 1.0);
  read_gating(keys, /*only=*/true, config);
  if (!keys.truth(kNormalized, true)) {
    fail(ErrorKind::kUnsupported, "laguna.", kNormalized,
         " false is not supported: weights of experts add up to 1");
  }
  Json types = periodic_layer_types(layers, 1);
  if (const int64_t window = read_window(keys); window > 0) {
    config["sliding_window"] = window;
    const int64_t period = keys.has_array(kWindowPattern)
                               ? 0
                               : keys.integer_or(kLagunaPeriod, kWindowPattern, limits::kLayers);
    if (period == 0) {
      types = layer_types_of(keys.flags(kWindowPattern, layers));
    } else {
      for (int64_t i = 0; i < layers; ++i) {
        if (i % period != 0) types[static_cast<size_t>(i)] = "sliding_attention";
      }
    }
    config[kLocalBase] = keys.number(kLocalTheta, config["rope_theta"].get<double>());
    config["local_rotary_factor"] =
        static_cast<double>(keys.integer_or(head_dim, kLocalRotaryDim, head_dim)) /
        static_cast<double>(head_dim);
  }
  config["layer_types"] = std::move(types);
}

void write_laguna(const Json& config, const KeyWriter& keys) {
  constexpr const char* kName = "laguna";
  require_no_bias(config, "attention_bias");
  if (get_number(config, "moe_router_logit_softcapping", 0, 1e6, 0) != 0) {
    cannot_write(kName, "moe_router_logit_softcapping", "take the router's logits as they are");
  }
  std::vector<int32_t> heads;
  for (const int64_t own : heads_of_layers(config)) heads.push_back(static_cast<int32_t>(own));
  keys.set(kQueryHeads, heads);
  write_dense_layers(config, keys);
  write_experts(config, "num_experts", "moe_intermediate_size", keys);
  keys.integer(kSharedLength, get_int(config, "shared_expert_intermediate_size", 1, limits::kDim));
  keys.number(kExpertScale, get_number(config, "moe_routed_scaling_factor", 0, 1e6, 1));
  keys.set(kNormalized, true);
  keys.integer(kGating, kSigmoid);
  const std::vector<bool> windowed = windowed_layers(config);
  const int64_t layers = std::ssize(windowed);
  const auto first = std::find(windowed.begin(), windowed.end(), true);
  if (first == windowed.end()) return;
  int64_t period = 1;  // up to the second layer that sees all
  while (period < layers && windowed[static_cast<size_t>(period)]) ++period;
  for (int64_t i = 0; i < layers; ++i) {
    if (windowed[static_cast<size_t>(i)] == (i % period != 0)) continue;
    cannot_write(kName, "other layers that see all than the first and every n-th behind it",
                 "look for them there");
  }
  write_window(config, keys);
  if (period != kLagunaPeriod) keys.integer(kWindowPattern, period);
  keys.number(kLocalTheta, get_number(config, kLocalBase, 1e-3, 1e12, 10000));
  const double head_dim = get_number(config, "head_dim", 1, limits::kDim);
  const double part = get_number(config, "local_rotary_factor", 0, 1, 1);
  keys.integer(kLocalRotaryDim, static_cast<int64_t>(part * head_dim + 1e-6));
}

// Command A+. The usual length is that of layers without experts, which rotate.
void read_cohere2moe(const ArchitectureKeys& keys, Json& config) {
  config["has_layer_norms"] = !keys.has("attention.layer_norm_rms_epsilon");
  config["layer_norm_eps"] = Json(config["rms_norm_eps"]);
  leave_out_guessing_layers(keys, config);
  config["prefix_dense_intermediate_size"] = Json(config["intermediate_size"]);
  config["intermediate_size"] = keys.integer(kExpertLength, limits::kDim);
  config["prefix_dense_sliding_window_pattern"] = 1;
  config["first_k_dense_replace"] = read_dense_layers(keys, config);
  set_mlp_types(config);
  read_experts(keys, "num_experts", config);
  config["num_shared_experts"] = keys.integer_or(0, kSharedCount, limits::kExperts);
  config["shared_expert_combination_strategy"] = "average";
  // Sigmoids, where a file does not say it.
  const bool sigmoid = !keys.has(kGating) || read_gating(keys, /*only=*/false, config);
  config["expert_selection_fn"] = sigmoid ? "sigmoid" : "softmax";
  config["norm_topk_prob"] = keys.truth(kNormalized, false);
  if (!sigmoid && !config["norm_topk_prob"].get<bool>()) {
    fail(ErrorKind::kUnsupported, "cohere2moe.", kNormalized,
         " false with probabilities is not supported: those of the chosen experts add up to 1");
  }
  config["logit_scale"] = keys.number("logit_scale");
  if (!read_windows(keys, 4, config)) {
    fail(ErrorKind::kUnsupported, "cohere2moe.", kWindow,
         " 0: models of this kind without windows are not supported");
  }
}

void write_cohere2moe(const Json& config, const KeyWriter& keys) {
  constexpr const char* kName = "cohere2moe";
  require_no_bias(config, "attention_bias");
  write_dense_layers(config, keys);
  const std::vector<bool> sparse = sparse_layers(config), windowed = windowed_layers(config);
  const bool rotates = config["prefix_dense_sliding_window_pattern"] == 1;
  for (size_t i = 0; i < sparse.size() && !rotates; ++i) {
    if (sparse[i] || windowed[i]) continue;
    cannot_write(kName, "layers without experts, window and rotation", "rotate them");
  }
  const int64_t shared = get_int(config, "num_shared_experts", 0, limits::kExperts, 0);
  const bool sums = get_string(config, "shared_expert_combination_strategy", "average") == "sum";
  if (shared > 0 && sums) {
    cannot_write(kName, "shared_expert_combination_strategy sum", "halve what both give");
  }
  write_experts(config, "num_experts", "intermediate_size", keys);
  keys.integer(kSharedCount, shared);
  if (shared > 0) {
    keys.integer(kSharedLength, shared * get_int(config, "intermediate_size", 1, limits::kDim));
  }
  const bool sigmoid = get_string(config, "expert_selection_fn", "softmax") == "sigmoid";
  keys.integer(kGating, sigmoid ? kSigmoid : kSoftmax);
  keys.set(kNormalized, !sigmoid || get_bool(config, "norm_topk_prob", true));
  keys.number("logit_scale", get_number(config, "logit_scale", 1e-9, 1e9, 0.0625));
  if (std::find(windowed.begin(), windowed.end(), true) == windowed.end()) {
    cannot_write(kName, "no layer with a window", "look for one");
  }
  write_window(config, keys);
  keys.set(kWindowPattern, windowed);
}

}  // namespace lumen::io
