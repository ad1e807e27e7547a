// What files of single architectures say in keys of their own; what has no key, such as which
// layers have a window, is the same in all files of an architecture. Keys:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include "lib/io/gguf_families.h"

#include <algorithm>
#include <cmath>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/layer_windows.h"

namespace lumen::io {
namespace {

constexpr const char* kInstead = "; a Hugging Face directory keeps it";
constexpr const char* kConvTaps = "shortconv.l_cache";

// --- What only one architecture has ------------------------------------------------------------

void read_llama(const ArchitectureKeys& keys, Json& config) {
  const int64_t window = read_window(keys);
  if (window > 0) config["sliding_window"] = window;
  if (expert_count(keys) > 0) {
    config["model_type"] = "mixtral";  // what Llama with experts is called
    read_experts(keys, "num_local_experts", config);
    config["intermediate_size"] =
        keys.integer_or(config["intermediate_size"].get<int64_t>(), kExpertLength, limits::kDim);
  } else if (window > 0) {
    config["model_type"] = "mistral";  // what Llama with a window is called: a Llama has none
  }
}

void write_llama(const Json& config, const KeyWriter& keys) {
  if (find_value(config, "layer_types") != nullptr) {
    const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
    const bool windowed = find_value(config, "sliding_window") != nullptr;
    require_windows(config, "llama",
                    windowed ? periodic_layer_types(layers, layers + 1) : Json(nullptr));
  }
  write_window(config, keys);
  if (get_string(config, "model_type") != "mixtral") return;
  write_experts(config, "num_local_experts", "intermediate_size", keys);
}

// What the files do not say, and is the same in all of them.
constexpr int64_t kGptOssPeriod = 2;
constexpr Usual kGptOssGate[] = {{"swiglu_alpha", 1.702}, {"swiglu_limit", 7}};

void read_gpt_oss(const ArchitectureKeys& keys, Json& config) {
  read_experts(keys, "num_local_experts", config);
  config["intermediate_size"] =
      keys.integer_or(config["intermediate_size"].get<int64_t>(), kExpertLength, limits::kDim);
  read_windows(keys, kGptOssPeriod, config);
  for (const Usual& number : kGptOssGate) config[number.key] = number.usual;
  Json& scaling = config["rope_scaling"];
  if (scaling.is_object() && scaling["rope_type"] == "yarn") scaling["truncate"] = false;
}

void write_gpt_oss(const Json& config, const KeyWriter& keys) {
  if (!get_bool(config, "attention_bias", true)) {
    cannot_write("gpt-oss", "attention_bias false", "look for such biases");
  }
  write_windows(config, keys, kGptOssPeriod);
  write_experts(config, "num_local_experts", "intermediate_size", keys);
  for (const Usual& number : kGptOssGate) {
    const double found = get_number(config, number.key, 1e-3, 1e6, number.usual);
    if (found == number.usual) continue;
    fail(ErrorKind::kUnsupported, number.key, " ", found,
         " cannot be written as GGUF for gpt-oss, where it is ", number.usual);
  }
  const Json* scaling = find_value(config, "rope_scaling");
  const bool is_yarn = scaling != nullptr && get_string(*scaling, "rope_type", "") == "yarn";
  if (is_yarn && get_bool(*scaling, "truncate", true)) {
    fail(ErrorKind::kUnsupported,
         "rope_scaling yarn with truncate true cannot be written as GGUF for gpt-oss, where it is "
         "false");
  }
}

constexpr int64_t kOlmoPeriod = 4;

void read_olmo2(const ArchitectureKeys& keys, Json& config) {
  if (!read_windows(keys, kOlmoPeriod, config)) return;
  config["model_type"] = "olmo3";
  if (keys.has(kLocalTheta)) config[kLocalBase] = keys.number(kLocalTheta);
}

void write_olmo2(const Json& config, const KeyWriter& keys) {
  write_windows(config, keys, kOlmoPeriod);
  if (find_value(config, kLocalBase) == nullptr) return;
  keys.number(kLocalTheta, get_number(config, kLocalBase, 1e-3, 1e12));
}

void read_phi3(const ArchitectureKeys& keys, Json& config) {
  if (const int64_t window = read_window(keys); window > 0) config["sliding_window"] = window;
}

// llama.cpp takes files without the key for older ones, which had a window.
void write_phi3(const Json& config, const KeyWriter& keys) {
  keys.integer(kWindow, get_int(config, "sliding_window", 0, limits::kContext, 0));
}

void write_seed_oss(const Json& config, const KeyWriter&) {
  require_no_bias(config, "attention_out_bias");
  require_no_bias(config, "mlp_bias");
}

void write_ernie4_5(const Json& config, const KeyWriter&) {
  require_no_bias(config, "use_bias");
}

void write_hunyuan(const Json& config, const KeyWriter&) {
  require_no_bias(config, "attention_bias");
}

// Only models of so many layers have windows, and those have them whatever their files say.
constexpr int64_t kExaoneHybridLayers = 64;
constexpr int64_t kExaonePeriod = 4, kExaoneWindow = 4096;

bool is_exaone_hybrid(const Json& config) {
  return get_int(config, "num_hidden_layers", 1, limits::kLayers) == kExaoneHybridLayers;
}

void read_exaone4(const ArchitectureKeys& keys, Json& config) {
  config["sliding_window"] = nullptr;
  config["layer_types"] = periodic_layer_types(config["num_hidden_layers"].get<int64_t>(), 1);
  if (is_exaone_hybrid(config)) read_windows(keys, kExaonePeriod, config, kExaoneWindow);
}

void write_exaone4(const Json& config, const KeyWriter& keys) {
  const bool hybrid = is_exaone_hybrid(config);
  require_windows(
      config, "exaone4",
      hybrid ? periodic_layer_types(kExaoneHybridLayers, kExaonePeriod) : Json(nullptr));
  if (hybrid) return write_window(config, keys);
  // Without a window, which no layer has, all rotate.
  if (find_value(config, "sliding_window") == nullptr) return;
  cannot_write("exaone4", "layers without rotation",
               "rotate in all layers of models of another number of layers than 64");
}

// K-EXAONE. Without a window no layer rotates in llama.cpp, in transformers all do. Newer files say
// which layers have it.
constexpr int64_t kExaoneMoeWindow = 128;

void read_exaone_moe(const ArchitectureKeys& keys, Json& config) {
  leave_out_guessing_layers(keys, config);
  const int64_t layers = config["num_hidden_layers"].get<int64_t>();
  config["sliding_window"] = keys.integer_or(kExaoneMoeWindow, kWindow, limits::kContext);
  config["layer_types"] = read_layer_types(keys, layers, kExaonePeriod);
  config["first_k_dense_replace"] = read_dense_layers(keys, config);
  read_grouped_experts(keys, /*only_sigmoid=*/true, config);
  config["num_shared_experts"] = Json(config["n_shared_experts"]);
}

void write_exaone_moe(const Json& config, const KeyWriter& keys) {
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  require_own_output(config);
  if (find_value(config, "sliding_window") == nullptr) {
    require_windows(config, "exaone-moe", periodic_layer_types(layers, kExaonePeriod));
  }
  write_window(config, keys);
  keys.set(kWindowPattern, windowed_layers(config));
  const int64_t shared = get_int(config, "n_shared_experts", 0, limits::kExperts, 0);
  if (shared == 0) {
    cannot_write("exaone-moe", "num_shared_experts 0", "look for some in every layer with experts");
  }
  keys.integer(kSharedLength, shared * get_int(config, "moe_intermediate_size", 1, limits::kDim));
  write_dense_layers(config, keys);
  write_grouped_experts(config, /*sigmoid=*/true, keys);
}

// Mistral Small 3.1 and 3.2, Ministral 3. Files say by how much cos and sin of yarn are multiplied
// only in that both of the numbers of which it is the ratio are equal.

void read_mistral3(const ArchitectureKeys& keys, Json& config) {
  Json& scaling = config["rope_scaling"];
  if (!scaling.is_object()) return;
  if (keys.has(kYarnMultiplier)) scaling["attention_factor"] = 1.0;
  if (keys.has(kQueryScale)) scaling[kQueryBeta] = keys.number(kQueryScale);
}

void write_mistral3(const Json& config, const KeyWriter& keys) {
  require_windows(config, "mistral3", nullptr);
  const Json* scaling = find_value(config, "rope_scaling");
  if (scaling == nullptr || find_value(*scaling, kQueryBeta) == nullptr) return;
  keys.number(kQueryScale, get_number(*scaling, kQueryBeta, 0, 1e6));
}

void read_lfm2(const ArchitectureKeys& keys, Json& config) {
  read_convolutions(keys, config);
  config["block_auto_adjust_ff_dim"] = false;
}

void read_glm4(const ArchitectureKeys&, Json& config) {
  say_rotary_factor(config);
}

// Readers of these look for queries as wide as the hidden states; those of others go by the key.
constexpr std::string_view kWholeQueries[] = {
    "bailingmoe2", "chatglm", "cohere2", "command-r", "exaone4", "lfm2",  "lfm2moe",  "nemotron",
    "olmo",        "olmo2",   "phi2",    "phi3",      "phimoe",  "qwen2", "qwen2moe", "starcoder2"};
// Readers of these know no bias of what attention gives, which attention_bias is of too.
constexpr std::string_view kNoAttentionBiases[] = {"falcon-h1",  "gemma",  "gemma2",   "gemma3",
                                                   "olmo2",      "qwen3",  "qwen3moe", "qwen3vl",
                                                   "qwen3vlmoe", "smollm3"};

void require_usual_attention(const Json& config, std::string_view architecture) {
  const auto is_one_of = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), architecture) != std::end(names);
  };
  if (is_one_of(kNoAttentionBiases)) require_no_bias(config, "attention_bias");
  if (!is_one_of(kWholeQueries)) return;
  const int64_t heads = get_int(config, "num_attention_heads", 1, limits::kHeads);
  const int64_t head_dim = get_int(config, "head_dim", 1, limits::kDim);
  const int64_t hidden = get_int(config, "hidden_size", 1, limits::kDim);
  if (heads * head_dim == hidden) return;
  cannot_write(architecture, str(heads, " heads of ", head_dim, " numbers"),
               str("look for as many as hidden_size, ", hidden));
}

void write_exaone(const Json& config, const KeyWriter&) {
  for (const char* key : {"attention_bias", "mlp_bias"}) require_no_bias(config, key);
}

// The number of few digits that gives `quotient` in float32 when `by` divides it, or any.
double short_dividend(double quotient, double by) {
  const double rounded = std::round(quotient * by * 1e4) / 1e4;
  return static_cast<float>(rounded / by) == static_cast<float>(quotient) ? rounded : quotient * by;
}

// Older files say none of the three numbers, which are those of MiniCPM 2B.
void read_minicpm(const ArchitectureKeys& keys, Json& config) {
  const double root = std::sqrt(config["num_hidden_layers"].get<double>());
  const auto dim = config["hidden_size"].get<double>();
  config["scale_emb"] = keys.number("embedding_scale", 12);
  config["scale_depth"] = short_dividend(keys.number("residual_scale", 1.4 / root), root);
  config["dim_model_base"] = short_dividend(1 / keys.number("logit_scale", dim / 256), dim);
}

void write_minicpm(const Json& config, const KeyWriter& keys) {
  require_no_bias(config, "attention_bias");
  const auto number = [&](const char* key) { return get_number(config, key, 1e-9, 1e9); };
  const double layers = number("num_hidden_layers");
  keys.number("embedding_scale", number("scale_emb"));
  keys.number("residual_scale", number("scale_depth") / std::sqrt(layers));
  keys.number("logit_scale", number("hidden_size") / number("dim_model_base"));
}

void read_bitnet(const ArchitectureKeys&, Json& config) {
  config["hidden_act"] = "silu";
}

void write_bitnet(const Json& config, const KeyWriter&) {
  require_no_bias(config, "attention_bias");
  if (get_bool(config, "tie_word_embeddings", false)) return;
  cannot_write("bitnet", "tie_word_embeddings false", "take the embedding as output");
}

void read_arcee(const ArchitectureKeys&, Json& config) {
  config["hidden_act"] = "relu2";
}

void write_arcee(const Json& config, const KeyWriter&) {
  for (const char* key : {"attention_bias", "mlp_bias"}) require_no_bias(config, key);
}

void read_apertus(const ArchitectureKeys&, Json& config) {
  config["hidden_act"] = "xielu";
}

void write_apertus(const Json& config, const KeyWriter&) {
  require_own_output(config);
  require_no_bias(config, "attention_bias");
}

void write_no_more(const Json&, const KeyWriter&) {}

void write_smollm3(const Json& config, const KeyWriter&) {
  require_no_bias(config, "mlp_bias");
  require_windows(config, "smollm3", nullptr);
  require_usual_rotation(config, "smollm3");
}

// The activation that all files of an architecture have, as they do not say it; the other names
// mean the same function.
std::vector<std::string_view> activations_of(std::string_view architecture) {
  constexpr std::string_view kGelus[] = {"gemma",     "gemma2",     "gemma3", "gemma3n", "gemma4",
                                         "starcoder", "starcoder2", "phi2",   "gpt2",    "bloom"};
  for (const std::string_view squared :
       {"nemotron", "nemotron_h", "nemotron_h_moe", "arcee", "jais2"}) {
    if (architecture == squared) return {"relu2"};
  }
  if (architecture == "apertus") return {"xielu"};
  if (architecture == "gptneox" || architecture == "falcon" || architecture == "mpt") {
    return {"gelu"};
  }
  if (std::find(std::begin(kGelus), std::end(kGelus), architecture) == std::end(kGelus)) {
    return {"silu", "swish"};
  }
  return {"gelu_pytorch_tanh", "gelu_new"};
}

void require_activation(const Json& config, std::string_view architecture) {
  const std::vector<std::string_view> usual = activations_of(architecture);
  const char* const key = architecture == "gpt2" ? kGpt2Activation : "hidden_act";
  const std::string found = get_string(config, key, std::string(usual[0]));
  if (std::find(usual.begin(), usual.end(), found) != usual.end()) return;
  fail(ErrorKind::kUnsupported, key, " ", quoted(found), " cannot be written as GGUF for ",
       architecture, ", where it is ", usual[0]);
}

struct Own {
  std::string_view architecture;
  void (*read)(const ArchitectureKeys& keys, Json& config);  // null: nothing
  void (*write)(const Json& config, const KeyWriter& keys);
};
constexpr Own kOwn[] = {
    {"llama", read_llama, write_llama},
    {"internlm2", nullptr, write_no_more},  // which is written as a Llama
    {"llama4", read_llama4, write_llama4},
    {"mistral3", read_mistral3, write_mistral3},
    {"mistral4", read_mistral4, write_mistral4},
    {"cohere2moe", read_cohere2moe, write_cohere2moe},
    {"granite_swa", read_granite_swa, write_granite_swa},
    {"hy_v3", read_hy_v3, write_hy_v3},
    {"laguna", read_laguna, write_laguna},
    {"mellum", read_mellum, write_mellum},
    {"qwen2", nullptr, write_no_windows},
    {"qwen3", nullptr, write_no_windows},
    {"qwen3moe", read_qwen3moe, write_qwen3moe},
    {"qwen2vl", read_sections, write_qwen2vl},
    {"qwen3vl", read_qwen3vl, write_qwen3vl},
    {"qwen3vlmoe", read_qwen3vlmoe, write_qwen3vlmoe},
    {"deepseek2", read_deepseek2, write_deepseek2},
    {"afmoe", read_afmoe, write_afmoe},
    {"bailingmoe2", read_bailingmoe2, write_bailingmoe2},
    {"dots1", read_dots1, write_dots1},
    {"chatglm", read_glm4, write_no_more},
    {"glm4", read_glm4, write_no_more},
    {"glm4moe", read_glm4moe, write_glm4moe},
    {"seed_oss", nullptr, write_seed_oss},
    {"ernie4_5", nullptr, write_ernie4_5},
    {"ernie4_5-moe", read_ernie4_5_moe, write_ernie4_5_moe},
    {"exaone4", read_exaone4, write_exaone4},
    {"exaone-moe", read_exaone_moe, write_exaone_moe},
    {"hunyuan-dense", nullptr, write_hunyuan},
    {"hunyuan-moe", read_hunyuan_moe, write_hunyuan_moe},
    {"starcoder2", read_starcoder2, write_starcoder2},
    {"lfm2", read_lfm2, write_convolutions},
    {"lfm2moe", read_lfm2moe, write_lfm2moe},
    {"nemotron", read_nemotron, write_nemotron},
    {"apertus", read_apertus, write_apertus},
    {"arcee", read_arcee, write_arcee},
    {"exaone", nullptr, write_exaone},
    {"falcon", read_falcon, write_falcon},
    {"bitnet", read_bitnet, write_bitnet},
    {"bloom", read_bloom, write_no_more},
    {"jais2", read_jais2, write_jais2},
    {"minicpm3", read_minicpm3, write_minicpm3},
    {"mpt", read_mpt, write_mpt},
    {"minicpm", read_minicpm, write_minicpm},
    {"olmo", read_olmo, write_olmo},
    {"starcoder", read_starcoder, write_starcoder},
    {"phi2", read_phi2, write_no_more},
    {"command-r", read_cohere, write_cohere},
    {"cohere2", read_cohere2, write_cohere2},
    {"minimax-m2", read_minimax_m2, write_minimax_m2},
    {"olmoe", read_olmoe, write_olmoe},
    {"qwen2moe", read_qwen2moe, write_qwen2moe},
    {"gemma", read_gemma, write_no_windows},
    {"gemma2", read_gemma2, write_gemma2},
    {"gemma3", read_gemma3, write_gemma3},
    {"gemma3n", read_gemma3n, write_gemma3n},
    {"gemma4", read_gemma4, write_gemma4},
    {"granite", read_granite, write_granite},
    {"granitemoe", read_granitemoe, write_granitemoe},
    {"granitehybrid", read_granitehybrid, write_granitehybrid},
    {"nemotron_h", read_nemotron_h, write_nemotron_h},
    {"nemotron_h_moe", read_nemotron_h_moe, write_nemotron_h_moe},
    {"falcon-h1", read_falcon_h1, write_falcon_h1},
    {"jamba", read_jamba, write_jamba},
    {"kimi-linear", read_kimi_linear, write_kimi_linear},
    {"mamba", read_mamba, write_mamba},
    {"mamba2", read_mamba2, write_mamba2},
    {"olmo2", read_olmo2, write_olmo2},
    {"phi3", read_phi3, write_phi3},
    {"phimoe", read_phimoe, write_phimoe},
    {"smollm3", nullptr, write_smollm3},
    {"gpt2", read_gpt2, write_gpt2},
    {"gptneox", read_gptneox, write_gptneox},
    {"stablelm", read_stablelm, write_stablelm},
    {"gpt-oss", read_gpt_oss, write_gpt_oss},
    {"qwen35", read_qwen35, write_qwen35},
    {"qwen35moe", read_qwen35moe, write_qwen35moe},
    {"qwen3next", read_qwen3next, write_qwen3next},
};

const Own& own_of(std::string_view architecture) {
  return *std::find_if(std::begin(kOwn), std::end(kOwn),
                       [&](const Own& own) { return own.architecture == architecture; });
}

}  // namespace

void read_convolutions(const ArchitectureKeys& keys, Json& config) {
  const int64_t layers = config["num_hidden_layers"].get<int64_t>();
  const int64_t heads = config["num_key_value_heads"].get<int64_t>();
  Json types = Json::array();
  for (const int64_t count : keys.per_layer(kKvHeads, layers, limits::kHeads)) {
    if (count != 0 && count != heads) {
      fail(ErrorKind::kUnsupported, gguf_architecture(config), ".", kKvHeads, ": layers with ",
           count, " and ", heads, " heads: different numbers are not supported");
    }
    types.push_back(count == 0 ? "conv" : "full_attention");
  }
  config["layer_types"] = std::move(types);
  config["conv_L_cache"] = keys.integer(kConvTaps, kMostConvTaps, 2);
}

void write_kv_heads(const Json& config, const std::vector<bool>& without, const KeyWriter& keys) {
  const auto heads =
      static_cast<int32_t>(get_int(config, "num_key_value_heads", 1, limits::kHeads));
  std::vector<int32_t> counts;
  for (const bool has_none : without) counts.push_back(has_none ? 0 : heads);
  keys.set(kKvHeads, counts);
}

void write_convolutions(const Json& config, const KeyWriter& keys) {
  require_no_bias(config, "conv_bias");
  write_kv_heads(config, convolution_layers(config), keys);
  keys.integer(kConvTaps, get_int(config, "conv_L_cache", 2, kMostConvTaps));
}

int64_t read_window(const ArchitectureKeys& keys, int64_t unsaid) {
  return keys.has(kWindow) ? keys.integer(kWindow, limits::kContext, 0) : unsaid;
}

Json read_layer_types(const ArchitectureKeys& keys, int64_t layers, int64_t period) {
  if (keys.has_array(kWindowPattern)) return layer_types_of(keys.flags(kWindowPattern, layers));
  return periodic_layer_types(layers, keys.integer_or(period, kWindowPattern, limits::kLayers));
}

bool read_windows(const ArchitectureKeys& keys, int64_t period, Json& config, int64_t unsaid) {
  const int64_t window = read_window(keys, unsaid);
  if (window == 0) return false;
  config["sliding_window"] = window;
  config["layer_types"] =
      read_layer_types(keys, config["num_hidden_layers"].get<int64_t>(), period);
  return true;
}

void write_window(const Json& config, const KeyWriter& keys) {
  if (find_value(config, "sliding_window") == nullptr) return;
  keys.integer(kWindow, get_int(config, "sliding_window", 1, limits::kContext));
}

void write_windows(const Json& config, const KeyWriter& keys, int64_t usual) {
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  if (find_value(config, "sliding_window") == nullptr) {
    return require_windows(config, gguf_architecture(config), nullptr);
  }
  // The usual period is not said. One beyond the last layer is windows in all.
  const Json types = layer_types_of(windowed_layers(config));
  int64_t period = usual;
  for (int64_t other = 1; other <= layers + 1; ++other) {
    if (types == periodic_layer_types(layers, period)) break;
    period = other;
  }
  require_windows(config, gguf_architecture(config), periodic_layer_types(layers, period));
  write_window(config, keys);
  if (period != usual) keys.integer(kWindowPattern, period);
}

void write_no_windows(const Json& config, const KeyWriter&) {
  require_windows(config, gguf_architecture(config), nullptr);
}

void require_windows(const Json& config, std::string_view architecture, const Json& expected) {
  const std::vector<int64_t> windows = layer_windows(config);
  for (size_t i = 0; i < windows.size(); ++i) {
    const bool may_have = !expected.is_null() && expected[i] == "sliding_attention";
    if (may_have == (windows[i] > 0)) continue;
    fail(ErrorKind::kUnsupported, "layer ", i, " has ",
         windows[i] > 0 ? str("a sliding window of ", windows[i], " tokens")
                        : std::string("no sliding window"),
         ", which cannot be written as GGUF for ", architecture, kInstead);
  }
}

void require_usual_rotation(const Json& config, std::string_view architecture) {
  Json usual = config;
  usual.erase("no_rope_layers");
  usual.erase("no_rope_layer_interval");
  if (rotating_layers(config) == rotating_layers(usual)) return;
  fail(ErrorKind::kUnsupported,
       "other layers without rotation than every 4th cannot be written as GGUF for ", architecture);
}

void require_no_bias(const Json& config, const char* key) {
  if (!get_bool(config, key, false)) return;
  cannot_write(gguf_architecture(config), str(key, " true"), "add no such biases");
}

void require_own_output(const Json& config) {
  if (!get_bool(config, "tie_word_embeddings", false)) return;
  cannot_write(gguf_architecture(config), "tie_word_embeddings true",
               "look for an output of its own");
}

void say_rotary_factor(Json& config) {
  if (!config.contains("partial_rotary_factor")) config["partial_rotary_factor"] = 1.0;
}

std::vector<bool> windowed_layers(const Json& config) {
  std::vector<bool> windowed;
  for (const int64_t window : layer_windows(config)) windowed.push_back(window > 0);
  return windowed;
}

Json layer_types_of(const std::vector<bool>& windowed) {
  Json types = Json::array();
  for (const bool has_window : windowed) {
    types.push_back(has_window ? "sliding_attention" : "full_attention");
  }
  return types;
}

void leave_out_guessing_layers(const ArchitectureKeys& keys, Json& config) {
  constexpr const char* kMoreTokens = "nextn_predict_layers";
  const int64_t all = config["num_hidden_layers"].get<int64_t>();
  const int64_t more = keys.has(kMoreTokens) ? keys.integer(kMoreTokens, all - 1, 0) : 0;
  config["num_hidden_layers"] = all - more;
  config["mtp_num_hidden_layers"] = more;
}

void cannot_write(std::string_view architecture, std::string_view what, std::string_view why) {
  fail(ErrorKind::kUnsupported, what, " cannot be written as GGUF for ", architecture,
       ", whose readers ", why, kInstead);
}

void read_family_keys(std::string_view architecture, const ArchitectureKeys& keys, Json& config) {
  if (const Own& own = own_of(architecture); own.read != nullptr) own.read(keys, config);
}

void write_family_keys(std::string_view architecture, const Json& config, const KeyWriter& keys) {
  require_activation(config, architecture);
  require_usual_attention(config, architecture);
  own_of(architecture).write(config, keys);
}

}  // namespace lumen::io
