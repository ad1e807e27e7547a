// What files of mixtures of experts say of those: Qwen's, OLMoE's, GLM-4.5's, ERNIE's,
// MiniMax-M2's, Hunyuan's, and what others have likewise. Keys:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <algorithm>
#include <cmath>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/gguf_families.h"
#include "lib/io/layer_windows.h"

namespace lumen::io {
namespace {

constexpr const char* kExpertCount = "expert_count";
constexpr const char* kExpertUsed = "expert_used_count";
constexpr const char* kDenseLayers = "leading_dense_block_count";
constexpr const char* kGroups = "expert_group_count";
constexpr const char* kUsedGroups = "expert_group_used_count";
constexpr const char* kStep = "interleave_moe_layer_step";
constexpr double kJitter = 0.01;  // of all files of Phi-3.5-MoE

// Of these architectures all layers have experts and see all tokens, and the probabilities of the
// chosen experts add up to 1, or never do.
void require_usual_experts(const Json& config, std::string_view architecture, bool normalized) {
  const std::vector<bool> sparse = sparse_layers(config);
  if (std::find(sparse.begin(), sparse.end(), false) != sparse.end()) {
    cannot_write(architecture, "layers without experts", "look for experts in every layer");
  }
  const bool found = get_bool(config, "norm_topk_prob", false);
  if (found && !normalized) {
    cannot_write(architecture, "norm_topk_prob true",
                 "take the chosen experts' weights as they are whatever a file says");
  }
  if (normalized && !found) {
    cannot_write(architecture, "norm_topk_prob false",
                 "make the chosen experts' weights add up to 1 whatever a file says");
  }
  if (find_value(config, "sliding_window") != nullptr) {
    cannot_write(architecture, "a sliding window", "attend to all tokens");
  }
}

// Qwen's mixtures.
void read_qwen_experts(const ArchitectureKeys& keys, bool normalized, Json& config) {
  read_experts(keys, "num_experts", config);
  const int64_t used = config["num_experts_per_tok"].get<int64_t>();
  const int64_t length = std::max<int64_t>(1, config["intermediate_size"].get<int64_t>() / used);
  config["moe_intermediate_size"] = keys.integer_or(length, kExpertLength, limits::kDim);
  config["norm_topk_prob"] = normalized;
}

int64_t read_shared_count(const ArchitectureKeys& keys) {
  return keys.has(kSharedCount) ? keys.integer(kSharedCount, limits::kExperts, 0) : 0;
}

}  // namespace

bool read_gating(const ArchitectureKeys& keys, bool only, const Json& config) {
  if (!keys.has(kGating)) return only;
  const int64_t gating = keys.integer(kGating, 1000, 0);
  if (gating == kSigmoid || (gating == kSoftmax && !only)) return gating == kSigmoid;
  fail(ErrorKind::kUnsupported, gguf_architecture(config), ".", kGating, " ", gating,
       " is not supported; known ",
       only ? std::string("is ") : str("are ", kSoftmax, " (softmax) and "), kSigmoid,
       " (sigmoid)");
}

int64_t read_dense_layers(const ArchitectureKeys& keys, Json& config) {
  const int64_t layers = config["num_hidden_layers"].get<int64_t>();
  int64_t dense = layers;
  if (expert_count(keys) > 0) {
    dense = keys.has(kDenseLayers) ? keys.integer(kDenseLayers, layers, 0) : 0;
  }
  config["mlp_only_layers"] = Json::array();
  for (int64_t i = 0; i < dense; ++i) config["mlp_only_layers"].push_back(i);
  return dense;
}

void write_dense_layers(const Json& config, const KeyWriter& keys) {
  std::vector<bool> sparse = sparse_layers(config);
  if (expert_count(config) == 0) sparse.assign(sparse.size(), false);
  const auto first = std::find(sparse.begin(), sparse.end(), true);
  if (std::find(first, sparse.end(), false) != sparse.end()) {
    cannot_write(gguf_architecture(config), "layers without experts behind those with some",
                 "look for them in front");
  }
  keys.integer(kDenseLayers, first - sparse.begin());
}

bool read_grouped_experts(const ArchitectureKeys& keys, bool only_sigmoid, Json& config) {
  read_experts(keys, "num_experts", config);
  config["n_routed_experts"] = Json(config["num_experts"]);
  config["moe_intermediate_size"] = keys.integer(kExpertLength, limits::kDim);
  config["n_shared_experts"] = read_shared_count(keys);
  const double scale = keys.number(kExpertScale, 1.0);
  config["routed_scaling_factor"] = scale == 0 ? 1.0 : scale;
  config["norm_topk_prob"] = keys.truth(kNormalized, false);
  const int64_t groups = keys.integer_or(1, kGroups, limits::kExperts);
  config["n_group"] = groups;
  config["topk_group"] = keys.integer_or(groups, kUsedGroups, groups);
  return read_gating(keys, only_sigmoid, config);
}

void write_grouped_experts(const Json& config, bool sigmoid, const KeyWriter& keys) {
  write_experts(config, "num_experts", "moe_intermediate_size", keys);
  keys.integer(kSharedCount, get_int(config, "n_shared_experts", 0, limits::kExperts, 0));
  keys.number(kExpertScale, get_number(config, "routed_scaling_factor", 0, 1e6, 1));
  keys.set(kNormalized, get_bool(config, "norm_topk_prob", false));
  keys.integer(kGating, sigmoid ? kSigmoid : kSoftmax);
  const bool grouped = get_string(config, "topk_method", "") != "greedy";
  const int64_t groups = grouped ? get_int(config, "n_group", 1, limits::kExperts, 1) : 1;
  if (groups == 1) return;
  keys.integer(kGroups, groups);
  keys.integer(kUsedGroups, get_int(config, "topk_group", 1, groups, groups));
}

void read_glm4moe(const ArchitectureKeys& keys, Json& config) {
  leave_out_guessing_layers(keys, config);
  say_rotary_factor(config);
  config["first_k_dense_replace"] = read_dense_layers(keys, config);
  config["use_qk_norm"] = keys.has_tensor(0, "attn_q_norm.weight");
  read_grouped_experts(keys, /*only_sigmoid=*/true, config);
}

void write_glm4moe(const Json& config, const KeyWriter& keys) {
  write_dense_layers(config, keys);
  write_grouped_experts(config, /*sigmoid=*/true, keys);
}

void read_dots1(const ArchitectureKeys& keys, Json& config) {
  config["sliding_window"] = nullptr;
  config["first_k_dense_replace"] = read_dense_layers(keys, config);
  read_grouped_experts(keys, /*only_sigmoid=*/true, config);
}

void write_dots1(const Json& config, const KeyWriter& keys) {
  require_windows(config, "dots1", nullptr);
  if (config["num_key_value_heads"] != config["num_attention_heads"]) {
    cannot_write("dots1", "another num_key_value_heads than num_attention_heads",
                 "look for as many keys as queries");
  }
  require_own_output(config);
  require_no_bias(config, "attention_bias");
  if (get_int(config, "n_shared_experts", 0, limits::kExperts, 0) == 0) {
    cannot_write("dots1", "n_shared_experts 0", "look for some in every layer with experts");
  }
  write_glm4moe(config, keys);
}

// Trinity. One of four layers sees all.
constexpr int64_t kAfmoePeriod = 4;

void read_afmoe(const ArchitectureKeys& keys, Json& config) {
  config["num_dense_layers"] = read_dense_layers(keys, config);
  read_grouped_experts(keys, /*only_sigmoid=*/true, config);
  config["num_shared_experts"] = Json(config["n_shared_experts"]);
  config["route_scale"] = Json(config["routed_scaling_factor"]);
  config["norm_topk_prob"] = config["route_norm"] = keys.truth(kNormalized, true);
  config["mup_enabled"] = true;
  if (!read_windows(keys, kAfmoePeriod, config)) {
    config["layer_types"] = periodic_layer_types(config["num_hidden_layers"].get<int64_t>(), 1);
  }
}

void write_afmoe(const Json& config, const KeyWriter& keys) {
  require_no_bias(config, "attention_bias");
  if (!get_bool(config, "mup_enabled", false)) {
    cannot_write("afmoe", "mup_enabled false", "scale embeddings");
  }
  // All layers rotate there but every 4th, whichever have a window.
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  require_windows(config, "afmoe", periodic_layer_types(layers, kAfmoePeriod));
  write_window(config, keys);
  write_dense_layers(config, keys);
  write_grouped_experts(config, /*sigmoid=*/true, keys);
}

void read_bailingmoe2(const ArchitectureKeys& keys, Json& config) {
  read_glm4moe(keys, config);
  config["num_shared_experts"] = Json(config["n_shared_experts"]);
}

void write_bailingmoe2(const Json& config, const KeyWriter& keys) {
  constexpr const char* kName = "bailingmoe2";
  require_own_output(config);
  for (const char* key : {"use_bias", "use_qkv_bias"}) require_no_bias(config, key);
  if (!get_bool(config, "use_qk_norm", true)) {
    cannot_write(kName, "use_qk_norm false", "look for norms of heads in every layer");
  }
  if (get_int(config, "n_shared_experts", 0, limits::kExperts, 0) == 0) {
    cannot_write(kName, "num_shared_experts 0", "look for some in every layer with experts");
  }
  keys.integer(kSharedLength, get_int(config, "moe_intermediate_size", 1, limits::kDim));
  write_glm4moe(config, keys);
}

// The chosen experts' weights add up to 1 in all files.
void read_lfm2moe(const ArchitectureKeys& keys, Json& config) {
  read_convolutions(keys, config);
  read_experts(keys, "num_experts", config);
  config["moe_intermediate_size"] = keys.integer(kExpertLength, limits::kDim);
  config["num_dense_layers"] = read_dense_layers(keys, config);
  config["norm_topk_prob"] = config["use_expert_bias"] = true;
  config["routed_scaling_factor"] = 1.0;
  read_gating(keys, /*only=*/true, config);
}

void write_lfm2moe(const Json& config, const KeyWriter& keys) {
  write_convolutions(config, keys);
  if (!get_bool(config, "norm_topk_prob", true)) {
    cannot_write("lfm2moe", "norm_topk_prob false",
                 "make the chosen experts' weights add up to 1 whatever a file says");
  }
  if (!get_bool(config, "use_expert_bias", true)) {
    cannot_write("lfm2moe", "use_expert_bias false", "look for it in every layer with experts");
  }
  if (const double scale = get_number(config, "routed_scaling_factor", 0, 1e6, 1); scale != 1) {
    cannot_write("lfm2moe", str("routed_scaling_factor ", scale), "take it for 1");
  }
  write_experts(config, "num_experts", "moe_intermediate_size", keys);
  write_dense_layers(config, keys);
  keys.integer(kGating, kSigmoid);
}

// The same, by probabilities.
void read_ernie4_5_moe(const ArchitectureKeys& keys, Json& config) {
  read_experts(keys, "num_experts", config);
  config["moe_num_experts"] = Json(config["num_experts"]);
  config["moe_k"] = Json(config["num_experts_per_tok"]);
  config["moe_intermediate_size"] = keys.integer(kExpertLength, limits::kDim);
  config["moe_num_shared_experts"] = read_shared_count(keys);
  config["moe_layer_start_index"] = read_dense_layers(keys, config);
  config["moe_layer_interval"] = config["decoder_sparse_step"] =
      keys.integer_or(1, kStep, limits::kLayers);
}

void write_ernie4_5_moe(const Json& config, const KeyWriter& keys) {
  constexpr double kLeastSum = 1e-12;
  require_no_bias(config, "use_bias");
  if (const double least = get_number(config, "moe_norm_min", 0, 1, kLeastSum); least > kLeastSum) {
    cannot_write("ernie4_5-moe", str("moe_norm_min ", least),
                 "make the chosen experts' weights add up to 1");
  }
  write_experts(config, "num_experts", "moe_intermediate_size", keys);
  write_dense_layers(config, keys);
  keys.integer(kStep, 1);
  const int64_t shared = get_int(config, "moe_num_shared_experts", 0, limits::kExperts, 2);
  keys.integer(kSharedCount, shared);
  if (shared == 0) return;
  keys.integer(kSharedLength, shared * get_int(config, "moe_intermediate_size", 1, limits::kDim));
}

// What all experts have is the size of feed-forward layers.
void read_minimax_m2(const ArchitectureKeys& keys, Json& config) {
  say_rotary_factor(config);
  const double part = config["partial_rotary_factor"].get<double>();
  config["rotary_dim"] = std::llround(part * config["head_dim"].get<double>());
  read_experts(keys, "num_local_experts", config);
  config["intermediate_size"] =
      keys.integer_or(config["intermediate_size"].get<int64_t>(), kExpertLength, limits::kDim);
  read_gating(keys, /*only=*/true, config);
}

void write_minimax_m2(const Json& config, const KeyWriter& keys) {
  require_own_output(config);
  write_experts(config, "num_local_experts", "intermediate_size", keys);
  keys.integer(kGating, kSigmoid);
}

// Experts and what all tokens go through have the size of feed-forward layers.
void read_hunyuan_moe(const ArchitectureKeys& keys, Json& config) {
  read_experts(keys, "num_experts", config);
  config["moe_topk"] = Json(config["num_experts_per_tok"]);
  const int64_t inner = config["intermediate_size"].get<int64_t>();
  for (const char* key : {kExpertLength, kSharedLength}) {
    const int64_t found = keys.integer_or(inner, key, limits::kDim);
    if (found == inner) continue;
    fail(ErrorKind::kUnsupported, "hunyuan-moe.", key, " ", found, " is not feed_forward_length ",
         inner, ": only equal sizes are supported");
  }
}

void write_hunyuan_moe(const Json& config, const KeyWriter& keys) {
  require_no_bias(config, "attention_bias");
  write_experts(config, "num_experts", "intermediate_size", keys);
  keys.integer(kSharedCount, 1);
  keys.integer(kSharedLength, get_int(config, "intermediate_size", 1, limits::kDim));
}

int64_t expert_count(const ArchitectureKeys& keys) {
  return keys.has(kExpertCount) ? keys.integer(kExpertCount, limits::kExperts, 0) : 0;
}

void read_experts(const ArchitectureKeys& keys, const char* count, Json& config) {
  config[count] = keys.integer(kExpertCount, limits::kExperts);
  config["num_experts_per_tok"] = keys.integer(kExpertUsed, config[count].get<int64_t>());
}

void write_experts(const Json& config, const char* count, const char* length,
                   const KeyWriter& keys) {
  const int64_t experts = get_int(config, count, 1, limits::kExperts);
  keys.integer(kExpertCount, experts);
  keys.integer(kExpertUsed, get_int(config, "num_experts_per_tok", 1, experts));
  keys.integer(kExpertLength, get_int(config, length, 1, limits::kDim));
}

void read_phimoe(const ArchitectureKeys& keys, Json& config) {
  read_experts(keys, "num_local_experts", config);
  config["intermediate_size"] =
      keys.integer_or(config["intermediate_size"].get<int64_t>(), kExpertLength, limits::kDim);
  config["lm_head_bias"] = keys.has_tensor("output.bias");
  config["router_jitter_noise"] = kJitter;
}

void write_phimoe(const Json& config, const KeyWriter& keys) {
  require_own_output(config);
  require_windows(config, "phimoe", nullptr);
  for (const char* key : {"attention_bias", "lm_head_bias"}) {
    if (get_bool(config, key, false)) continue;
    cannot_write("phimoe", str(key, " false"), "look for such biases");
  }
  const double jitter = get_number(config, "router_jitter_noise", 0, 1, kJitter);
  if (jitter != kJitter) {
    fail(ErrorKind::kUnsupported, "router_jitter_noise ", jitter,
         " cannot be written as GGUF for phimoe, where it is ", kJitter);
  }
  write_experts(config, "num_local_experts", "intermediate_size", keys);
}

// Llama 4. What files do not say is the same in all of them; Maverick, of so many experts, has no
// norms.
constexpr int64_t kMaverickExperts = 128;
constexpr int64_t kLlama4Chunk = 8192;
constexpr double kLlama4Scale = 0.1;

void read_llama4(const ArchitectureKeys& keys, Json& config) {
  if (read_window(keys, kLlama4Chunk) == 0) {
    fail(ErrorKind::kUnsupported, "llama4.", kWindow,
         " 0: models of Llama 4's kind that rotate in all layers are not supported");
  }
  read_experts(keys, "num_local_experts", config);
  config["intermediate_size_mlp"] = Json(config["intermediate_size"]);
  config["intermediate_size"] = keys.integer(kExpertLength, limits::kDim);
  const int64_t step = keys.integer_or(1, kStep, limits::kLayers);
  config["interleave_moe_layer_step"] = step;
  Json dense = Json::array();
  for (int64_t i = 0; i < config["num_hidden_layers"].get<int64_t>(); ++i) {
    if ((i + 1) % step != 0) dense.push_back(i);
  }
  config["mlp_only_layers"] = std::move(dense);
  config["use_qk_norm"] = config["num_local_experts"] != kMaverickExperts;
  config["attention_chunk_size"] = config["floor_scale"] = kLlama4Chunk;
  config["attn_scale"] = kLlama4Scale;
}

void write_llama4(const Json& config, const KeyWriter& keys) {
  constexpr const char* kName = "llama4";
  // A chunk that is null is none, and no floor_scale the usual one.
  for (const auto& [key, absent] :
       {std::pair("attention_chunk_size", int64_t{0}), {"floor_scale", kLlama4Chunk}}) {
    if (const int64_t found = get_int(config, key, 1, limits::kContext, absent);
        found != kLlama4Chunk) {
      cannot_write(kName, str(key, " ", found), str("take it for ", kLlama4Chunk));
    }
  }
  const double scale = get_number(config, "attn_scale", 0, 1e6, kLlama4Scale);
  if (scale != kLlama4Scale || !get_bool(config, "attn_temperature_tuning", true)) {
    cannot_write(kName, "another attn_scale than 0.1", "scale all queries of long texts so");
  }
  require_no_bias(config, "attention_bias");
  require_usual_rotation(config, kName);
  const int64_t experts = expert_count(config);
  if (experts == 0) cannot_write(kName, "num_local_experts 0", "look for experts");
  const bool normed = experts != kMaverickExperts;
  if (get_bool(config, "use_qk_norm", true) != normed) {
    cannot_write(kName, str("use_qk_norm ", !normed), "go by the number of experts");
  }
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  const std::vector<bool> sparse = sparse_layers(config);
  const int64_t step =
      1 + (std::find(sparse.begin(), sparse.end(), true) - sparse.begin()) % layers;
  for (int64_t i = 0; i < layers; ++i) {
    if (sparse[static_cast<size_t>(i)] == ((i + 1) % step == 0)) continue;
    cannot_write(kName, "other layers with experts than every n-th", "look for them there");
  }
  keys.integer(kStep, step);
  write_experts(config, "num_local_experts", "intermediate_size", keys);
}

void read_qwen3moe(const ArchitectureKeys& keys, Json& config) {
  read_qwen_experts(keys, true, config);
}

void write_qwen3moe(const Json& config, const KeyWriter& keys) {
  require_usual_experts(config, gguf_architecture(config), true);
  write_experts(config, "num_experts", "moe_intermediate_size", keys);
}

void read_shared_experts(const ArchitectureKeys& keys, bool normalized, Json& config) {
  read_qwen_experts(keys, normalized, config);
  config["shared_expert_intermediate_size"] =
      keys.integer_or(config["intermediate_size"].get<int64_t>(), kSharedLength, limits::kDim);
}

void write_shared_experts(const Json& config, bool normalized, const KeyWriter& keys) {
  require_usual_experts(config, gguf_architecture(config), normalized);
  write_experts(config, "num_experts", "moe_intermediate_size", keys);
  keys.integer(kSharedLength, get_int(config, "shared_expert_intermediate_size", 1, limits::kDim));
}

void read_qwen2moe(const ArchitectureKeys& keys, Json& config) {
  read_shared_experts(keys, false, config);
  config["qkv_bias"] = Json(config["attention_bias"]);
}

void write_qwen2moe(const Json& config, const KeyWriter& keys) {
  require_own_output(config);
  write_shared_experts(config, false, keys);
}

void read_olmoe(const ArchitectureKeys& keys, Json& config) {
  read_experts(keys, "num_experts", config);
  config["norm_topk_prob"] = false;
}

void write_olmoe(const Json& config, const KeyWriter& keys) {
  require_own_output(config);
  require_usual_experts(config, "olmoe", false);
  if (find_value(config, "clip_qkv") != nullptr) cannot_write("olmoe", "clip_qkv", "clip nothing");
  require_no_bias(config, "attention_bias");
  const int64_t heads = get_int(config, "num_attention_heads", 1, limits::kHeads);
  if (get_int(config, "num_key_value_heads", 1, limits::kHeads) != heads) {
    cannot_write("olmoe", "another num_key_value_heads than num_attention_heads",
                 "look for norms of keys as wide as those of queries");
  }
  write_experts(config, "num_experts", "intermediate_size", keys);
}

}  // namespace lumen::io
