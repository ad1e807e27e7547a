// config.json in the classic keys of Hugging Face, whatever version of transformers wrote it.
#include <algorithm>
#include <cmath>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/layer_windows.h"
#include "lib/io/model_formats.h"

namespace lumen::io {
namespace {

constexpr const char* kRmsEpsilon = "rms_norm_eps";

// Renames `from` to `to` unless `to` is there.
void rename_key(Json& object, const char* from, const char* to) {
  if (const Json* value = find(object, from); value != nullptr && find(object, to) == nullptr) {
    object[to] = *value;
  }
}

void set_default(Json& config, const char* key, Json value) {
  if (find_value(config, key) == nullptr) config[key] = std::move(value);
}

// Newer transformers nest rotary settings: {"rope_theta": …, "rope_type": …, "factor": …, …}. Such
// a theta goes before one outside.
void flatten_rope_parameters(Json& config) {
  const Json* nested = find_value(config, "rope_parameters");
  if (nested == nullptr || !nested->is_object()) return;
  Json scaling = *nested;
  if (const Json* theta = find_value(scaling, "rope_theta")) {
    config["rope_theta"] = Json(*theta);
    scaling.erase("rope_theta");
  }
  if (const Json* part = find_value(scaling, "partial_rotary_factor")) {
    set_default(config, "partial_rotary_factor", Json(*part));
    scaling.erase("partial_rotary_factor");
  }
  rename_key(scaling, "type", "rope_type");
  if (find_value(scaling, "factor") == nullptr) set_default(scaling, "rope_type", "default");
  if (find_value(config, "rope_scaling") == nullptr) config["rope_scaling"] = scaling;
}

// yarn with mscale and mscale_all_dim (DeepSeek): what cos and sin are multiplied by is the ratio
// of two numbers, each 0.1 · mscale · ln(factor) + 1.
void normalize_yarn(Json& scaling) {
  constexpr double kMax = 1e6;
  const double whole = get_number(scaling, "mscale", 0, kMax, 0);
  const double divided = get_number(scaling, "mscale_all_dim", 0, kMax, 0);
  if (whole == 0 || divided == 0 || find_value(scaling, "attention_factor") != nullptr) return;
  const double log_factor = std::log(std::max(get_number(scaling, "factor", 1e-6, kMax), 1.0));
  scaling["attention_factor"] = (0.1 * whole * log_factor + 1) / (0.1 * divided * log_factor + 1);
}

// Rotary settings per kind of layer: those of the layers that see all are the model's, those of the
// others have a theta of their own.
void split_rope_parameters(Json& config) {
  const Json* found = find_value(config, "rope_parameters");
  if (found == nullptr || !found->is_object()) return;
  const Json nested = *found;  // keys that are added to the config move the others
  const Json* global = find_value(nested, "full_attention");
  if (global == nullptr || !global->is_object()) return;
  const Json* local = find_value(nested, "sliding_attention");
  if (local != nullptr && local->is_object() && find_value(*local, "rope_theta") != nullptr) {
    config["rope_local_base_freq"] = Json((*local)["rope_theta"]);
  }
  config["rope_parameters"] = Json(*global);
}

// The length up to which the short factors hold, and what cos and sin are multiplied by.
void normalize_longrope(const Json& config, Json& scaling) {
  constexpr const char* kOriginal = "original_max_position_embeddings";
  constexpr double kMax = 1e6;
  const int64_t most = get_int(config, "max_position_embeddings", 1, limits::kContext, 2048);
  set_default(scaling, kOriginal, get_int(config, kOriginal, 1, limits::kContext, most));
  const int64_t original = get_int(scaling, kOriginal, 1, limits::kContext);
  const double times = static_cast<double>(most) / static_cast<double>(original);
  const double factor = get_number(scaling, "factor", 1e-6, kMax, times);
  set_default(scaling, "attention_factor", longrope_attention(original, factor));
}

void normalize_rope(Json& config) {
  split_rope_parameters(config);
  flatten_rope_parameters(config);
  const Json* found = find_value(config, "rope_scaling");
  if (found == nullptr || !found->is_object()) return;
  Json scaling = *found;
  rename_key(scaling, "type", "rope_type");
  if (find(scaling, "rope_type") == nullptr) return;
  if (scaling["rope_type"] == "su") scaling["rope_type"] = "longrope";  // its first name
  if (scaling["rope_type"] == "yarn") normalize_yarn(scaling);
  if (scaling["rope_type"] == "longrope") normalize_longrope(config, scaling);
  // "default" means no scaling.
  config["rope_scaling"] = scaling["rope_type"] == "default" ? Json(nullptr) : scaling;
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

// Layers with a window and, every `period`-th, without, if the config has no list of them.
void set_layer_types(Json& config, int64_t period) {
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  set_default(config, "layer_types", periodic_layer_types(layers, period));
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
    if (find(config, key) == nullptr) config[key] = cap;
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
  if (find(config, "sliding_window") == nullptr) config["sliding_window"] = 128;
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

// As OlmoeConfig has it.
void complete_olmoe(Json& config) {
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

// Gives `config` the classic keys that ModelFiles promises. Defaults are those of the
// transformers classes.
Json normalized_config(Json config, bool has_head) {
  const std::string type = get_string(config, "model_type");
  rename_key(config, "dtype", "torch_dtype");
  if (type == "gpt_oss") complete_gpt_oss(config);
  normalize_rope(config);
  if (type == "gpt2") rename_gpt2_keys(config);
  if (type == "gemma") complete_gemma(config);
  if (type == "gemma2") complete_gemma2(config);
  if (type == "gemma3_text") complete_gemma3(config);
  if (type == "olmo3") set_layer_types(config, 4);
  if (type == "qwen3_moe" || type == "olmoe") {
    rename_key(config, "num_local_experts", "num_experts");
  }
  if (type == "qwen2_moe") complete_qwen2_moe(config);
  if (type == "olmoe") complete_olmoe(config);
  if (type == "seed_oss") complete_seed_oss(config);
  if (type == "ernie4_5") complete_ernie4_5(config);
  if (type == "glm4") complete_glm4(config);
  if (type == "starcoder2") complete_starcoder2(config);
  if (type == "cohere") complete_cohere(config);
  if (type == "cohere2") complete_cohere2(config);
  if (type == "nemotron") complete_nemotron(config);
  if (type == "phi") complete_phi(config);
  const int64_t heads = get_int(config, "num_attention_heads", 1, limits::kHeads);
  const int64_t dim = get_int(config, "hidden_size", 1, limits::kDim);
  set_default(config, "num_key_value_heads", heads);
  set_default(config, "head_dim", type == "qwen3" ? 128 : std::max<int64_t>(1, dim / heads));
  const bool wide_eps = type == "phi3" || type == "olmo2" || type == "olmo3" || type == "mixtral";
  if (const std::string key = norm_epsilon_key(type); key != kRmsEpsilon) {
    set_default(config, key.c_str(), 1e-5);
    config[kRmsEpsilon] = Json(config[key]);
  }
  set_default(config, kRmsEpsilon, wide_eps ? 1e-5 : 1e-6);
  set_default(config, "rope_theta", 10000.0);
  set_default(config, "tie_word_embeddings", !has_head);
  set_default(config, "max_position_embeddings", 2048);
  set_default(config, "rope_interleaved", rotates_pairs(type));
  if (type == "qwen2" || type == "qwen3") set_default(config, "max_window_layers", 28);
  // null is no window, an absent key is not.
  const bool has_window = type == "cohere2" || type == "mistral" || type == "qwen2" ||
                          type == "qwen3" || type == "qwen2_moe" || type == "gemma2" ||
                          type == "gemma3_text" || type == "olmo3";
  if (has_window && find(config, "sliding_window") == nullptr) config["sliding_window"] = 4096;
  // Some give a window but use it only if told to.
  const bool unasked = !type.starts_with("qwen") && type != "smollm3";
  const bool windowed = get_bool(config, "use_sliding_window", unasked);
  if (!windowed && find(config, "sliding_window") != nullptr) config["sliding_window"] = nullptr;
  return config;
}

}  // namespace

std::string norm_epsilon_key(std::string_view model_type) {
  constexpr std::pair<std::string_view, const char*> kKeys[] = {{"nemotron", "norm_eps"},
                                                                {"phi", "layer_norm_eps"},
                                                                {"starcoder2", "norm_epsilon"},
                                                                {"cohere", "layer_norm_eps"},
                                                                {"cohere2", "layer_norm_eps"}};
  for (const auto& [type, key] : kKeys) {
    if (type == model_type) return key;
  }
  return kRmsEpsilon;
}

double longrope_attention(int64_t original, double times) {
  if (times <= 1 || original <= 1) return 1;
  return std::sqrt(1 + std::log(times) / std::log(static_cast<double>(original)));
}

Json language_model_config(Json config) {
  const Json* found = find_value(config, "text_config");
  if (found == nullptr || !found->is_object()) return config;
  Json text = *found;
  const std::string type = get_string(config, "model_type");
  set_default(text, "model_type", type == "gemma3" ? "gemma3_text" : type);
  for (const char* key : {"dtype", "torch_dtype", "bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (const Json* value = find_value(config, key)) set_default(text, key, Json(*value));
  }
  // The whole model ties its head, whatever its parts would do alone.
  if (const Json* tied = find_value(config, "tie_word_embeddings")) {
    text["tie_word_embeddings"] = Json(*tied);
  }
  return text;
}

Json classic_config(Json config, bool has_head) {
  config = normalized_config(std::move(config), has_head);
  check_config(config);
  return config;
}

}  // namespace lumen::io
