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

// Experts are chosen as those of DeepSeek-V3.
void set_sigmoid_scores(Json& config) {
  config["model_type"] = "deepseek_v3";
  config["topk_method"] = "noaux_tc";
  config["scoring_func"] = "sigmoid";
}

// Models of other sizes are looked for the rank of queries in. The last is that of Kanana 2 and
// GigaChat 3.
bool may_lack_query_rank(const Json& config) {
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  return layers == 26 || layers == 27 || (layers == 48 && config["vocab_size"] == 128256);
}

}  // namespace

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
  config["first_k_dense_replace"] = read_dense_layers(keys, config);
  if (expert_count(keys) > 0) {
    const bool sigmoid = read_grouped_experts(keys, /*only_sigmoid=*/false, config);
    config["topk_method"] = config["n_group"] > 1 ? "group_limited_greedy" : "greedy";
    config["scoring_func"] = "softmax";
    // Some files of GLM-4.7-Flash do not say by which scores experts are chosen.
    const int64_t first = config["first_k_dense_replace"].get<int64_t>();
    if (sigmoid || keys.has_tensor(first, "exp_probs_b.bias")) set_sigmoid_scores(config);
  }
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
  } else if (!may_lack_query_rank(config)) {
    cannot_write("deepseek2", "q_lora_rank null",
                 "look for it in models of other than 26, 27 layers");
  }
  keys.integer(kRank, get_int(config, "kv_lora_rank", 1, limits::kDim));
  write_dense_layers(config, keys);
  if (expert_count(config) > 0) {
    write_grouped_experts(config, get_string(config, "model_type") != "deepseek_v2", keys);
  }
  write_score_scale(config, keys);
}

}  // namespace lumen::io
