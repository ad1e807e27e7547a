// What files of DeepSeek-V2 and V3 and of models built like them, of MiniCPM3 and Kimi Linear say:
// sizes of latent attention, which experts are chosen. Keys:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <cmath>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/family_defaults.h"
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
constexpr const char* kDeltaHeadDim = "kda.head_dim";

// Yarn multiplies cos and sin by 1 there, and scores by what mscale_all_dim says; other scalings
// neither.
void write_score_scale(const Json& config, const KeyWriter& keys) {
  const Json* scaling = find_value(config, "rope_scaling");
  if (scaling == nullptr) return;
  const bool is_yarn = get_string(*scaling, "rope_type", "") == "yarn";
  const double all = get_number(*scaling, "mscale_all_dim", 0, 1e6, 0);
  const double attention = get_number(*scaling, "attention_factor", 0, 1e6, 0);
  const std::string name = gguf_architecture(config);
  if (is_yarn && (all == 0 || std::fabs(attention - 1) > 1e-6)) {
    cannot_write(name, "rope_scaling yarn with another mscale than mscale_all_dim",
                 "take them for equal");
  }
  if (!is_yarn && all != 0) {
    cannot_write(name, "mscale_all_dim without yarn", "look for it with yarn only");
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

// Sizes of latent attention. `key_dim` is of heads, and not all of it rotates.
void read_latent_sizes(const ArchitectureKeys& keys, int64_t key_dim, int64_t value_dim,
                       Json& config) {
  const int64_t rotary = config["head_dim"].get<int64_t>();
  if (key_dim <= rotary) {
    fail(ErrorKind::kMalformed, gguf_architecture(config), ": keys of heads have ", key_dim,
         " numbers, which is not above rope.dimension_count ", rotary);
  }
  config["qk_rope_head_dim"] = rotary;
  config["qk_nope_head_dim"] = key_dim - rotary;
  config["v_head_dim"] = value_dim;
  config["num_key_value_heads"] = Json(config["num_attention_heads"]);
  config["kv_lora_rank"] = keys.integer(kRank, limits::kDim);
  config["q_lora_rank"] =
      keys.has(kQueryRank) ? Json(keys.integer(kQueryRank, limits::kDim)) : Json(nullptr);
}

void write_latent_ranks(const Json& config, const KeyWriter& keys) {
  require_no_bias(config, "attention_bias");
  if (find_value(config, "q_lora_rank") != nullptr) {
    keys.integer(kQueryRank, get_int(config, "q_lora_rank", 1, limits::kDim));
  }
  keys.integer(kRank, get_int(config, "kv_lora_rank", 1, limits::kDim));
}

// The same where newer files have other names for the sizes of heads.
void read_latent_sizes(const ArchitectureKeys& keys, Json& config) {
  const bool newer = keys.has(kHeadKeys);
  read_latent_sizes(keys, keys.integer(newer ? kHeadKeys : "attention.key_length", limits::kDim),
                    keys.integer(newer ? kHeadValues : "attention.value_length", limits::kDim),
                    config);
}

// What all files of MiniCPM3 mean, as there are no keys for it.
constexpr Usual kMinicpm3[] = {{"scale_emb", 12}, {"scale_depth", 1.4}, {"dim_model_base", 256}};

// A whole number is one in a config, too.
Json in_config(double number) {
  return number == std::floor(number) ? Json(static_cast<int64_t>(number)) : Json(number);
}

}  // namespace

void read_minicpm3(const ArchitectureKeys& keys, Json& config) {
  const int64_t dim = config["hidden_size"].get<int64_t>();
  const int64_t heads = config["num_attention_heads"].get<int64_t>();
  read_latent_sizes(
      keys, keys.integer("attention.key_length", limits::kDim),
      keys.integer_or(std::max<int64_t>(1, dim / heads), "attention.value_length", limits::kDim),
      config);
  for (const Usual& number : kMinicpm3) config[number.key] = in_config(number.usual);
}

void write_minicpm3(const Json& config, const KeyWriter& keys) {
  write_latent_ranks(config, keys);
  for (const Usual& number : kMinicpm3) {
    const double found = get_number(config, number.key, 1e-9, 1e9);
    if (found == number.usual) continue;
    fail(ErrorKind::kUnsupported, number.key, " ", found,
         " cannot be written as GGUF for minicpm3, where it is ", number.usual);
  }
  const Json* scaling = find_value(config, "rope_scaling");
  if (scaling != nullptr && get_number(*scaling, "mscale_all_dim", 0, 1e6, 0) != 0) {
    cannot_write("minicpm3", "mscale_all_dim", "divide scores by the root of the size of keys");
  }
  const int64_t value_dim = get_int(config, "v_head_dim", 1, limits::kDim);
  const int64_t heads = get_int(config, "num_attention_heads", 1, limits::kHeads);
  if (value_dim * heads != get_int(config, "hidden_size", 1, limits::kDim)) {
    cannot_write("minicpm3", str("v_head_dim ", value_dim), "divide hidden_size by the heads");
  }
}

namespace {

// What yarn multiplies scores by.
void read_score_scale(const ArchitectureKeys& keys, Json& config) {
  Json& scaling = config["rope_scaling"];
  if (!scaling.is_object() || scaling["rope_type"] != "yarn") return;
  scaling["attention_factor"] = 1.0;
  if (!keys.has(kYarnMultiplier)) return;
  scaling["mscale"] = scaling["mscale_all_dim"] = 10 * keys.number(kYarnMultiplier);
}

void require_pairs(const Json& config) {
  if (get_bool(config, "rope_interleaved", true)) return;
  cannot_write(gguf_architecture(config), "rope_interleave false", "rotate pairs of neighbours");
}

}  // namespace

void read_deepseek2(const ArchitectureKeys& keys, Json& config) {
  leave_out_guessing_layers(keys, config);
  read_latent_sizes(keys, config);
  config["first_k_dense_replace"] = read_dense_layers(keys, config);
  if (expert_count(keys) > 0) {
    const bool sigmoid = read_grouped_experts(keys, /*only_sigmoid=*/false, config);
    config["topk_method"] = config["n_group"] > 1 ? "group_limited_greedy" : "greedy";
    config["scoring_func"] = "softmax";
    // Some files of GLM-4.7-Flash do not say by which scores experts are chosen.
    const int64_t first = config["first_k_dense_replace"].get<int64_t>();
    if (sigmoid || keys.has_tensor(first, "exp_probs_b.bias")) set_sigmoid_scores(config);
  } else {
    config["model_type"] = "youtu";
  }
  read_score_scale(keys, config);
}

void write_deepseek2(const Json& config, const KeyWriter& keys) {
  require_pairs(config);
  if (find_value(config, "q_lora_rank") == nullptr && !may_lack_query_rank(config)) {
    cannot_write("deepseek2", "q_lora_rank null",
                 "look for it in models of other than 26, 27 layers");
  }
  write_latent_ranks(config, keys);
  write_dense_layers(config, keys);
  if (expert_count(config) > 0) {
    write_grouped_experts(config, get_string(config, "model_type") != "deepseek_v2", keys);
  } else {
    // llama.cpp looks for them all the same.
    keys.integer(kExpertLength, get_int(config, "intermediate_size", 1, limits::kDim));
    keys.integer(kSharedCount, 0);
  }
  write_score_scale(config, keys);
}

// Without experts a file would not be of this architecture.
void read_mistral4(const ArchitectureKeys& keys, Json& config) {
  read_latent_sizes(keys, config);
  config["first_k_dense_replace"] = read_dense_layers(keys, config);
  if (read_grouped_experts(keys, /*only_sigmoid=*/false, config)) {
    fail(ErrorKind::kUnsupported, "mistral4.", kGating, " ", kSigmoid,
         " (sigmoid) is not supported; known is ", kSoftmax, " (softmax)");
  }
  read_score_scale(keys, config);
  if (!keys.has(kQueryScale)) return;
  if (!config["rope_scaling"].is_object()) config["rope_scaling"] = {{"rope_type", "default"}};
  Json& scaling = config["rope_scaling"];
  scaling[kQueryBeta] = keys.number(kQueryScale);
  set_default(scaling, "original_max_position_embeddings", Json(config["max_position_embeddings"]));
}

void write_mistral4(const Json& config, const KeyWriter& keys) {
  require_pairs(config);
  write_latent_ranks(config, keys);
  write_dense_layers(config, keys);
  write_grouped_experts(config, /*sigmoid=*/false, keys);
  write_score_scale(config, keys);
  const Json* scaling = find_value(config, "rope_scaling");
  if (scaling == nullptr || find_value(*scaling, kQueryBeta) == nullptr) return;
  keys.number(kQueryScale, get_number(*scaling, kQueryBeta, 0, 1e6));
  keys.integer(kQueryScaleLength,
               get_int(*scaling, "original_max_position_embeddings", 1, limits::kContext));
}

// Layers without heads of keys have Kimi Delta Attention.
void read_kimi_linear(const ArchitectureKeys& keys, Json& config) {
  read_latent_sizes(keys, config);
  const int64_t layers = config["num_hidden_layers"].get<int64_t>();
  config["layer_types"] = Json::array();
  for (const int64_t count : keys.per_layer(kKvHeads, layers, limits::kHeads)) {
    config["layer_types"].push_back(count == 0 ? "linear_attention" : "full_attention");
  }
  config["linear_num_heads"] = Json(config["num_attention_heads"]);
  config["linear_head_dim"] = keys.integer(kDeltaHeadDim, limits::kDim);
  config["linear_conv_kernel_dim"] = keys.integer(kConvKernel, kMostConvTaps, 2);
  config["first_k_dense_replace"] = read_dense_layers(keys, config);
  read_grouped_experts(keys, /*only_sigmoid=*/true, config);
  config["norm_topk_prob"] = true;  // whatever the file says, as in llama.cpp
}

void write_kimi_linear(const Json& config, const KeyWriter& keys) {
  constexpr const char* kName = "kimi-linear";
  const int64_t heads = get_int(config, "num_attention_heads", 1, limits::kHeads);
  if (get_int(config, "linear_num_heads", 1, limits::kHeads) != heads) {
    cannot_write(kName, "another linear_num_heads than num_attention_heads",
                 "look for as many heads in all layers");
  }
  if (!get_bool(config, "norm_topk_prob", true)) {
    cannot_write(kName, "norm_topk_prob false", "have the weights of experts add up to 1");
  }
  require_own_output(config);
  write_latent_ranks(config, keys);
  keys.integer(kHeadKeys, get_int(config, "qk_nope_head_dim", 1, limits::kDim) +
                              get_int(config, "qk_rope_head_dim", 1, limits::kDim));
  keys.integer(kHeadValues, get_int(config, "v_head_dim", 1, limits::kDim));
  keys.integer(kDeltaHeadDim, get_int(config, "linear_head_dim", 1, limits::kDim));
  keys.integer(kConvKernel, get_int(config, "linear_conv_kernel_dim", 2, kMostConvTaps));
  Json of_cache = config;
  of_cache["num_key_value_heads"] = 1;  // of what is the same for all heads
  write_kv_heads(of_cache, linear_attention_layers(config), keys);
  write_dense_layers(config, keys);
  write_grouped_experts(config, /*sigmoid=*/true, keys);
}

}  // namespace lumen::io
