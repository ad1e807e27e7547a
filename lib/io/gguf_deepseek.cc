// What files of DeepSeek-V2 and V3 and of models built like them say: sizes of latent attention,
// which experts are chosen. Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <cmath>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/gguf_families.h"
#include "lib/io/layer_windows.h"

namespace lumen::io {
namespace {

constexpr const char* kQueryRank = "attention.q_lora_rank";
constexpr const char* kRank = "attention.kv_lora_rank";
// Newer files call the sizes of what caches hold key_length and value_length, and those of heads
// so.
constexpr const char* kHeadKeys = "attention.key_length_mla";
constexpr const char* kHeadValues = "attention.value_length_mla";
constexpr const char* kDenseLayers = "leading_dense_block_count";
constexpr const char* kSharedCount = "expert_shared_count";
constexpr const char* kScale = "expert_weights_scale";
constexpr const char* kNormalized = "expert_weights_norm";
constexpr const char* kGating = "expert_gating_func";
constexpr const char* kGroups = "expert_group_count";
constexpr const char* kUsedGroups = "expert_group_used_count";
constexpr int64_t kSoftmax = 1, kSigmoid = 2;

void read_choice(const ArchitectureKeys& keys, Json& config) {
  read_experts(keys, "num_experts", config);
  config["n_routed_experts"] = Json(config["num_experts"]);
  config["moe_intermediate_size"] = keys.integer(kExpertLength, limits::kDim);
  config["n_shared_experts"] =
      keys.has(kSharedCount) ? keys.integer(kSharedCount, limits::kExperts, 0) : 0;
  const double scale = keys.number(kScale, 1.0);
  config["routed_scaling_factor"] = scale == 0 ? 1.0 : scale;
  config["norm_topk_prob"] = keys.truth(kNormalized, false);
  const int64_t gating = keys.has(kGating) ? keys.integer(kGating, 1000, 0) : kSoftmax;
  if (gating != kSoftmax && gating != kSigmoid) {
    fail(ErrorKind::kUnsupported, "deepseek2.", kGating, " ", gating,
         " is not supported; known are ", kSoftmax, " (softmax) and ", kSigmoid, " (sigmoid)");
  }
  const int64_t groups = keys.integer_or(1, kGroups, limits::kExperts);
  config["n_group"] = groups;
  config["topk_group"] = keys.integer_or(groups, kUsedGroups, groups);
  config["topk_method"] = groups > 1 ? "group_limited_greedy" : "greedy";
  config["scoring_func"] = "softmax";
  if (gating == kSigmoid) set_sigmoid_scores(config);
}

// How experts are chosen of a model that has some.
void write_choice(const Json& config, const KeyWriter& keys) {
  const std::string type = get_string(config, "model_type");
  write_experts(config, "num_experts", "moe_intermediate_size", keys);
  keys.integer(kSharedCount, get_int(config, "n_shared_experts", 0, limits::kExperts, 0));
  keys.number(kScale, get_number(config, "routed_scaling_factor", 0, 1e6, 1));
  keys.set(kNormalized, get_bool(config, "norm_topk_prob", false));
  keys.integer(kGating, type == "deepseek_v2" ? kSoftmax : kSigmoid);
  const bool grouped = get_string(config, "topk_method", "") != "greedy";
  const int64_t groups = grouped ? get_int(config, "n_group", 1, limits::kExperts, 1) : 1;
  if (groups == 1) return;
  keys.integer(kGroups, groups);
  keys.integer(kUsedGroups, get_int(config, "topk_group", 1, groups, groups));
}

// The first layers without experts.
int64_t dense_layers(const Json& config) {
  const std::vector<bool> sparse = sparse_layers(config);
  int64_t first = 0;
  while (first < std::ssize(sparse) && !sparse[static_cast<size_t>(first)]) ++first;
  for (size_t i = static_cast<size_t>(first); i < sparse.size(); ++i) {
    if (!sparse[i]) {
      cannot_write("deepseek2", "layers without experts behind those with some",
                   "look for them in front");
    }
  }
  return first;
}

// Yarn multiplies cos and sin by 1 there, and scores by what mscale_all_dim says; other scalings
// neither.
void write_score_scale(const Json& config, const KeyWriter& keys) {
  const Json* scaling = find_value(config, "rope_scaling");
  if (scaling == nullptr) return;
  const bool is_yarn = get_string(*scaling, "rope_type", "") == "yarn";
  const double all = get_number(*scaling, "mscale_all_dim", 0, 1e6, 0);
  const double attention = get_number(*scaling, "attention_factor", 0, 1e6, 0);
  if (is_yarn && (all == 0 || std::fabs(attention - 1) > 1e-6)) {
    cannot_write("deepseek2", "rope_scaling yarn with another mscale than mscale_all_dim",
                 "take them for equal");
  }
  if (!is_yarn && all != 0) {
    cannot_write("deepseek2", "mscale_all_dim without yarn", "look for it with yarn only");
  }
  if (is_yarn) keys.number(kYarnMultiplier, 0.1 * all);
}

}  // namespace

void set_sigmoid_scores(Json& config) {
  config["model_type"] = "deepseek_v3";
  config["topk_method"] = "noaux_tc";
  config["scoring_func"] = "sigmoid";
}

void read_deepseek2(const ArchitectureKeys& keys, Json& config) {
  leave_out_guessing_layers(keys, config);
  const int64_t rotary = config["head_dim"].get<int64_t>();
  const bool newer = keys.has(kHeadKeys);
  const int64_t key_dim = keys.integer(newer ? kHeadKeys : "attention.key_length", limits::kDim);
  if (key_dim <= rotary) {
    fail(ErrorKind::kMalformed, "deepseek2.", newer ? kHeadKeys : "attention.key_length", " ",
         key_dim, " is not above deepseek2.rope.dimension_count ", rotary);
  }
  config["qk_rope_head_dim"] = rotary;
  config["qk_nope_head_dim"] = key_dim - rotary;
  config["v_head_dim"] = keys.integer(newer ? kHeadValues : "attention.value_length", limits::kDim);
  config["num_key_value_heads"] = Json(config["num_attention_heads"]);
  config["kv_lora_rank"] = keys.integer(kRank, limits::kDim);
  config["q_lora_rank"] =
      keys.has(kQueryRank) ? Json(keys.integer(kQueryRank, limits::kDim)) : Json(nullptr);
  const int64_t layers = config["num_hidden_layers"].get<int64_t>();
  int64_t dense = layers;
  if (expert_count(keys) > 0) {
    dense = keys.has(kDenseLayers) ? keys.integer(kDenseLayers, layers, 0) : 0;
    read_choice(keys, config);
  }
  config["first_k_dense_replace"] = dense;
  config["mlp_only_layers"] = Json::array();
  for (int64_t i = 0; i < dense; ++i) config["mlp_only_layers"].push_back(i);
  Json& scaling = config["rope_scaling"];
  if (!scaling.is_object() || scaling["rope_type"] != "yarn") return;
  scaling["attention_factor"] = 1.0;
  if (!keys.has(kYarnMultiplier)) return;
  scaling["mscale"] = scaling["mscale_all_dim"] = 10 * keys.number(kYarnMultiplier);
}

void write_deepseek2(const Json& config, const KeyWriter& keys) {
  if (!get_bool(config, "rope_interleaved", true)) {
    cannot_write("deepseek2", "rope_interleave false", "rotate pairs of neighbours");
  }
  require_no_bias(config, "attention_bias");
  if (find_value(config, "q_lora_rank") != nullptr) {
    keys.integer(kQueryRank, get_int(config, "q_lora_rank", 1, limits::kDim));
  }
  keys.integer(kRank, get_int(config, "kv_lora_rank", 1, limits::kDim));
  const bool has_experts = expert_count(config) > 0;
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  keys.integer(kDenseLayers, has_experts ? dense_layers(config) : layers);
  if (has_experts) write_choice(config, keys);
  write_score_scale(config, keys);
}

}  // namespace lumen::io
