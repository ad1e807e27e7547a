// config.json in the classic keys of Hugging Face, whatever version of transformers wrote it.
#include <algorithm>
#include <cmath>
#include <optional>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/family_defaults.h"
#include "lib/io/internlm2.h"
#include "lib/io/model_formats.h"

namespace lumen::io {
namespace {

constexpr const char* kRmsEpsilon = "rms_norm_eps";

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
  // Of "proportional" it is a number of the scaling.
  const Json* part = find_value(scaling, "partial_rotary_factor");
  if (part != nullptr && get_string(scaling, "rope_type", "") != "proportional") {
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
// others have a theta of their own and say how much of a head rotates.
void split_rope_parameters(Json& config) {
  const Json* found = find_value(config, "rope_parameters");
  if (found == nullptr || !found->is_object()) return;
  const Json nested = *found;  // keys that are added to the config move the others
  const Json* global = find_value(nested, "full_attention");
  if (global == nullptr || !global->is_object()) return;
  const Json* local = find_value(nested, "sliding_attention");
  if (local != nullptr && local->is_object()) {
    if (const std::string type = get_string(*local, "rope_type", "default"); type != "default") {
      fail(ErrorKind::kUnsupported, "rope_parameters: rope_type ", quoted(type),
           " of sliding_attention is not supported; known: default");
    }
    for (const auto& [from, to] : {std::pair("rope_theta", "rope_local_base_freq"),
                                   {"partial_rotary_factor", "local_rotary_factor"}}) {
      if (const Json* value = find_value(*local, from)) config[to] = Json(*value);
    }
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
  // Pairs rotate by three positions, which are equal in text (Qwen-VL).
  if (scaling["rope_type"] == "mrope") scaling["rope_type"] = "default";
  if (const Json* sections = find_value(scaling, "mrope_section")) {
    config["mrope_section"] = Json(*sections);
  }
  for (const char* key : {"mrope_section", "mrope_interleaved"}) scaling.erase(key);
  if (scaling["rope_type"] == "yarn") normalize_yarn(scaling);
  if (scaling["rope_type"] == "longrope") normalize_longrope(config, scaling);
  // "default" means no scaling.
  config["rope_scaling"] = scaling["rope_type"] == "default" ? Json(nullptr) : scaling;
}

// Gives `config` the classic keys that ModelFiles promises. Defaults are those of the
// transformers classes.
Json normalized_config(Json config, bool has_head) {
  const std::string type = get_string(config, "model_type");
  rename_key(config, "dtype", "torch_dtype");
  normalize_rope(config);
  complete_family(type, config);
  const int64_t heads = get_int(config, "num_attention_heads", 1, limits::kHeads);
  const int64_t dim = get_int(config, "hidden_size", 1, limits::kDim);
  set_default(config, "num_key_value_heads", heads);
  const bool wide_heads = type == "qwen3" || type == "ministral3";
  set_default(config, "head_dim", wide_heads ? 128 : std::max<int64_t>(1, dim / heads));
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
                          type == "gemma3_text" || type == "olmo3" || type == "ministral" ||
                          type == "vaultgemma";
  if (has_window && find(config, "sliding_window") == nullptr) config["sliding_window"] = 4096;
  // Some give a window but use it only if told to.
  const bool unasked = !type.starts_with("qwen") && type != "smollm3";
  const bool windowed = get_bool(config, "use_sliding_window", unasked);
  if (!windowed && find(config, "sliding_window") != nullptr) config["sliding_window"] = nullptr;
  return config;
}

}  // namespace

std::string norm_epsilon_key(std::string_view model_type) {
  constexpr std::pair<std::string_view, const char*> kKeys[] = {
      {"gpt2", "layer_norm_epsilon"},
      {"bloom", "layer_norm_epsilon"},
      {"exaone", "layer_norm_epsilon"},
      {"falcon", "layer_norm_epsilon"},
      {"gpt_bigcode", "layer_norm_epsilon"},
      {"gpt_neox", "layer_norm_eps"},
      {"gptj", "layer_norm_epsilon"},
      {"jais2", "layer_norm_eps"},
      {"lfm2", "norm_eps"},
      {"lfm2_moe", "norm_eps"},
      {"lfm3", "norm_eps"},
      {"mpt", "layer_norm_epsilon"},
      {"nemotron", "norm_eps"},
      {"nemotron_h", "layer_norm_epsilon"},
      {"falcon_mamba", "layer_norm_epsilon"},
      {"mamba", "layer_norm_epsilon"},
      {"mamba2", "layer_norm_epsilon"},
      {"phi", "layer_norm_eps"},
      {"stablelm", "layer_norm_eps"},
      {"starcoder2", "norm_epsilon"},
      {"cohere", "layer_norm_eps"},
      {"cohere2", "layer_norm_eps"}};
  for (const auto& [type, key] : kKeys) {
    if (type == model_type) return key;
  }
  return kRmsEpsilon;
}

double rope_base(const Json& config, int64_t dim) {
  constexpr double kLeast = 1e-3, kMost = 1e12;
  const double theta = get_number(config, "rope_theta", kLeast, kMost, 10000);
  const Json* scaling = find_value(config, "rope_scaling");
  if (scaling == nullptr || get_string(*scaling, "rope_type", "default") != "dynamic" ||
      find_value(*scaling, "alpha") == nullptr) {
    return theta;
  }
  const double alpha = get_number(*scaling, "alpha", 1e-6, 1e6);
  const auto numbers = static_cast<double>(dim);
  const double base = theta * std::pow(alpha, numbers / (numbers - 2));
  if (base >= kLeast && base <= kMost) return base;
  fail(ErrorKind::kMalformed, "rope_scaling: alpha ", alpha, " makes rope_theta ", theta, " ", base,
       " for ", dim, " numbers that rotate, expected a base from ", kLeast, " to ", kMost);
}

double longrope_attention(int64_t original, double times) {
  if (times <= 1 || original <= 1) return 1;
  return std::sqrt(1 + std::log(times) / std::log(static_cast<double>(original)));
}

namespace {

// Another name of DeepSeek-V3, which transformers does not have; InternLM2, which is a Llama;
// Ling 2.0, whose files have the name of its first version and a class of its own; Qwen2-VL and
// Qwen2.5-VL as they were published, with the keys of the language model beside the others.
Json with_known_type(Json config) {
  const Json* type = find_value(config, "model_type");
  if (type == nullptr) return config;
  if (is_internlm2(config)) return internlm2_as_llama(std::move(config));
  const Json* classes = find_value(config, "architectures");
  const bool is_ling = classes != nullptr && *classes == Json::array({"BailingMoeV2ForCausalLM"});
  if (*type == "bailing_moe" && is_ling) {
    config["model_type"] = "bailing_moe_v2";
    return config;
  }
  if (*type == "kimi_k2") config["model_type"] = "deepseek_v3";
  if (*type == "qwen2_vl" || *type == "qwen2_5_vl") {
    config["model_type"] = type->get<std::string>() + "_text";
    config["language_model_part"] = true;
    for (const char* key : {"vision_config", "image_token_id", "video_token_id",
                            "vision_start_token_id", "vision_end_token_id", "vision_token_id"}) {
      config.erase(key);
    }
  }
  return config;
}

// How many of its layers Qwen3-VL adds something to where it sees an image.
std::optional<int64_t> deepstack_layers(const Json& config) {
  const Json* vision = find_value(config, "vision_config");
  if (vision == nullptr || !vision->is_object()) return std::nullopt;
  const Json* layers = find_value(*vision, "deepstack_visual_indexes");
  return layers != nullptr && layers->is_array() ? std::ssize(*layers) : 3;
}

}  // namespace

bool reads_more_than_text(const Json& config) {
  const Json* text = find_value(config, "text_config");
  if (text != nullptr && text->is_object()) return true;
  const Json* type = find_value(config, "model_type");
  return type != nullptr && (*type == "qwen2_vl" || *type == "qwen2_5_vl");
}

Json language_model_config(Json config) {
  const Json* found = find_value(config, "text_config");
  if (found == nullptr || !found->is_object()) {
    erase_lumen_keys(config);
    return with_known_type(std::move(config));
  }
  Json text = *found;
  erase_lumen_keys(text);
  const std::string type = get_string(config, "model_type");
  constexpr std::string_view kNamed[] = {"gemma3",     "gemma3n",  "gemma4",     "gemma4_unified",
                                         "llama4",     "qwen2_vl", "qwen3_vl",   "qwen3_vl_moe",
                                         "qwen2_5_vl", "qwen3_5",  "qwen3_5_moe"};
  const bool named = std::find(std::begin(kNamed), std::end(kNamed), type) != std::end(kNamed);
  set_default(text, "model_type", named ? type + "_text" : type);
  // transformers opens Qwen3.5 for text as its language model alone, the others whole.
  if (!type.starts_with("qwen3_5")) text["language_model_part"] = true;
  if (const auto layers = deepstack_layers(config); layers && type.starts_with("qwen3_vl")) {
    text["n_deepstack_layers"] = *layers;
  }
  for (const char* key : {"dtype", "torch_dtype", "bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (const Json* value = find_value(config, key)) set_default(text, key, Json(*value));
  }
  // The whole model ties its head, whatever its parts would do alone; but older configs of Qwen-VL
  // say so of the part.
  const bool old = type == "qwen2_vl" || type == "qwen2_5_vl";
  if (const Json* tied = find_value(config, "tie_word_embeddings");
      tied != nullptr && !(old && *tied == false)) {
    text["tie_word_embeddings"] = Json(*tied);
  }
  return with_known_type(std::move(text));
}

Json classic_config(Json config, bool has_head) {
  config = normalized_config(std::move(config), has_head);
  check_config(config);
  return config;
}

}  // namespace lumen::io
