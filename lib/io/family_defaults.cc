#include "lib/io/family_defaults.h"

#include <algorithm>
#include <cmath>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/io/family_completions.h"
#include "lib/io/layer_windows.h"
#include "lib/io/model_files.h"

namespace lumen::io {

void rename_key(Json& object, const char* from, const char* to) {
  if (const Json* value = find(object, from); value != nullptr && find(object, to) == nullptr) {
    object[to] = *value;
  }
}

void set_default(Json& config, const char* key, Json value) {
  if (find_value(config, key) == nullptr) config[key] = std::move(value);
}

void set_absent(Json& config, const char* key, Json value) {
  if (find(config, key) == nullptr) config[key] = std::move(value);
}

void set_defaults(Json& config, std::initializer_list<std::pair<const char*, Json>> defaults) {
  for (const auto& [key, value] : defaults) set_default(config, key, value);
}

void set_layer_types(Json& config, int64_t period, std::string_view most) {
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  set_default(config, "layer_types", periodic_layer_types(layers, period, most));
}

namespace {

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

// The widths of layers may be a list there, which is kWidths here unless all are the same.
void set_widths(Json& config) {
  const Json* found = find_value(config, kWidth);
  if (found == nullptr || !found->is_array()) return;
  const Json list = *found;
  const std::vector<int64_t> widths = intermediate_sizes(config, kWidth);
  config[kWidth] = widths.front();
  const bool alike = std::count(widths.begin(), widths.end(), widths.front()) == std::ssize(widths);
  if (!alike) config[kWidths] = list;
}

// As Gemma3nTextConfig has what a config leaves out.
void complete_gemma3n(Json& config) {
  set_defaults(config, {{"vocab_size", 262400},
                        {"vocab_size_per_layer_input", 262144},
                        {"hidden_size", 2048},
                        {"hidden_size_per_layer_input", 256},
                        {kWidth, 16384},
                        {"num_hidden_layers", 35},
                        {"num_attention_heads", 8},
                        {"num_key_value_heads", 2},
                        {"head_dim", 256},
                        {"hidden_activation", "gelu_pytorch_tanh"},
                        {"max_position_embeddings", 32768},
                        {"sliding_window", 512},
                        {"rope_theta", 1e6},
                        {"rope_local_base_freq", 1e4},
                        {"altup_active_idx", 0},
                        {"altup_correct_scale", true},
                        {"altup_num_inputs", 4},
                        {"num_kv_shared_layers", 15},
                        {"laurel_rank", 64},
                        {"tie_word_embeddings", true}});
  set_absent(config, "final_logit_softcapping", 30.0);
  config["hidden_act"] = Json(config["hidden_activation"]);
  set_layer_types(config, 5);
  set_widths(config);
  // Of models of more than ten layers the first ten are sparse.
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  std::vector<double> sparsities(static_cast<size_t>(layers));
  if (layers > 10) std::fill_n(sparsities.begin(), 10, 0.95);
  set_default(config, "activation_sparsity_pattern", sparsities);
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

}  // namespace

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

namespace {

// As GlmConfig and Glm4Config have it.
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

}  // namespace

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

namespace {

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

}  // namespace

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

namespace {

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

// As StableLmConfig has it.
void complete_stablelm(Json& config) {
  set_defaults(config, {{"vocab_size", 50304},
                        {"hidden_size", 2560},
                        {"intermediate_size", 6912},
                        {"num_hidden_layers", 32},
                        {"num_attention_heads", 32},
                        {"num_key_value_heads", 32},
                        {"max_position_embeddings", 4096},
                        {"partial_rotary_factor", 0.25},
                        {"tie_word_embeddings", false}});
  config["attention_bias"] = get_bool(config, "use_qkv_bias", false);
}

// As Qwen2VLTextConfig and Qwen2_5_VLTextConfig have it.
void complete_qwen2_vl(Json& config) {
  set_defaults(config, {{"vocab_size", 152064},
                        {"hidden_size", 8192},
                        {"intermediate_size", 29568},
                        {"num_hidden_layers", 80},
                        {"num_attention_heads", 64},
                        {"max_position_embeddings", 32768},
                        {"max_window_layers", 80},
                        {"rms_norm_eps", 1e-5},
                        {"rope_theta", 1e6}});
  set_absent(config, "num_key_value_heads", 8);  // null is as many as heads
  set_absent(config, "sliding_window", 4096);
}

// As Qwen3VLTextConfig has it; no layer has a window.
void complete_qwen3_vl(Json& config) {
  set_defaults(config, {{"vocab_size", 151936},
                        {"hidden_size", 4096},
                        {"intermediate_size", 22016},
                        {"num_hidden_layers", 32},
                        {"num_attention_heads", 32},
                        {"head_dim", 128},
                        {"max_position_embeddings", 128000},
                        {"rope_theta", 500000}});
  for (const char* key : {"sliding_window", "layer_types"}) config.erase(key);
}

void complete_olmo3(Json& config) {
  set_layer_types(config, 4);
}

// As HyperCLOVAXConfig has it.
void complete_hyperclovax(Json& config) {
  set_defaults(config, {{"vocab_size", 32000},
                        {"hidden_size", 4096},
                        {"intermediate_size", 11008},
                        {"num_hidden_layers", 32},
                        {"num_attention_heads", 32},
                        {"tie_word_embeddings", false}});
  const int64_t dim = get_int(config, "hidden_size", 1, limits::kDim);
  const int64_t heads = get_int(config, "num_attention_heads", 1, limits::kHeads);
  set_default(config, "head_dim", std::max<int64_t>(1, dim / heads));
  const auto head_dim = static_cast<double>(get_int(config, "head_dim", 1, limits::kDim));
  set_default(config, "attention_multiplier", 1 / std::sqrt(head_dim));
}

// As OlmoConfig has it, whose norms always have this number.
void complete_olmo(Json& config) {
  set_defaults(config, {{"vocab_size", 50304},
                        {"hidden_size", 4096},
                        {"intermediate_size", 11008},
                        {"num_hidden_layers", 32},
                        {"num_attention_heads", 32},
                        {"tie_word_embeddings", false}});
  config["rms_norm_eps"] = 1e-5;
}

// As MiniCPMConfig has it, which comes with the files.
void complete_minicpm(Json& config) {
  set_defaults(config, {{"vocab_size", 32000},
                        {"hidden_size", 4096},
                        {"intermediate_size", 11008},
                        {"num_hidden_layers", 32},
                        {"num_attention_heads", 32},
                        {"tie_word_embeddings", true},
                        {"scale_emb", 1},
                        {"scale_depth", 1},
                        {"dim_model_base", 1}});
}

}  // namespace

namespace {

struct Family {
  std::string_view model_type;
  void (*complete)(Json& config);
};
constexpr Family kFamilies[] = {
    {"afmoe", complete_afmoe},
    {"apertus", complete_apertus},
    {"arcee", complete_arcee},
    {"bailing_moe_v2", complete_bailing_moe_v2},
    {"bamba", complete_bamba},
    {"bitnet", complete_bitnet},
    {"bloom", complete_bloom},
    {"cohere", complete_cohere},
    {"cohere2", complete_cohere2},
    {"cohere2_moe", complete_cohere2_moe},
    {"cwm", complete_cwm},
    {"deepseek_v2", complete_deepseek_v2},
    {"deepseek_v3", complete_deepseek_v3},
    {"dots1", complete_dots1},
    {"ernie4_5", complete_ernie4_5},
    {"ernie4_5_moe", complete_ernie4_5_moe},
    {"exaone", complete_exaone},
    {"exaone4", complete_exaone4},
    {"exaone_moe", complete_exaone_moe},
    {"falcon", complete_falcon},
    {"falcon_h1", complete_falcon_h1},
    {"falcon_mamba", complete_mamba},
    {"gemma", complete_gemma},
    {"gemma2", complete_gemma2},
    {"gemma3_text", complete_gemma3},
    {"gemma3n_text", complete_gemma3n},
    {"gemma4_text", complete_gemma4},
    {"gemma4_unified_text", complete_gemma4},
    {"glm", complete_glm4},
    {"glm4", complete_glm4},
    {"glm4_moe", complete_glm4_moe},
    {"glm4_moe_lite", complete_glm4_moe_lite},
    {"gpt2", complete_gpt2},
    {"gpt_bigcode", complete_gpt_bigcode},
    {"gpt_neox", complete_gpt_neox},
    {"gpt_oss", complete_gpt_oss},
    {"gptj", complete_gptj},
    {"granite_swa", complete_granite_swa},
    {"granitemoe", complete_granite_moe},
    {"granitemoe_swa", complete_granite_moe_swa},
    {"granitemoehybrid", complete_granite_moe_hybrid},
    {"granitemoeshared", complete_granite_moe},
    {"helium", complete_helium},
    {"hunyuan_v1_dense", complete_hunyuan},
    {"hunyuan_v1_moe", complete_hunyuan_moe},
    {"hy_v3", complete_hy_v3},
    {"hyperclovax", complete_hyperclovax},
    {"internlm3", complete_internlm3},
    {"iquestcoder", complete_iquestcoder},
    {"jamba", complete_jamba},
    {"kimi_linear", complete_kimi_linear},
    {"laguna", complete_laguna},
    {"lfm2", complete_lfm2},
    {"lfm2_moe", complete_lfm2_moe},
    {"lfm3", complete_lfm3},
    {"llama4_text", complete_llama4},
    {"mamba", complete_mamba},
    {"mamba2", complete_mamba2},
    {"minicpm", complete_minicpm},
    {"minimax_m2", complete_minimax_m2},
    {"mellum", complete_mellum},
    {"minicpm3", complete_minicpm3},
    {"ministral", complete_ministral},
    {"mistral4", complete_mistral4},
    {"mpt", complete_mpt},
    {"jais2", complete_jais2},
    {"nanochat", complete_nanochat},
    {"solar_open", complete_solar_open},
    {"vaultgemma", complete_gemma2},
    {"youtu", complete_youtu},
    {"nemotron", complete_nemotron},
    {"nemotron_h", complete_nemotron_h},
    {"olmo", complete_olmo},
    {"olmo3", complete_olmo3},
    {"olmo_hybrid", complete_olmo_hybrid},
    {"opt", complete_opt},
    {"olmoe", complete_olmoe},
    {"phi", complete_phi},
    {"phimoe", complete_phimoe},
    {"qwen2_5_vl_text", complete_qwen2_vl},
    {"qwen2_moe", complete_qwen2_moe},
    {"qwen2_vl_text", complete_qwen2_vl},
    {"qwen3_5_moe_text", complete_qwen3_5_moe},
    {"qwen3_5_text", complete_qwen3_5},
    {"qwen3_moe", complete_qwen3_moe},
    {"qwen3_next", complete_qwen3_next},
    {"qwen3_vl_moe_text", complete_qwen3_vl_moe},
    {"qwen3_vl_text", complete_qwen3_vl},
    {"recurrent_gemma", complete_recurrent_gemma},
    {"seed_oss", complete_seed_oss},
    {"stablelm", complete_stablelm},
    {"starcoder2", complete_starcoder2},
    {"zamba2", complete_zamba2},
};

}  // namespace

void complete_family(std::string_view model_type, Json& config) {
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) family.complete(config);
  }
}

}  // namespace lumen::io
