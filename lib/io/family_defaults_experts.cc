// The configs of mixtures of experts.
#include <algorithm>
#include <cmath>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/family_completions.h"
#include "lib/io/layer_windows.h"

namespace lumen::io {
namespace {

// The rotary_dim of a config as partial_rotary_factor.
void read_rotary_dim(Json& config) {
  if (find_value(config, "rotary_dim") == nullptr) return;
  const int64_t head_dim = get_int(config, "head_dim", 1, limits::kDim);
  const int64_t rotary_dim = get_int(config, "rotary_dim", 1, head_dim);
  const double part = static_cast<double>(rotary_dim) / static_cast<double>(head_dim);
  set_default(config, "partial_rotary_factor", part);
  if (const double said = get_number(config, "partial_rotary_factor", 0, 1); said != part) {
    fail(ErrorKind::kMalformed, "rotary_dim ", rotary_dim, " is not partial_rotary_factor ", said,
         " of head_dim ", head_dim);
  }
}

}  // namespace

void rename_count(Json& config, const char* from, const char* to, int64_t unsaid) {
  if (find_value(config, from) == nullptr) return set_default(config, to, unsaid);
  config[to] = get_int(config, from, 1, limits::kExperts);
}

void set_dense_layers(Json& config) {
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  const int64_t first = get_int(config, "first_k_dense_replace", 0, limits::kLayers, 0);
  const int64_t step = get_int(config, "moe_layer_freq", 1, limits::kLayers, 1);
  const Json* types = find_value(config, "mlp_layer_types");
  if (types != nullptr && (!types->is_array() || std::ssize(*types) != layers)) {
    fail(ErrorKind::kMalformed, "mlp_layer_types: found ", describe(types),
         ", expected an array of ", layers, " types, one per layer");
  }
  Json dense = Json::array();
  for (int64_t i = 0; i < layers; ++i) {
    bool sparse = i >= first && i % step == 0;
    if (types != nullptr) {
      const Json& type = (*types)[static_cast<size_t>(i)];
      sparse = type == "sparse";
      if (!sparse && type != "dense") {
        fail(ErrorKind::kMalformed, "mlp_layer_types: found ", describe(&type),
             ", expected dense or sparse");
      }
    }
    if (!sparse) dense.push_back(i);
  }
  config["mlp_only_layers"] = std::move(dense);
}

void set_range_of_experts(Json& config, int64_t first, int64_t last) {
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  Json dense = Json::array();
  for (int64_t i = 0; i < layers; ++i) {
    if (i < first || i > last) dense.push_back(i);
  }
  config["mlp_only_layers"] = std::move(dense);
}

// As GptOssConfig has what a config leaves out.
void complete_gpt_oss(Json& config) {
  set_defaults(config, {{"num_hidden_layers", 36},
                        {"num_local_experts", 128},
                        {"num_experts_per_tok", 4},
                        {"vocab_size", 201088},
                        {"hidden_size", 2880},
                        {"intermediate_size", 2880},
                        {"head_dim", 64},
                        {"num_attention_heads", 64},
                        {"num_key_value_heads", 8},
                        {"max_position_embeddings", 131072},
                        {"rms_norm_eps", 1e-5},
                        {"rope_theta", 150000},
                        {"attention_bias", true},
                        {"tie_word_embeddings", false}});
  set_layer_types(config, 2);
  set_absent(config, "sliding_window", 128);
  if (find_value(config, "rope_parameters") != nullptr) return;
  set_default(config, "rope_scaling",
              {{"rope_type", "yarn"},
               {"factor", 32.0},
               {"beta_fast", 32.0},
               {"beta_slow", 1.0},
               {"truncate", false},
               {"original_max_position_embeddings", 4096}});
}

// As Qwen2MoeConfig has what a config leaves out, and which layers have the window, if any do.
void complete_qwen2_moe(Json& config) {
  set_defaults(config, {{"num_experts", 60},
                        {"num_experts_per_tok", 4},
                        {"moe_intermediate_size", 1408},
                        {"shared_expert_intermediate_size", 5632},
                        {"vocab_size", 151936},
                        {"max_position_embeddings", 32768},
                        {"tie_word_embeddings", false}});
  const bool windowed = get_bool(config, "use_sliding_window", false);
  if (find_value(config, "layer_types") != nullptr || !windowed) return;
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  const int64_t most = get_int(config, "max_window_layers", 0, limits::kLayers, 28);
  Json types = periodic_layer_types(layers, 2);
  for (int64_t i = most; i < layers; ++i) types[static_cast<size_t>(i)] = "full_attention";
  config["layer_types"] = std::move(types);
}

void complete_qwen3_moe(Json& config) {
  rename_key(config, "num_local_experts", "num_experts");
}

// As PhimoeConfig has it. What cos and sin are multiplied by in long contexts has names of its own,
// and a window of all that the model can see is none.
void complete_phimoe(Json& config) {
  set_defaults(config, {{"vocab_size", 32064},
                        {"hidden_size", 4096},
                        {"intermediate_size", 6400},
                        {"num_hidden_layers", 32},
                        {"num_attention_heads", 32},
                        {"num_local_experts", 16},
                        {"num_experts_per_tok", 2},
                        {"max_position_embeddings", 131072},
                        {"rms_norm_eps", 1e-5},
                        {"rope_theta", 1e6},
                        {"tie_word_embeddings", false}});
  set_absent(config, "num_key_value_heads", 8);  // null is as many as heads
  const int64_t most = get_int(config, "max_position_embeddings", 1, limits::kContext);
  if (get_int(config, "sliding_window", 0, limits::kContext, 0) >= most) {
    config["sliding_window"] = nullptr;
  }
  if (!config.contains("rope_scaling") || !config["rope_scaling"].is_object()) return;
  Json& scaling = config["rope_scaling"];
  if (find_value(scaling, "short_mscale") == nullptr) return;
  const double near = get_number(scaling, "short_mscale", 1e-6, 1e6);
  const double far = get_number(scaling, "long_mscale", 1e-6, 1e6, near);
  if (near != far) {
    fail(ErrorKind::kUnsupported, "rope_scaling: short_mscale ", near, " and long_mscale ", far,
         " are not supported; known are equal ones");
  }
  scaling["attention_factor"] = near;
}

// As Qwen3VLMoeTextConfig has it; no layer has a window, and probabilities of the chosen experts
// add up to 1.
void complete_qwen3_vl_moe(Json& config) {
  complete_qwen3_moe(config);
  set_defaults(config, {{"vocab_size", 151936},
                        {"hidden_size", 2048},
                        {"intermediate_size", 5632},
                        {"num_hidden_layers", 24},
                        {"num_attention_heads", 16},
                        {"moe_intermediate_size", 1408},
                        {"num_experts", 60},
                        {"num_experts_per_tok", 4},
                        {"max_position_embeddings", 128000},
                        {"rope_theta", 500000}});
  config["norm_topk_prob"] = true;
  for (const char* key : {"sliding_window", "layer_types"}) config.erase(key);
}

// As MiniMaxM2Config has it. Published configs say how many numbers of a head rotate, not which
// part.
void complete_minimax_m2(Json& config) {
  rename_key(config, "num_experts", "num_local_experts");
  set_defaults(config, {{"vocab_size", 200064},
                        {"hidden_size", 3072},
                        {"intermediate_size", 1536},
                        {"num_hidden_layers", 62},
                        {"num_attention_heads", 48},
                        {"num_key_value_heads", 8},
                        {"head_dim", 128},
                        {"max_position_embeddings", 196608},
                        {"rope_theta", 5e6},
                        {"num_local_experts", 256},
                        {"num_experts_per_tok", 8},
                        {"tie_word_embeddings", false}});
  read_rotary_dim(config);
}

// As OlmoeConfig has it.
void complete_olmoe(Json& config) {
  rename_key(config, "num_local_experts", "num_experts");
  set_defaults(config, {{"num_experts", 64},
                        {"num_experts_per_tok", 8},
                        {"intermediate_size", 2048},
                        {"vocab_size", 50304},
                        {"max_position_embeddings", 4096},
                        {"rms_norm_eps", 1e-5},
                        {"tie_word_embeddings", false}});
}

// As Ernie4_5_MoeConfig has it.
void complete_ernie4_5_moe(Json& config) {
  set_defaults(config, {{"vocab_size", 103424},
                        {"hidden_size", 2560},
                        {"intermediate_size", 12288},
                        {"num_hidden_layers", 28},
                        {"num_attention_heads", 20},
                        {"num_key_value_heads", 4},
                        {"max_position_embeddings", 131072},
                        {"rms_norm_eps", 1e-5},
                        {"rope_theta", 500000},
                        {"tie_word_embeddings", true},
                        {"moe_intermediate_size", 1536}});
  config["attention_dropout"] = 0.0;
  rename_count(config, "moe_num_experts", "num_experts", 64);
  rename_count(config, "moe_k", "num_experts_per_tok", 6);
  config["decoder_sparse_step"] = get_int(config, "moe_layer_interval", 1, limits::kLayers, 1);
  const int64_t last = get_int(config, "moe_layer_end_index", -1, limits::kLayers, -1);
  set_range_of_experts(config, get_int(config, "moe_layer_start_index", 0, limits::kLayers, 1),
                       last == -1 ? limits::kLayers : last);
}

// As ExaoneMoeConfig has it.
void complete_exaone_moe(Json& config) {
  rename_key(config, "first_last_k_dense_replace", "first_k_dense_replace");
  set_defaults(config, {{"num_key_value_heads", 32},
                        {"moe_intermediate_size", 1024},
                        {"num_experts", 64},
                        {"num_experts_per_tok", 8},
                        {"num_shared_experts", 1},
                        {"norm_topk_prob", true},
                        {"routed_scaling_factor", 2.5},
                        {"first_k_dense_replace", 1}});
  config["n_shared_experts"] = get_int(config, "num_shared_experts", 0, limits::kExperts);
  complete_exaone4(config);
  set_dense_layers(config);
}

// As BailingMoeV2Config has it. The code beside it makes the chosen experts' weights add up to 1
// whatever norm_topk_prob says, unless a token goes through one.
void complete_bailing_moe_v2(Json& config) {
  set_defaults(config, {{"vocab_size", 157184},
                        {"hidden_size", 2048},
                        {"intermediate_size", 5120},
                        {"num_hidden_layers", 20},
                        {"num_attention_heads", 16},
                        {"num_key_value_heads", 4},
                        {"head_dim", 128},
                        {"max_position_embeddings", 32768},
                        {"rope_theta", 600000},
                        {"num_experts", 256},
                        {"num_shared_experts", 1},
                        {"num_experts_per_tok", 8},
                        {"moe_intermediate_size", 512},
                        {"n_group", 8},
                        {"topk_group", 4},
                        {"first_k_dense_replace", 1},
                        {"tie_word_embeddings", false}});
  read_rotary_dim(config);
  config["n_routed_experts"] = Json(config["num_experts"]);
  config["n_shared_experts"] = get_int(config, "num_shared_experts", 0, limits::kExperts);
  config["norm_topk_prob"] = get_int(config, "num_experts_per_tok", 1, limits::kExperts) > 1;
  set_dense_layers(config);
}

// As Glm4MoeConfig has it. Rotation is of half a head unless a config says otherwise.
void complete_glm4_moe(Json& config) {
  rename_key(config, "num_mtp_layers", "num_nextn_predict_layers");
  set_defaults(config, {{"vocab_size", 151552},
                        {"hidden_size", 4096},
                        {"intermediate_size", 10944},
                        {"num_hidden_layers", 46},
                        {"num_attention_heads", 96},
                        {"num_key_value_heads", 8},
                        {"max_position_embeddings", 131072},
                        {"rms_norm_eps", 1e-5},
                        {"partial_rotary_factor", 0.5},
                        {"n_shared_experts", 1},
                        {"num_experts_per_tok", 8},
                        {"moe_intermediate_size", 1408},
                        {"norm_topk_prob", true},
                        {"n_group", 1},
                        {"topk_group", 1},
                        {"first_k_dense_replace", 1},
                        {"num_nextn_predict_layers", 1},
                        {"tie_word_embeddings", false}});
  rename_count(config, "n_routed_experts", "num_experts", 128);
  set_range_of_experts(config, get_int(config, "first_k_dense_replace", 0, limits::kLayers),
                       limits::kLayers);
}

// As SolarOpenConfig has it; all layers have experts.
void complete_solar_open(Json& config) {
  set_defaults(config, {{"vocab_size", 196608},
                        {"num_hidden_layers", 48},
                        {"num_attention_heads", 64},
                        {"head_dim", 128},
                        {"rope_theta", 1e6},
                        {"partial_rotary_factor", 1.0},
                        {"moe_intermediate_size", 1280},
                        {"first_k_dense_replace", 0},
                        {"attention_bias", false}});
  complete_glm4_moe(config);
}

// As MellumConfig has it; without a list all layers see all tokens and have experts.
void complete_mellum(Json& config) {
  rename_key(config, "num_local_experts", "num_experts");
  set_defaults(config, {{"vocab_size", 98304},
                        {"hidden_size", 2304},
                        {"intermediate_size", 7168},
                        {"num_hidden_layers", 28},
                        {"num_attention_heads", 32},
                        {"num_key_value_heads", 4},
                        {"head_dim", 128},
                        {"num_experts", 64},
                        {"num_experts_per_tok", 8},
                        {"moe_intermediate_size", 896},
                        {"norm_topk_prob", true},
                        {"max_position_embeddings", 131072},
                        {"rope_theta", 500000},
                        {"rope_local_base_freq", 1e4},
                        {"tie_word_embeddings", false}});
  set_absent(config, "sliding_window", 1024);
  set_layer_types(config, 1);
  for (const char* key : {"first_k_dense_replace", "moe_layer_freq"}) config.erase(key);
  set_dense_layers(config);
}

// As Dots1Config has it.
void complete_dots1(Json& config) {
  set_defaults(config, {{"vocab_size", 152064},
                        {"hidden_size", 4608},
                        {"intermediate_size", 10944},
                        {"num_hidden_layers", 62},
                        {"num_attention_heads", 32},
                        {"num_key_value_heads", 32},
                        {"moe_intermediate_size", 1408},
                        {"first_k_dense_replace", 0},
                        {"max_window_layers", 62},
                        {"tie_word_embeddings", false}});
  config["num_experts"] = get_int(config, "n_routed_experts", 1, limits::kExperts);
  set_absent(config, "sliding_window", 4096);  // null is no window
  set_range_of_experts(config, get_int(config, "first_k_dense_replace", 0, limits::kLayers),
                       limits::kLayers);
}

// As AfmoeConfig has it.
void complete_afmoe(Json& config) {
  set_defaults(config, {{"vocab_size", 200192},
                        {"hidden_size", 2048},
                        {"intermediate_size", 6144},
                        {"moe_intermediate_size", 1408},
                        {"num_hidden_layers", 32},
                        {"num_dense_layers", 1},
                        {"num_attention_heads", 16},
                        {"head_dim", 128},
                        {"num_experts", 64},
                        {"num_experts_per_tok", 6},
                        {"max_position_embeddings", 16384},
                        {"rms_norm_eps", 1e-5},
                        {"sliding_window", 1024},
                        {"norm_topk_prob", true},
                        {"tie_word_embeddings", false}});
  rename_count(config, "num_shared_experts", "n_shared_experts", 2);
  config["routed_scaling_factor"] = get_number(config, "route_scale", 0, 1e6, 1);
  set_layer_types(config, get_int(config, "global_attn_every_n_layers", 1, limits::kLayers, 4));
  set_range_of_experts(config, get_int(config, "num_dense_layers", 0, limits::kLayers),
                       limits::kLayers);
}

// As Llama4TextConfig has it.
void complete_llama4(Json& config) {
  set_defaults(config, {{"vocab_size", 202048},
                        {"hidden_size", 5120},
                        {"intermediate_size", 8192},
                        {"intermediate_size_mlp", 16384},
                        {"num_hidden_layers", 48},
                        {"num_attention_heads", 40},
                        {"num_key_value_heads", 8},
                        {"head_dim", 128},
                        {"num_local_experts", 16},
                        {"num_experts_per_tok", 1},
                        {"max_position_embeddings", 131072},
                        {"rms_norm_eps", 1e-5},
                        {"rope_theta", 500000},
                        {"tie_word_embeddings", false}});
  set_absent(config, "attention_chunk_size", 8192);  // null is none
  const Json* still = find_value(config, "no_rope_layers");
  if (still != nullptr && still->is_array() && still->empty()) config.erase("no_rope_layers");
  config.erase("layer_types");  // as the layers rotate
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  const int64_t step = get_int(config, "interleave_moe_layer_step", 1, limits::kLayers, 1);
  std::vector<bool> sparse(static_cast<size_t>(layers), false);
  if (find_value(config, "moe_layers") != nullptr) {
    for (const size_t layer : listed_layers(config, "moe_layers")) sparse[layer] = true;
  } else {
    for (int64_t i = step - 1; i < layers; i += step) sparse[static_cast<size_t>(i)] = true;
  }
  Json dense = Json::array();
  for (int64_t i = 0; i < layers; ++i) {
    if (!sparse[static_cast<size_t>(i)]) dense.push_back(i);
  }
  config["mlp_only_layers"] = std::move(dense);
}

// As HYV3Config has it.
void complete_hy_v3(Json& config) {
  rename_key(config, "num_local_experts", "num_experts");
  set_defaults(config, {{"vocab_size", 120832},
                        {"hidden_size", 4096},
                        {"intermediate_size", 13312},
                        {"num_hidden_layers", 80},
                        {"num_attention_heads", 64},
                        {"num_key_value_heads", 8},
                        {"head_dim", 128},
                        {"num_experts", 192},
                        {"num_experts_per_tok", 8},
                        {"moe_intermediate_size", 1536},
                        {"max_position_embeddings", 131072},
                        {"rms_norm_eps", 1e-5},
                        {"rope_theta", 11158840.0},
                        {"initializer_range", 0.006},
                        {"first_k_dense_replace", 1},
                        {"tie_word_embeddings", false}});
  rename_count(config, "num_shared_experts", "n_shared_experts", 1);
  config["routed_scaling_factor"] = get_number(config, "router_scaling_factor", 0, 1e6, 2.826);
  config["norm_topk_prob"] = true;
  set_dense_layers(config);
}

// As Cohere2MoeConfig has it. Without rms_norm_eps norms are layer norms.
void complete_cohere2_moe(Json& config) {
  set_defaults(config, {{"head_dim", 128},
                        {"num_experts", 8},
                        {"num_experts_per_tok", 2},
                        {"layer_norm_eps", 1e-5},
                        {"prefix_dense_sliding_window_pattern", 1}});
  set_absent(config, "sliding_window", 4096);
  config["has_layer_norms"] = find_value(config, "rms_norm_eps") == nullptr;
  set_default(config, "rms_norm_eps", Json(config["layer_norm_eps"]));
  complete_any_cohere(config);
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  const int64_t first = get_int(config, "first_k_dense_replace", 0, layers, 0);
  const auto period = [&](const char* key, int64_t usual) {
    return get_int(config, key, 1, limits::kLayers, usual);
  };
  Json types = periodic_layer_types(first, period("prefix_dense_sliding_window_pattern", 1));
  for (const Json& type :
       periodic_layer_types(layers - first, period("sliding_window_pattern", 4))) {
    types.push_back(type);
  }
  set_default(config, "layer_types", std::move(types));
  set_dense_layers(config);
}

// As LagunaConfig has it.
void complete_laguna(Json& config) {
  set_defaults(config, {{"vocab_size", 100352},
                        {"hidden_size", 2048},
                        {"intermediate_size", 8192},
                        {"num_hidden_layers", 40},
                        {"num_attention_heads", 48},
                        {"num_key_value_heads", 8},
                        {"head_dim", 128},
                        {"num_experts", 256},
                        {"num_experts_per_tok", 8},
                        {"moe_intermediate_size", 512},
                        {"shared_expert_intermediate_size", 512},
                        {"max_position_embeddings", 131072},
                        {"sliding_window", 512},
                        {"first_k_dense_replace", 1},
                        {"rope_local_base_freq", 1e4},
                        {"tie_word_embeddings", false}});
  if (find_value(config, "rope_parameters") == nullptr) {
    set_defaults(config, {{"rope_theta", 500000}, {"partial_rotary_factor", 0.5}});
  }
  set_layer_types(config, 1);
  set_dense_layers(config);
}

// As GraniteMoeConfig and GraniteMoeSharedConfig have it.
void complete_granite_moe(Json& config) {
  set_defaults(config, {{"vocab_size", 32000},
                        {"hidden_size", 4096},
                        {"intermediate_size", 11008},
                        {"num_hidden_layers", 32},
                        {"num_attention_heads", 32},
                        {"num_local_experts", 8},
                        {"num_experts_per_tok", 2},
                        {"tie_word_embeddings", false}});
}

namespace {

// A number, or the one that a list has for every layer.
int64_t number_for_all(const Json& config, const char* key, int64_t least, int64_t most) {
  const Json* list = find_value(config, key);
  if (list == nullptr || !list->is_array()) return get_int(config, key, least, most, 1);
  for (size_t i = 1; i < list->size(); ++i) {
    if ((*list)[i] == (*list)[0]) continue;
    fail(ErrorKind::kUnsupported, key, ": layer ", i, " has ", describe(&(*list)[i]),
         ", unlike layer 0, which has ", describe(&(*list)[0]));
  }
  return get_int({{key, list->empty() ? Json() : Json((*list)[0])}}, key, least, most);
}

}  // namespace

// As HunYuanMoEV1Config has it: what published configs have a list of is the same in all layers,
// and all experts have the size of feed-forward layers.
void complete_hunyuan_moe(Json& config) {
  complete_hunyuan(config);
  config["num_experts"] = number_for_all(config, "num_experts", 1, limits::kExperts);
  const char* const used = find(config, "moe_topk") ? "moe_topk" : "num_experts_per_tok";
  config["moe_topk"] = config["num_experts_per_tok"] =
      number_for_all(config, used, 1, limits::kExperts);
  const int64_t inner = get_int(config, "intermediate_size", 1, limits::kDim);
  for (const auto& [key, expected] :
       {std::pair("moe_intermediate_size", inner), {"num_shared_expert", int64_t{1}}}) {
    if (find_value(config, key) == nullptr) continue;
    config[key] = number_for_all(config, key, 1, limits::kDim);
    if (config[key] == expected) continue;
    fail(ErrorKind::kUnsupported, key, " ", config[key].get<int64_t>(), " is not supported; ",
         "transformers takes it for ", expected);
  }
}

}  // namespace lumen::io
