// The configs of models whose layers keep states in place of keys and values: Mamba-2, Gated
// DeltaNets, short convolutions.
#include <algorithm>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/round_up.h"
#include "lib/base/strings.h"
#include "lib/io/family_completions.h"
#include "lib/io/layer_windows.h"

namespace lumen::io {
namespace {

constexpr int64_t kEndlessContext = int64_t{1} << 20;  // as llama.cpp has it

// How many of `inner` numbers a head of Mamba-2 has, unless it is said.
void set_mamba_head_dim(Json& config, int64_t inner) {
  const Json* head_dim = find_value(config, "mamba_d_head");
  if (head_dim != nullptr && *head_dim != "auto") return;
  const int64_t heads = get_int(config, "mamba_n_heads", 1, limits::kHeads);
  config["mamba_d_head"] = std::max<int64_t>(1, inner / heads);
}

}  // namespace

// As GraniteMoeHybridConfig has it: without a list all layers are Mamba-2's. The shared layer is
// all that there is without experts.
void complete_granite_moe_hybrid(Json& config) {
  rename_key(config, "layers_block_type", "layer_types");
  complete_granite_moe(config);
  set_defaults(config, {{"shared_intermediate_size", 1024},
                        {"mamba_n_heads", 128},
                        {"mamba_n_groups", 1},
                        {"mamba_d_state", 256},
                        {"mamba_d_conv", 4},
                        {"mamba_expand", 2},
                        {"mamba_conv_bias", true},
                        {"mamba_proj_bias", false}});
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  set_default(config, "layer_types", periodic_layer_types(layers, layers + 1, "mamba"));
  set_mamba_head_dim(config, get_int(config, "mamba_expand", 1, 64) *
                                 get_int(config, "hidden_size", 1, limits::kDim));
  if (expert_count(config) == 0) {
    config["intermediate_size"] = Json(config["shared_intermediate_size"]);
  }
}

namespace {

// The layers_block_type that a pattern of a letter for each layer says.
Json pattern_types(const std::string& pattern) {
  constexpr std::pair<char, const char*> kLetters[] = {
      {'M', "mamba"}, {'*', "attention"}, {'-', "mlp"}, {'E', "moe"}};
  Json types = Json::array();
  for (const char letter : pattern) {
    for (const auto& [known, type] : kLetters) {
      if (letter == known) types.push_back(type);
    }
  }
  if (!types.empty() && types.size() == pattern.size()) return types;
  fail(ErrorKind::kMalformed, "hybrid_override_pattern: found ", quoted(pattern),
       ", expected a letter for each layer: M (Mamba-2), * (attention), - (mlp) or E (experts)");
}

}  // namespace

// As NemotronHConfig has it: layers are said by a list or a pattern, which alone may tell how many
// there are; experts are there if a layer has some, whatever else a config says of them.
void complete_nemotron_h(Json& config) {
  constexpr const char* kTypes = "layers_block_type";
  // Keys that its class takes for others, and which then count.
  for (const auto& [from, to] : {std::pair("mamba_n_groups", "n_groups"),
                                 {"mamba_d_conv", "conv_kernel"},
                                 {"mamba_dt_limit", "time_step_limit"},
                                 {"mamba_conv_bias", "use_conv_bias"}}) {
    if (find_value(config, from) != nullptr) config[to] = Json(config[from]);
  }
  rename_key(config, "layer_types", kTypes);
  rename_key(config, "attention_head_dim", "head_dim");
  rename_key(config, "num_local_experts", "n_routed_experts");
  set_defaults(config, {{"vocab_size", 131072},
                        {"hidden_size", 4096},
                        {"intermediate_size", 21504},
                        {"num_attention_heads", 32},
                        {"num_key_value_heads", 8},
                        {"head_dim", 128},
                        {"max_position_embeddings", 4096},
                        {"mlp_hidden_act", "relu2"},
                        {"mamba_num_heads", 128},
                        {"mamba_head_dim", 64},
                        {"n_groups", 8},
                        {"ssm_state_size", 128},
                        {"conv_kernel", 4},
                        {"moe_intermediate_size", 7688},
                        {"moe_shared_expert_intermediate_size", 7688},
                        {"num_experts_per_tok", 2},
                        {"n_group", 1},
                        {"topk_group", 1},
                        {"norm_topk_prob", true},
                        {"tie_word_embeddings", false}});
  config["hidden_act"] = Json(config["mlp_hidden_act"]);
  if (find_value(config, kTypes) == nullptr) {
    config[kTypes] = pattern_types(get_string(config, "hybrid_override_pattern", "ME*-"));
  }
  config.erase("hybrid_override_pattern");
  if (config[kTypes].is_array()) {
    set_default(config, "num_hidden_layers", config[kTypes].size());
  }
  const std::vector<SingleLayer> layers = single_layers(config);
  for (const char* key : {"num_experts", "num_local_experts"}) config.erase(key);
  if (std::find(layers.begin(), layers.end(), SingleLayer::kExperts) == layers.end()) return;
  rename_count(config, "n_routed_experts", "num_experts", 8);
}

// As FalconH1Config has it; null for mamba_d_ssm is mamba_expand times the hidden size.
void complete_falcon_h1(Json& config) {
  set_defaults(config, {{"vocab_size", 128000},
                        {"hidden_size", 4096},
                        {"intermediate_size", 14336},
                        {"num_hidden_layers", 32},
                        {"num_attention_heads", 32},
                        {"rms_norm_eps", 1e-5},
                        {"max_position_embeddings", 8192},
                        {"mamba_n_heads", 128},
                        {"mamba_n_groups", 1},
                        {"mamba_d_state", 256},
                        {"mamba_d_conv", 4},
                        {"mamba_expand", 2},
                        {"embedding_multiplier", 1.0},
                        {"tie_word_embeddings", false}});
  set_absent(config, "num_key_value_heads", 8);  // null: as many as heads
  set_absent(config, "mamba_d_ssm", 1024);
  if (config["mamba_d_ssm"].is_null()) {
    config["mamba_d_ssm"] =
        get_int(config, "mamba_expand", 1, 64) * get_int(config, "hidden_size", 1, limits::kDim);
  }
  set_mamba_head_dim(config, get_int(config, "mamba_d_ssm", 1, limits::kDim));
}

// As Mamba2Config has it, which has no attention and no end of contexts.
void complete_mamba2(Json& config) {
  set_defaults(config, {{"vocab_size", 32768},
                        {"hidden_size", 4096},
                        {"num_hidden_layers", 64},
                        {"num_heads", 128},
                        {"head_dim", 64},
                        {"n_groups", 8},
                        {"state_size", 128},
                        {"conv_kernel", 4},
                        {"expand", 2},
                        {"max_position_embeddings", kEndlessContext},
                        {"tie_word_embeddings", false}});
  config["num_attention_heads"] = config["num_key_value_heads"] = 1;
  config["intermediate_size"] = get_int(config, "num_heads", 1, limits::kHeads) *
                                get_int(config, "head_dim", 1, limits::kDim);
}

namespace {

// Of Qwen3-Next and Qwen3.5.
void complete_any_delta_net(Json& config) {
  set_defaults(config, {{"num_attention_heads", 16},
                        {"head_dim", 256},
                        {"max_position_embeddings", 32768},
                        {"partial_rotary_factor", 0.25},
                        {"linear_conv_kernel_dim", 4},
                        {"linear_key_head_dim", 128},
                        {"linear_value_head_dim", 128},
                        {"linear_num_key_heads", 16},
                        {"linear_num_value_heads", 32},
                        {"rms_norm_offset", 1},
                        {"tie_word_embeddings", false}});
  const int64_t period = get_int(config, "full_attention_interval", 1, limits::kLayers, 4);
  set_layer_types(config, period, "linear_attention");
}

}  // namespace

// As Qwen3_5TextConfig has it.
void complete_qwen3_5(Json& config) {
  set_defaults(config, {{"vocab_size", 248320},
                        {"hidden_size", 4096},
                        {"intermediate_size", 12288},
                        {"num_hidden_layers", 32},
                        {"num_key_value_heads", 4}});
  complete_any_delta_net(config);
}

// As Qwen3_5MoeTextConfig has it: every layer has experts, and their probabilities add up to 1.
void complete_qwen3_5_moe(Json& config) {
  set_defaults(config, {{"vocab_size", 248320},
                        {"hidden_size", 2048},
                        {"num_hidden_layers", 40},
                        {"num_key_value_heads", 2},
                        {"moe_intermediate_size", 512},
                        {"shared_expert_intermediate_size", 512},
                        {"num_experts_per_tok", 8},
                        {"num_experts", 256}});
  set_default(config, "intermediate_size", Json(config["moe_intermediate_size"]));
  config["norm_topk_prob"] = true;
  for (const char* key : {"decoder_sparse_step", "mlp_only_layers"}) config.erase(key);
  complete_any_delta_net(config);
}

// As Qwen3NextConfig has it.
void complete_qwen3_next(Json& config) {
  set_defaults(config, {{"vocab_size", 151936},
                        {"hidden_size", 2048},
                        {"intermediate_size", 5632},
                        {"num_hidden_layers", 48},
                        {"num_key_value_heads", 2},
                        {"moe_intermediate_size", 512},
                        {"shared_expert_intermediate_size", 512},
                        {"num_experts_per_tok", 10},
                        {"num_experts", 512},
                        {"norm_topk_prob", true}});
  complete_any_delta_net(config);
}

// As BambaConfig has it: half of each head rotates, and layers are Mamba-2's unless they are
// listed.
void complete_bamba(Json& config) {
  set_defaults(config, {{"vocab_size", 128000},
                        {"hidden_size", 4096},
                        {"intermediate_size", 14336},
                        {"num_hidden_layers", 32},
                        {"num_attention_heads", 32},
                        {"rms_norm_eps", 1e-5},
                        {"max_position_embeddings", 262144},
                        {"mamba_n_heads", 128},
                        {"mamba_n_groups", 1},
                        {"mamba_d_state", 256},
                        {"mamba_d_conv", 4},
                        {"mamba_expand", 2},
                        {"partial_rotary_factor", 0.5},
                        {"tie_word_embeddings", false}});
  set_absent(config, "num_key_value_heads", 8);  // null: as many as heads
  set_mamba_head_dim(config, get_int(config, "mamba_expand", 1, 64) *
                                 get_int(config, "hidden_size", 1, limits::kDim));
}

namespace {

// How many numbers time steps are made of: a sixteenth of the hidden size, unless they are said.
void set_step_rank(Json& config, const char* key) {
  const Json* rank = find_value(config, key);
  if (rank != nullptr && *rank != "auto") return;
  config[key] = divide_up(get_int(config, "hidden_size", 1, limits::kDim), 16);
}

}  // namespace

// As MambaConfig and FalconMambaConfig have it, which have no attention and no end of contexts.
void complete_mamba(Json& config) {
  set_defaults(config, {{"vocab_size", 50280},
                        {"hidden_size", 768},
                        {"num_hidden_layers", 32},
                        {"state_size", 16},
                        {"conv_kernel", 4},
                        {"max_position_embeddings", kEndlessContext},
                        {"tie_word_embeddings", true}});
  const double inner = get_number(config, "expand", 0, 64, 2) *
                       static_cast<double>(get_int(config, "hidden_size", 1, limits::kDim));
  set_default(config, "intermediate_size", static_cast<int64_t>(inner));
  set_step_rank(config, "time_step_rank");
  config["num_attention_heads"] = config["num_key_value_heads"] = 1;
}

// As JambaConfig has it. One expert is a feed-forward layer.
void complete_jamba(Json& config) {
  rename_key(config, "num_local_experts", "num_experts");
  set_defaults(config, {{"vocab_size", 65536},
                        {"hidden_size", 4096},
                        {"intermediate_size", 14336},
                        {"num_hidden_layers", 32},
                        {"num_attention_heads", 32},
                        {"num_experts", 16},
                        {"num_experts_per_tok", 2},
                        {"expert_layer_period", 2},
                        {"expert_layer_offset", 1},
                        {"attn_layer_period", 8},
                        {"attn_layer_offset", 4},
                        {"mamba_d_state", 16},
                        {"mamba_d_conv", 4},
                        {"mamba_expand", 2},
                        {"max_position_embeddings", 262144},
                        {"tie_word_embeddings", false}});
  set_absent(config, "num_key_value_heads", 8);  // null: as many as heads
  set_step_rank(config, "mamba_dt_rank");
  if (get_int(config, "num_experts", 0, limits::kExperts) == 1) config["num_experts"] = 0;
  const bool has_experts = config["num_experts"] != 0;
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  const int64_t period = get_int(config, "expert_layer_period", 1, limits::kLayers);
  const int64_t offset = get_int(config, "expert_layer_offset", 0, limits::kLayers);
  Json dense = Json::array();
  for (int64_t i = 0; i < layers; ++i) {
    if (!has_experts || i % period != offset) dense.push_back(i);
  }
  config["mlp_only_layers"] = std::move(dense);
}

// As RecurrentGemmaConfig has it: layers are of the types of a list that is repeated, and those
// with attention have a window.
void complete_recurrent_gemma(Json& config) {
  constexpr const char* kTypes = "block_types";
  rename_key(config, "attention_window_size", "sliding_window");
  set_defaults(config, {{"vocab_size", 256000},
                        {"hidden_size", 2560},
                        {"intermediate_size", 7680},
                        {"num_hidden_layers", 26},
                        {"num_attention_heads", 10},
                        {"sliding_window", 2048},
                        {"conv1d_width", 4},
                        {"logits_soft_cap", 30.0},
                        {"hidden_activation", "gelu_pytorch_tanh"},
                        {"partial_rotary_factor", 0.5},
                        {"rms_norm_offset", 1},
                        {"max_position_embeddings", kEndlessContext},
                        {kTypes, {"recurrent", "recurrent", "attention"}},
                        {"tie_word_embeddings", true}});
  config["hidden_act"] = Json(config["hidden_activation"]);
  const int64_t dim = get_int(config, "hidden_size", 1, limits::kDim);
  set_default(config, "lru_width", dim);
  config["head_dim"] =
      std::max<int64_t>(1, dim / get_int(config, "num_attention_heads", 1, limits::kHeads));
  const Json& period = config[kTypes];
  const auto is_known = [](const Json& type) { return type == "recurrent" || type == "attention"; };
  if (!period.is_array() || period.empty() || !std::ranges::all_of(period, is_known)) {
    fail(ErrorKind::kMalformed, kTypes, ": found ", describe(&period),
         ", expected an array of recurrent and attention");
  }
  Json types = Json::array();
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  for (size_t i = 0; i < static_cast<size_t>(layers); ++i) {
    types.push_back(period[i % period.size()] == "recurrent" ? "linear_attention"
                                                             : "full_attention");
  }
  config["layer_types"] = std::move(types);
}

// As Zamba2Config has it: a block of attention is twice as wide as the model.
void complete_zamba2(Json& config) {
  rename_key(config, "layers_block_type", "layer_types");
  set_defaults(config, {{"vocab_size", 32000},
                        {"hidden_size", 2560},
                        {"num_hidden_layers", 54},
                        {"num_attention_heads", 32},
                        {"hidden_act", "gelu"},
                        {"rms_norm_eps", 1e-5},
                        {"max_position_embeddings", 4096},
                        {"mamba_d_state", 64},
                        {"mamba_d_conv", 4},
                        {"mamba_expand", 2},
                        {"mamba_ngroups", 1},
                        {"n_mamba_heads", 8},
                        {"num_mem_blocks", 1},
                        {"adapter_rank", 128},
                        {"tie_word_embeddings", true}});
  const int64_t dim = get_int(config, "hidden_size", 1, limits::kDim / 64);
  const int64_t heads = get_int(config, "num_attention_heads", 1, limits::kHeads);
  const int64_t mamba_heads = get_int(config, "n_mamba_heads", 1, limits::kHeads);
  const int64_t inner = get_int(config, "mamba_expand", 1, 64) * dim;
  if (inner % mamba_heads != 0) {
    fail(ErrorKind::kMalformed, "mamba_expand · hidden_size = ", inner,
         " is not a multiple of n_mamba_heads ", mamba_heads);
  }
  set_default(config, "intermediate_size", 4 * dim);
  set_default(config, "num_key_value_heads", heads);
  config["head_dim"] = std::max<int64_t>(1, 2 * dim / heads);
  config["mamba_headdim"] = inner / mamba_heads;
  for (const char* key : {"time_step_limit", "mamba_activation"}) config.erase(key);
  if (get_bool(config, "use_long_context", false)) config["max_position_embeddings"] = 16384;
  if (find_value(config, "layer_types") != nullptr) return;
  // Of the 54 layers of Zamba2 2.7B those with a block.
  constexpr size_t kHybrid[] = {6, 12, 18, 24, 30, 36, 42, 47, 51};
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  Json types = periodic_layer_types(54, 55, "mamba");
  for (const size_t layer : kHybrid) types[layer] = "hybrid";
  if (layers == 54) config["layer_types"] = std::move(types);
}

// As OlmoHybridConfig has it; null for rope_theta is no rotation.
void complete_olmo_hybrid(Json& config) {
  set_defaults(config, {{"vocab_size", 100352},
                        {"hidden_size", 3840},
                        {"intermediate_size", 11008},
                        {"num_hidden_layers", 32},
                        {"num_attention_heads", 30},
                        {"max_position_embeddings", 65536},
                        {"linear_conv_kernel_dim", 4},
                        {"linear_allow_neg_eigval", true},
                        {"tie_word_embeddings", false}});
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  const int64_t heads = get_int(config, "num_attention_heads", 1, limits::kHeads);
  for (const char* key : {"linear_num_key_heads", "linear_num_value_heads"}) {
    set_default(config, key, heads);
  }
  const int64_t keys = get_int(config, "linear_num_key_heads", 1, limits::kHeads);
  const int64_t hidden = get_int(config, "hidden_size", 1, limits::kDim);
  set_default(config, "linear_key_head_dim", std::max<int64_t>(1, 3 * hidden / (4 * keys)));
  set_default(config, "linear_value_head_dim",
              2 * get_int(config, "linear_key_head_dim", 1, limits::kDim));
  // With fewer layers than that the last has attention.
  set_layer_types(config, std::min<int64_t>(4, layers), "linear_attention");
  const Json* rope = find_value(config, "rope_parameters");
  const Json* theta = find(rope != nullptr && rope->is_object() ? *rope : config, "rope_theta");
  if (theta != nullptr && theta->is_null()) {
    config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", nullptr}};
  }
}

namespace {

// The layer_types of LFM2 that full_attn_idxs says, if the config has no such list.
void set_convolution_layers(Json& config) {
  if (find_value(config, "layer_types") != nullptr) return;
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  const bool all = find_value(config, "full_attn_idxs") == nullptr;
  Json types = periodic_layer_types(layers, all ? 1 : layers + 1, "conv");
  for (const size_t layer : listed_layers(config, "full_attn_idxs")) {
    types[layer] = "full_attention";
  }
  config["layer_types"] = std::move(types);
}

}  // namespace

// As Lfm2Config has it, but with the inner size of feed-forward layers that they have: of what
// block_auto_adjust_ff_dim asks to adjust two thirds, times a multiplier, rounded up to a multiple.
void complete_lfm2(Json& config) {
  rename_key(config, "tie_embedding", "tie_word_embeddings");
  set_defaults(config, {{"vocab_size", 65536},
                        {"hidden_size", 2560},
                        {"intermediate_size", 12288},
                        {"num_hidden_layers", 32},
                        {"num_attention_heads", 32},
                        {"num_key_value_heads", 8},
                        {"max_position_embeddings", 128000},
                        {"rope_theta", 1e6},
                        {"conv_L_cache", 3},
                        {"tie_word_embeddings", true}});
  const bool has_older_size = find_value(config, "block_ff_dim") != nullptr;
  int64_t size =
      get_int(config, has_older_size ? "block_ff_dim" : "intermediate_size", 1, limits::kDim);
  if (get_bool(config, "block_auto_adjust_ff_dim", true)) {
    const int64_t multiple = get_int(config, "block_multiple_of", 1, limits::kDim, 256);
    const double factor = get_number(config, "block_ffn_dim_multiplier", 1e-3, 1e3, 1);
    size = static_cast<int64_t>(factor * static_cast<double>(2 * size / 3));
    size = std::max<int64_t>(1, round_up(size, multiple));
  }
  config["intermediate_size"] = size;
  config["block_auto_adjust_ff_dim"] = false;
  config.erase("block_ff_dim");
  set_convolution_layers(config);
}

// As Lfm3Config has it.
void complete_lfm3(Json& config) {
  set_defaults(config, {{"vocab_size", 128000},
                        {"hidden_size", 2048},
                        {"intermediate_size", 7680},
                        {"num_hidden_layers", 24},
                        {"num_attention_heads", 16},
                        {"num_key_value_heads", 4},
                        {"head_dim", 128},
                        {"max_position_embeddings", 128000},
                        {"conv_L_cache", 7},
                        {"rope_local_base_freq", 1e4},
                        {"tie_word_embeddings", true}});
  set_absent(config, "sliding_window", 256);
  if (find_value(config, "rope_parameters") == nullptr) {
    set_defaults(config, {{"rope_theta", 1e6},
                          {"rope_scaling",
                           {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.5}}}});
  }
  if (find_value(config, "layer_types") != nullptr) return;
  Json types = Json::array();
  for (int64_t i = 0; i < get_int(config, "num_hidden_layers", 1, limits::kLayers); ++i) {
    types.push_back(i % 4 == 2            ? "full_attention"
                    : i % 4 == 0 && i > 0 ? "sliding_attention"
                                          : "conv");
  }
  config["layer_types"] = std::move(types);
}

// As Lfm2MoeConfig has it; a config that names the layers with attention may leave out the list of
// all layers' types.
void complete_lfm2_moe(Json& config) {
  rename_key(config, "tie_embedding", "tie_word_embeddings");
  set_defaults(config, {{"vocab_size", 65536},
                        {"hidden_size", 2048},
                        {"intermediate_size", 7168},
                        {"moe_intermediate_size", 1792},
                        {"num_hidden_layers", 32},
                        {"num_attention_heads", 32},
                        {"num_key_value_heads", 8},
                        {"max_position_embeddings", 128000},
                        {"rope_theta", 1e6},
                        {"conv_L_cache", 3},
                        {"num_dense_layers", 2},
                        {"num_experts", 32},
                        {"num_experts_per_tok", 4},
                        {"norm_topk_prob", true},
                        {"use_expert_bias", true},
                        {"tie_word_embeddings", true}});
  if (find_value(config, "full_attn_idxs") != nullptr) set_convolution_layers(config);
  set_range_of_experts(config, get_int(config, "num_dense_layers", 0, limits::kLayers),
                       limits::kLayers);
}

}  // namespace lumen::io
