#include "lib/io/family_defaults.h"

#include <algorithm>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/round_up.h"
#include "lib/base/strings.h"
#include "lib/io/layer_windows.h"

namespace lumen::io {

void rename_key(Json& object, const char* from, const char* to) {
  if (const Json* value = find(object, from); value != nullptr && find(object, to) == nullptr) {
    object[to] = *value;
  }
}

void set_default(Json& config, const char* key, Json value) {
  if (find_value(config, key) == nullptr) config[key] = std::move(value);
}

namespace {

constexpr int64_t kEndlessContext = int64_t{1} << 20;  // as llama.cpp has it

// As set_default where null means something else than an absent key.
void set_absent(Json& config, const char* key, Json value) {
  if (find(config, key) == nullptr) config[key] = std::move(value);
}

// GPT-2's config has names of its own.
void rename_gpt2_keys(Json& config) {
  rename_key(config, "n_embd", "hidden_size");
  rename_key(config, "n_layer", "num_hidden_layers");
  rename_key(config, "n_head", "num_attention_heads");
  rename_key(config, "n_positions", "max_position_embeddings");
  rename_key(config, "n_inner", "intermediate_size");
  if (const Json* dim = find_value(config, "hidden_size"); dim != nullptr && dim->is_number()) {
    set_default(config, "intermediate_size", 4 * dim->get<int64_t>());
  }
}

// Layers of type `most` and, every `period`-th, with full attention, if the config has no list.
void set_layer_types(Json& config, int64_t period, std::string_view most = "sliding_attention") {
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  set_default(config, "layer_types", periodic_layer_types(layers, period, most));
}

void set_defaults(Json& config, std::initializer_list<std::pair<const char*, Json>> defaults) {
  for (const auto& [key, value] : defaults) set_default(config, key, value);
}

// Published configs of Gemma leave out what is as their class has it.
void complete_any_gemma(Json& config) {
  set_defaults(config, {{"head_dim", 256},
                        {"vocab_size", 256000},
                        {"max_position_embeddings", 8192},
                        {"rms_norm_offset", 1},
                        {"tie_word_embeddings", true}});
}

void complete_gemma(Json& config) {
  complete_any_gemma(config);
  set_default(config, "hidden_act", "gelu_pytorch_tanh");
  // What was published as "gelu" was trained with the other form.
  if (config["hidden_act"] == "gelu") config["hidden_act"] = "gelu_pytorch_tanh";
}

// Of the second and third.
void complete_newer_gemma(Json& config) {
  set_defaults(config, {{"num_hidden_layers", 26},
                        {"hidden_size", 2304},
                        {"intermediate_size", 9216},
                        {"num_attention_heads", 8},
                        {"num_key_value_heads", 4},
                        {"query_pre_attn_scalar", 256},
                        {"hidden_activation", "gelu_pytorch_tanh"}});
  config["hidden_act"] = Json(config["hidden_activation"]);
  complete_any_gemma(config);
}

void complete_gemma2(Json& config) {
  complete_newer_gemma(config);
  set_layer_types(config, 2);
  // null is no cap, an absent key is not.
  for (const auto& [key, cap] :
       {std::pair("attn_logit_softcapping", 50.0), std::pair("final_logit_softcapping", 30.0)}) {
    set_absent(config, key, cap);
  }
}

void complete_gemma3(Json& config) {
  set_defaults(config, {{"vocab_size", 262208},
                        {"max_position_embeddings", 131072},
                        {"rope_theta", 1e6},
                        {"rope_local_base_freq", 1e4}});
  complete_newer_gemma(config);
  rename_key(config, "_sliding_window_pattern", "sliding_window_pattern");
  set_layer_types(config, get_int(config, "sliding_window_pattern", 1, limits::kLayers, 6));
}

// What per-layer settings, as newer transformers write them, say of the layers that see all. Their
// keys are numbers of layers, with zeros before shorter ones.
void read_global_heads(Json& config) {
  const Json* found = find_value(config, "per_layer_config");
  if (found == nullptr || !found->is_object()) return;
  const Json types = config["layer_types"];
  std::vector<Json> own(types.size());
  for (const auto& [key, settings] : found->items()) {
    int64_t layer = 0;
    const bool is_layer = parse_number(key, layer) && layer >= 0 && layer < std::ssize(own);
    if (!is_layer || !settings.is_object()) {
      fail(ErrorKind::kMalformed, "per_layer_config: found ", quoted(key), ": ",
           describe(&settings), ", expected an object by the number of a layer, below ",
           own.size());
    }
    own[static_cast<size_t>(layer)] = settings;
  }
  for (const auto& [key, global] : {std::pair("head_dim", "global_head_dim"),
                                    {"num_key_value_heads", "num_global_key_value_heads"}}) {
    const Json local = config[key];
    Json common;  // of those that see all
    for (size_t i = 0; i < own.size(); ++i) {
      const Json number = own[i].is_object() ? own[i].value(key, local) : local;
      const bool is_global = types[i] == "full_attention";
      if (is_global && common.is_null()) common = number;
      if (number == (is_global ? common : local)) continue;
      fail(ErrorKind::kUnsupported, "per_layer_config: ", key, " of layer ", i, " is ",
           describe(&number), ", unlike that of other layers of its type");
    }
    if (!common.is_null()) config[global] = common;
  }
}

// As Gemma4TextConfig has what a config leaves out.
void complete_gemma4(Json& config) {
  set_defaults(config, {{"hidden_size", 2304},
                        {"intermediate_size", 9216},
                        {"num_hidden_layers", 30},
                        {"num_attention_heads", 8},
                        {"num_key_value_heads", 4},
                        {"head_dim", 256},
                        {"hidden_activation", "gelu_pytorch_tanh"},
                        {"vocab_size", 262144},
                        {"max_position_embeddings", 131072},
                        {"sliding_window", 512},
                        {"num_kv_shared_layers", 0},
                        {"tie_word_embeddings", true}});
  config["hidden_act"] = Json(config["hidden_activation"]);
  set_absent(config, "hidden_size_per_layer_input", 256);
  // Of Gemma 4 12B, which has no embeddings per layer.
  if (config["model_type"] == "gemma4_unified_text") config["hidden_size_per_layer_input"] = 0;
  if (find_value(config, "rope_parameters") == nullptr) {
    set_defaults(config, {{"rope_theta", 1e6},
                          {"rope_local_base_freq", 1e4},
                          {"rope_scaling",
                           {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}}}});
  }
  set_layer_types(config, 6);
  Json& types = config["layer_types"];
  if (types.is_array() && !types.empty()) {  // else layer_windows says so
    types.back() = "full_attention";
    read_global_heads(config);
  }
  set_default(config, "global_head_dim", 512);
  const bool same = get_bool(config, "attention_k_eq_v", false);
  if (!same && find_value(config, "per_layer_config") == nullptr) {
    config["num_global_key_value_heads"] = Json(config["num_key_value_heads"]);
  }
  set_default(config, "num_global_key_value_heads", Json(config["num_key_value_heads"]));
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

// As SeedOssConfig has it.
void complete_seed_oss(Json& config) {
  set_defaults(config, {{"vocab_size", 155136},
                        {"hidden_size", 4096},
                        {"intermediate_size", 27648},
                        {"num_hidden_layers", 64},
                        {"num_attention_heads", 80},
                        {"num_key_value_heads", 8},
                        {"head_dim", 128},
                        {"max_position_embeddings", 524288},
                        {"attention_bias", true},
                        {"attention_dropout", 0.1},
                        {"residual_dropout", 0.1},
                        {"tie_word_embeddings", false}});
}

// As Ernie4_5Config has it; its attention has no dropout, whatever the config says.
void complete_ernie4_5(Json& config) {
  config["attention_dropout"] = 0.0;
  set_defaults(config, {{"vocab_size", 103424},
                        {"hidden_size", 1024},
                        {"intermediate_size", 3072},
                        {"num_hidden_layers", 18},
                        {"num_attention_heads", 16},
                        {"num_key_value_heads", 2},
                        {"head_dim", 128},
                        {"max_position_embeddings", 131072},
                        {"rms_norm_eps", 1e-5},
                        {"rope_theta", 500000},
                        {"tie_word_embeddings", true}});
}

// Of experts that a family calls `from`: checks it by that name and says it as `to`, too.
void rename_count(Json& config, const char* from, const char* to, int64_t unsaid) {
  if (find_value(config, from) == nullptr) return set_default(config, to, unsaid);
  config[to] = get_int(config, from, 1, limits::kExperts);
}

// Says that only layers from `first` to `last` may have experts.
void set_range_of_experts(Json& config, int64_t first, int64_t last) {
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  Json dense = Json::array();
  for (int64_t i = 0; i < layers; ++i) {
    if (i < first || i > last) dense.push_back(i);
  }
  config["mlp_only_layers"] = std::move(dense);
}

// The first layers, first_k_dense_replace, have no experts, and of the others every
// moe_layer_freq-th has; newer configs have a list.
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

// Layers of Exaone4Config: with the window are those that a string of L and G, repeated, calls L,
// but not the last, or all but every n-th.
Json exaone4_layer_types(const Json& config) {
  constexpr const char* kPattern = "sliding_window_pattern";
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  const Json* pattern = find(config, kPattern);
  if (pattern != nullptr && pattern->is_string()) {
    const std::string letters = get_string(config, kPattern);
    if (letters.empty() || letters.find_first_not_of("LG") != letters.npos) {
      fail(ErrorKind::kMalformed, kPattern, ": found ", quoted(letters),
           ", expected a number of layers, or the letters L (with a window) and G (without)");
    }
    Json types = periodic_layer_types(layers, layers);
    for (size_t i = 0; i + 1 < types.size(); ++i) {
      if (letters[i % letters.size()] == 'G') types[i] = "full_attention";
    }
    return types;
  }
  const bool has_none = pattern != nullptr && pattern->is_null();
  return periodic_layer_types(layers,
                              has_none ? 1 : get_int(config, kPattern, 1, limits::kLayers, 4));
}

// As Exaone4Config has it.
void complete_exaone4(Json& config) {
  set_defaults(config, {{"vocab_size", 102400},
                        {"hidden_size", 4096},
                        {"intermediate_size", 16384},
                        {"num_hidden_layers", 32},
                        {"num_attention_heads", 32},
                        {"rms_norm_eps", 1e-5},
                        {"tie_word_embeddings", false}});
  // null is no window, an absent key is not.
  set_absent(config, "sliding_window", 4096);
  if (config["sliding_window"].is_null() || find_value(config, "layer_types") != nullptr) return;
  config["layer_types"] = exaone4_layer_types(config);
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

// As Glm4Config has it.
void complete_glm4(Json& config) {
  set_defaults(config, {{"vocab_size", 151552},
                        {"hidden_size", 4096},
                        {"intermediate_size", 13696},
                        {"num_hidden_layers", 40},
                        {"num_attention_heads", 32},
                        {"num_key_value_heads", 2},
                        {"head_dim", 128},
                        {"max_position_embeddings", 131072},
                        {"rms_norm_eps", 1.5625e-7},
                        {"partial_rotary_factor", 0.5},
                        {"attention_bias", true},
                        {"tie_word_embeddings", false}});
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
  const Json* head_dim = find_value(config, "mamba_d_head");
  if (head_dim == nullptr || *head_dim == "auto") {
    const int64_t hidden = get_int(config, "hidden_size", 1, limits::kDim);
    const int64_t heads = get_int(config, "mamba_n_heads", 1, limits::kHeads);
    const int64_t inner = get_int(config, "mamba_expand", 1, 64) * hidden;
    config["mamba_d_head"] = std::max<int64_t>(1, inner / heads);
  }
  if (expert_count(config) == 0) {
    config["intermediate_size"] = Json(config["shared_intermediate_size"]);
  }
}

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
  const Json* head_dim = find_value(config, "mamba_d_head");
  if (head_dim == nullptr || *head_dim == "auto") {
    const int64_t inner = get_int(config, "mamba_d_ssm", 1, limits::kDim);
    const int64_t heads = get_int(config, "mamba_n_heads", 1, limits::kHeads);
    config["mamba_d_head"] = std::max<int64_t>(1, inner / heads);
  }
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

// As HunYuanDenseV1Config has it.
void complete_hunyuan(Json& config) {
  set_defaults(config, {{"vocab_size", 290943},
                        {"hidden_size", 4096},
                        {"intermediate_size", 11008},
                        {"num_hidden_layers", 32},
                        {"num_attention_heads", 32},
                        {"rms_norm_eps", 1e-5},
                        {"tie_word_embeddings", false}});
}

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

// As Starcoder2Config has it.
void complete_starcoder2(Json& config) {
  set_defaults(config, {{"vocab_size", 49152},
                        {"hidden_size", 3072},
                        {"intermediate_size", 12288},
                        {"num_hidden_layers", 30},
                        {"num_attention_heads", 24},
                        {"num_key_value_heads", 2},
                        {"hidden_act", "gelu_pytorch_tanh"},
                        {"max_position_embeddings", 4096},
                        {"tie_word_embeddings", true}});
}

// As CohereConfig and Cohere2Config have it.
void complete_any_cohere(Json& config) {
  set_defaults(config, {{"vocab_size", 256000},
                        {"hidden_size", 8192},
                        {"intermediate_size", 22528},
                        {"num_hidden_layers", 40},
                        {"num_attention_heads", 64},
                        {"max_position_embeddings", 8192},
                        {"logit_scale", 0.0625},
                        {"tie_word_embeddings", true}});
}

void complete_cohere(Json& config) {
  complete_any_cohere(config);
  set_default(config, "rope_theta", 500000);
}

void complete_cohere2(Json& config) {
  complete_any_cohere(config);
  set_layer_types(config, get_int(config, "sliding_window_pattern", 1, limits::kLayers, 4));
}

// As NemotronConfig has it.
void complete_nemotron(Json& config) {
  set_defaults(config, {{"vocab_size", 256000},
                        {"hidden_size", 6144},
                        {"intermediate_size", 24576},
                        {"num_hidden_layers", 32},
                        {"num_attention_heads", 48},
                        {"hidden_act", "relu2"},
                        {"max_position_embeddings", 4096},
                        {"partial_rotary_factor", 0.5},
                        {"rms_norm_offset", 1},
                        {"tie_word_embeddings", false}});
}

// As ApertusConfig has it. Without a scaling of rotation it has Llama 3's.
void complete_apertus(Json& config) {
  set_defaults(config, {{"vocab_size", 131072},
                        {"hidden_size", 4096},
                        {"intermediate_size", 14336},
                        {"num_hidden_layers", 32},
                        {"num_attention_heads", 32},
                        {"hidden_act", "xielu"},
                        {"max_position_embeddings", 65536},
                        {"rms_norm_eps", 1e-5},
                        {"rope_theta", 1.2e7},
                        {"tie_word_embeddings", false}});
  if (find_value(config, "rope_parameters") != nullptr) return;
  set_default(config, "rope_scaling",
              {{"rope_type", "llama3"},
               {"factor", 8.0},
               {"low_freq_factor", 1.0},
               {"high_freq_factor", 4.0},
               {"original_max_position_embeddings", 8192}});
}

// As ArceeConfig has it.
void complete_arcee(Json& config) {
  set_defaults(config, {{"vocab_size", 32000},
                        {"hidden_size", 2560},
                        {"intermediate_size", 18432},
                        {"num_hidden_layers", 32},
                        {"num_attention_heads", 32},
                        {"hidden_act", "relu2"},
                        {"max_position_embeddings", 4096},
                        {"rms_norm_eps", 1e-5},
                        {"tie_word_embeddings", false}});
}

// As PhiConfig has it.
void complete_phi(Json& config) {
  set_defaults(config, {{"vocab_size", 51200},
                        {"hidden_size", 2048},
                        {"intermediate_size", 8192},
                        {"num_hidden_layers", 24},
                        {"num_attention_heads", 32},
                        {"hidden_act", "gelu_new"},
                        {"max_position_embeddings", 2048},
                        {"partial_rotary_factor", 0.5},
                        {"tie_word_embeddings", false}});
}

void complete_qwen3_moe(Json& config) {
  rename_key(config, "num_local_experts", "num_experts");
}

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

// Rotation is of the part of a head that is called so.
void complete_any_deepseek(Json& config) {
  rename_key(config, "n_routed_experts", "num_experts");
  rename_key(config, "num_local_experts", "num_experts");
  config["head_dim"] = Json(config["qk_rope_head_dim"]);
  set_dense_layers(config);
}

// As DeepseekV2Config has what a config leaves out.
void complete_deepseek_v2(Json& config) {
  set_defaults(config, {{"vocab_size", 102400},
                        {"kv_lora_rank", 512},
                        {"qk_nope_head_dim", 128},
                        {"qk_rope_head_dim", 64},
                        {"v_head_dim", 128},
                        {"n_routed_experts", 64},
                        {"n_shared_experts", 2},
                        {"moe_intermediate_size", 1407},
                        {"topk_method", "greedy"},
                        {"tie_word_embeddings", false}});
  set_absent(config, "q_lora_rank", 1536);  // null: none
  complete_any_deepseek(config);
}

// As DeepseekV3Config has it.
void complete_deepseek_v3(Json& config) {
  set_defaults(config, {{"vocab_size", 129280},
                        {"kv_lora_rank", 512},
                        {"qk_nope_head_dim", 128},
                        {"qk_rope_head_dim", 64},
                        {"v_head_dim", 128},
                        {"n_routed_experts", 256},
                        {"n_shared_experts", 1},
                        {"num_experts_per_tok", 8},
                        {"moe_intermediate_size", 2048},
                        {"routed_scaling_factor", 2.5},
                        {"n_group", 8},
                        {"topk_group", 4},
                        {"norm_topk_prob", true},
                        {"first_k_dense_replace", 3},
                        {"max_position_embeddings", 4096},
                        {"tie_word_embeddings", false}});
  set_absent(config, "q_lora_rank", 1536);
  config["rope_interleaved"] = get_bool(config, "rope_interleave", true);
  config["topk_method"] = "noaux_tc";  // whatever it says, as in transformers
  complete_any_deepseek(config);
}

// As Glm4MoeLiteConfig has it.
void complete_glm4_moe_lite(Json& config) {
  set_defaults(config, {{"vocab_size", 154880},
                        {"kv_lora_rank", 512},
                        {"qk_nope_head_dim", 192},
                        {"qk_rope_head_dim", 64},
                        {"v_head_dim", 256},
                        {"n_routed_experts", 64},
                        {"num_experts_per_tok", 4},
                        {"moe_intermediate_size", 1536},
                        {"routed_scaling_factor", 1.8},
                        {"n_group", 1},
                        {"topk_group", 1},
                        {"first_k_dense_replace", 1},
                        {"max_position_embeddings", 202752},
                        {"rms_norm_eps", 1e-5}});
  set_absent(config, "q_lora_rank", 768);
  complete_deepseek_v3(config);
}

void complete_olmo3(Json& config) {
  set_layer_types(config, 4);
}

struct Family {
  std::string_view model_type;
  void (*complete)(Json& config);
};
constexpr Family kFamilies[] = {
    {"apertus", complete_apertus},
    {"arcee", complete_arcee},
    {"cohere", complete_cohere},
    {"cohere2", complete_cohere2},
    {"deepseek_v2", complete_deepseek_v2},
    {"deepseek_v3", complete_deepseek_v3},
    {"dots1", complete_dots1},
    {"ernie4_5", complete_ernie4_5},
    {"ernie4_5_moe", complete_ernie4_5_moe},
    {"exaone4", complete_exaone4},
    {"exaone_moe", complete_exaone_moe},
    {"falcon_h1", complete_falcon_h1},
    {"gemma", complete_gemma},
    {"gemma2", complete_gemma2},
    {"gemma3_text", complete_gemma3},
    {"gemma4_text", complete_gemma4},
    {"gemma4_unified_text", complete_gemma4},
    {"glm4", complete_glm4},
    {"glm4_moe", complete_glm4_moe},
    {"glm4_moe_lite", complete_glm4_moe_lite},
    {"gpt2", rename_gpt2_keys},
    {"gpt_oss", complete_gpt_oss},
    {"granitemoe", complete_granite_moe},
    {"granitemoehybrid", complete_granite_moe_hybrid},
    {"granitemoeshared", complete_granite_moe},
    {"hunyuan_v1_dense", complete_hunyuan},
    {"hunyuan_v1_moe", complete_hunyuan_moe},
    {"lfm2", complete_lfm2},
    {"lfm2_moe", complete_lfm2_moe},
    {"minimax_m2", complete_minimax_m2},
    {"mamba2", complete_mamba2},
    {"nemotron", complete_nemotron},
    {"nemotron_h", complete_nemotron_h},
    {"olmo3", complete_olmo3},
    {"olmoe", complete_olmoe},
    {"phi", complete_phi},
    {"qwen2_moe", complete_qwen2_moe},
    {"qwen3_5_moe_text", complete_qwen3_5_moe},
    {"qwen3_5_text", complete_qwen3_5},
    {"qwen3_moe", complete_qwen3_moe},
    {"qwen3_next", complete_qwen3_next},
    {"seed_oss", complete_seed_oss},
    {"starcoder2", complete_starcoder2},
};

}  // namespace

void complete_family(std::string_view model_type, Json& config) {
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) family.complete(config);
  }
}

}  // namespace lumen::io
