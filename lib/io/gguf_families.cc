// What files of single architectures say in keys of their own; what has no key, such as which
// layers have a window, is the same in all files of an architecture. Keys:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include "lib/io/gguf_families.h"

#include <algorithm>
#include <array>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/layer_windows.h"

namespace lumen::io {
namespace {

constexpr double kMaxUsual = 1e6, kLeastCap = 1e-3;
constexpr const char* kConvTaps = "shortconv.l_cache";

// --- Windows -----------------------------------------------------------------------------------

// The window that a file names, or `unsaid`; 0: none, which some files say so.
int64_t read_window(const ArchitectureKeys& keys, int64_t unsaid = 0) {
  return keys.has(kWindow) ? keys.integer(kWindow, limits::kContext, 0) : unsaid;
}

// The same of a model whose layers have it but every `period`-th.
bool read_windows(const ArchitectureKeys& keys, int64_t period, Json& config, int64_t unsaid = 0) {
  const int64_t window = read_window(keys, unsaid);
  if (window == 0) return false;
  config["sliding_window"] = window;
  config["layer_types"] = periodic_layer_types(config["num_hidden_layers"].get<int64_t>(), period);
  return true;
}

void write_window(const Json& config, const KeyWriter& keys) {
  if (find_value(config, "sliding_window") == nullptr) return;
  keys.integer(kWindow, get_int(config, "sliding_window", 1, limits::kContext));
}

// The same of a model whose layers have it but every `period`-th, or none at all.
void write_windows(const Json& config, const KeyWriter& keys, int64_t period) {
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  const bool windowed = find_value(config, "sliding_window") != nullptr;
  require_windows(config, gguf_architecture(config),
                  windowed ? periodic_layer_types(layers, period) : Json(nullptr));
  write_window(config, keys);
}

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
  write_window(config, keys);
  if (get_string(config, "model_type") != "mixtral") return;
  write_experts(config, "num_local_experts", "intermediate_size", keys);
}

// A number of both, and what files without the key mean.
struct Usual {
  const char* key;
  double usual;
};

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
  write_windows(config, keys, kGptOssPeriod);
  write_experts(config, "num_local_experts", "intermediate_size", keys);
  for (const Usual& number : kGptOssGate) {
    const double found = get_number(config, number.key, 1e-3, kMaxUsual, number.usual);
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

constexpr const char* kGpt2Activation = "activation_function";

void read_gpt2(const ArchitectureKeys&, Json& config) {
  config[kGpt2Activation] = "gelu_new";
  config["conv1d_out_in"] = true;
}

void write_gpt2(const Json& config, const KeyWriter&) {
  if (!get_bool(config, "scale_attn_weights", true)) {
    cannot_write("gpt2", "scale_attn_weights false", "divide scores by the root of head_dim");
  }
  if (get_bool(config, "scale_attn_by_inverse_layer_idx", false)) {
    cannot_write("gpt2", "scale_attn_by_inverse_layer_idx true", "scale all layers alike");
  }
}

void write_no_windows(const Json& config, const KeyWriter&) {
  require_windows(config, gguf_architecture(config), nullptr);
}

constexpr int64_t kGemma2Period = 2, kGemma3Period = 6, kOlmoPeriod = 4;
constexpr int64_t kGemma2Window = 4096;
constexpr double kGemmaLocalTheta = 10000;

// What the products of queries and keys of Gemma 2 and 3 are divided by the root of: of all sizes
// but the largest head_dim.
int64_t gemma_query_scalar(const Json& config) {
  const int64_t heads = get_int(config, "num_attention_heads", 1, limits::kHeads);
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  const bool largest = layers == (get_string(config, "model_type") == "gemma2" ? 46 : 62);
  return largest ? get_int(config, "hidden_size", 1, limits::kDim) / heads
                 : get_int(config, "head_dim", 1, limits::kDim);
}

void read_gemma(const ArchitectureKeys&, Json& config) {
  config["rms_norm_offset"] = 0;  // the files have the sums
  config["hidden_act"] = "gelu_pytorch_tanh";
}

void require_query_scalar(const Json& config) {
  const auto expected = static_cast<double>(gemma_query_scalar(config));
  const double scalar = get_number(config, "query_pre_attn_scalar", 1e-6, 1e9, expected);
  if (scalar != expected) {
    fail(ErrorKind::kUnsupported, "query_pre_attn_scalar ", scalar,
         " cannot be written as GGUF, where it is ", expected);
  }
}

// The caps of Gemma 2.
constexpr Usual kCaps[] = {{"attn_logit_softcapping", 50}, {"final_logit_softcapping", 30}};

void read_gemma2(const ArchitectureKeys& keys, Json& config) {
  read_gemma(keys, config);
  config["query_pre_attn_scalar"] = gemma_query_scalar(config);
  for (const Usual& cap : kCaps) {
    config[cap.key] = keys.number(cap.key, cap.usual);
    get_number(config, cap.key, kLeastCap, kMaxUsual);
  }
  if (!read_windows(keys, kGemma2Period, config, kGemma2Window)) config["sliding_window"] = nullptr;
}

void write_gemma2(const Json& config, const KeyWriter& keys) {
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  require_windows(config, "gemma2", periodic_layer_types(layers, kGemma2Period));
  write_window(config, keys);
  require_query_scalar(config);
  for (const Usual& cap : kCaps) {
    if (find_value(config, cap.key) == nullptr) {
      fail(ErrorKind::kUnsupported, cap.key,
           " null cannot be written as GGUF for gemma2, where it is ", cap.usual,
           " if there is no key");
    }
    keys.number(cap.key, get_number(config, cap.key, kLeastCap, kMaxUsual));
  }
}

void read_gemma3(const ArchitectureKeys& keys, Json& config) {
  read_gemma(keys, config);
  config["query_pre_attn_scalar"] = gemma_query_scalar(config);
  config["rope_local_base_freq"] = keys.number(kLocalTheta, kGemmaLocalTheta);
  read_windows(keys, kGemma3Period, config);
}

void write_gemma3(const Json& config, const KeyWriter& keys) {
  write_windows(config, keys, kGemma3Period);
  require_query_scalar(config);
  for (const Usual& cap : kCaps) {
    if (find_value(config, cap.key) == nullptr) continue;
    fail(ErrorKind::kUnsupported, cap.key, " cannot be written as GGUF for gemma3");
  }
  keys.number(kLocalTheta,
              get_number(config, "rope_local_base_freq", 1e-3, 1e12, kGemmaLocalTheta));
}

void read_olmo2(const ArchitectureKeys& keys, Json& config) {
  if (read_windows(keys, kOlmoPeriod, config)) config["model_type"] = "olmo3";
}

void write_olmo2(const Json& config, const KeyWriter& keys) {
  write_windows(config, keys, kOlmoPeriod);
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

void read_starcoder2(const ArchitectureKeys& keys, Json& config) {
  config["hidden_act"] = "gelu_pytorch_tanh";
  config["use_bias"] = Json(config["attention_bias"]);
  if (const int64_t window = read_window(keys); window > 0) config["sliding_window"] = window;
}

void write_starcoder2(const Json& config, const KeyWriter& keys) {
  write_window(config, keys);
  if (get_bool(config, "use_bias", true)) return;
  cannot_write("starcoder2", "use_bias false", "look for biases in every layer");
}

constexpr const char* kLogitScale = "logit_scale";
constexpr int64_t kCoherePeriod = 4;
constexpr int64_t kNormedLayers = 64;  // from so many on queries and keys of Command R have norms

void read_any_cohere(const ArchitectureKeys& keys, Json& config) {
  config[kLogitScale] = keys.number(kLogitScale);
}

void write_any_cohere(const Json& config, const KeyWriter& keys) {
  const std::string architecture = gguf_architecture(config);
  require_no_bias(config, "attention_bias");
  if (!get_bool(config, "tie_word_embeddings", true)) {
    cannot_write(architecture, "tie_word_embeddings false", "take the embedding as output");
  }
  keys.number(kLogitScale, get_number(config, kLogitScale, 1e-9, 1e9));
}

void read_cohere(const ArchitectureKeys& keys, Json& config) {
  read_any_cohere(keys, config);
  config["use_qk_norm"] = config["num_hidden_layers"].get<int64_t>() >= kNormedLayers;
}

void write_cohere(const Json& config, const KeyWriter& keys) {
  write_any_cohere(config, keys);
  const bool many = get_int(config, "num_hidden_layers", 1, limits::kLayers) >= kNormedLayers;
  if (get_bool(config, "use_qk_norm", false) != many) {
    cannot_write("command-r", many ? "use_qk_norm false" : "use_qk_norm true",
                 "look for it in models of 64 layers and more only");
  }
}

void read_cohere2(const ArchitectureKeys& keys, Json& config) {
  read_any_cohere(keys, config);
  read_windows(keys, keys.integer_or(kCoherePeriod, kWindowPattern, limits::kLayers), config);
}

void write_cohere2(const Json& config, const KeyWriter& keys) {
  write_any_cohere(config, keys);
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  require_windows(config, "cohere2", periodic_layer_types(layers, kCoherePeriod));
  write_window(config, keys);
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
  config["layer_types"] = keys.has(kWindowPattern)
                              ? layer_types_of(keys.flags(kWindowPattern, layers))
                              : periodic_layer_types(layers, kExaonePeriod);
  config["first_k_dense_replace"] = read_dense_layers(keys, config);
  read_grouped_experts(keys, /*only_sigmoid=*/true, config);
  config["num_shared_experts"] = Json(config["n_shared_experts"]);
}

void write_exaone_moe(const Json& config, const KeyWriter& keys) {
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  require_own_output(config);
  require_windows(config, "exaone-moe", periodic_layer_types(layers, kExaonePeriod));
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
constexpr const char* kQueryScale = "attention.temperature_scale";
constexpr const char* kQueryBeta = "llama_4_scaling_beta";

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

void read_nemotron(const ArchitectureKeys&, Json& config) {
  say_rotary_factor(config);
  config["rms_norm_offset"] = 0;  // the files have the sums
  config["hidden_act"] = "relu2";
}

void write_nemotron(const Json& config, const KeyWriter&) {
  require_own_output(config);
}

// Files say that layers of GPT-NeoX add what attention and mlp give of the same, and those of
// StableLM do by having no second norm.
constexpr const char* kParallel = "use_parallel_residual";  // in a config, too

void read_gptneox(const ArchitectureKeys& keys, Json& config) {
  say_rotary_factor(config);
  config["hidden_act"] = "gelu";
  config["linear_heads_tiled"] = true;
  config[kParallel] = keys.truth(kParallel, true);
}

void write_gptneox(const Json& config, const KeyWriter& keys) {
  require_own_output(config);
  if (!get_bool(config, "attention_bias", true)) {
    cannot_write("gptneox", "attention_bias false", "look for biases in every layer");
  }
  keys.set(kParallel, get_bool(config, kParallel, true));
}

void read_stablelm(const ArchitectureKeys& keys, Json& config) {
  say_rotary_factor(config);
  config["use_qkv_bias"] = Json(config["attention_bias"]);
  config["qk_layernorm"] = keys.has_in_layers("attn_q_norm.weight");
  config[kParallel] = !keys.has_in_layers("ffn_norm.weight");
}

void write_stablelm(const Json& config, const KeyWriter& keys) {
  require_own_output(config);
  keys.set(kParallel, get_bool(config, kParallel, false));
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

void read_phi2(const ArchitectureKeys&, Json& config) {
  say_rotary_factor(config);
  config["hidden_act"] = "gelu_new";
}

void write_no_more(const Json&, const KeyWriter&) {}

void write_smollm3(const Json& config, const KeyWriter&) {
  require_windows(config, "smollm3", nullptr);
  Json usual = config;
  usual.erase("no_rope_layers");
  usual.erase("no_rope_layer_interval");
  if (rotating_layers(config) == rotating_layers(usual)) return;
  fail(ErrorKind::kUnsupported,
       "other layers without rotation than every 4th cannot be written as GGUF for smollm3");
}

// The activation that all files of an architecture have, as they do not say it; the other names
// mean the same function.
std::vector<std::string_view> activations_of(std::string_view architecture) {
  constexpr std::string_view kGelus[] = {"gemma",  "gemma2",     "gemma3", "gemma3n",
                                         "gemma4", "starcoder2", "phi2",   "gpt2"};
  if (architecture.starts_with("nemotron") || architecture == "arcee") return {"relu2"};
  if (architecture == "apertus") return {"xielu"};
  if (architecture == "gptneox") return {"gelu"};
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
    {"mistral3", read_mistral3, write_mistral3},
    {"qwen2", nullptr, write_no_windows},
    {"qwen3", nullptr, write_no_windows},
    {"qwen3moe", read_qwen3moe, write_qwen3moe},
    {"qwen2vl", read_sections, write_qwen2vl},
    {"qwen3vl", read_qwen3vl, write_qwen3vl},
    {"qwen3vlmoe", read_qwen3vlmoe, write_qwen3vlmoe},
    {"deepseek2", read_deepseek2, write_deepseek2},
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

int64_t ArchitectureKeys::uniform(std::string_view key, int64_t hi) const {
  const auto value = metadata_.find(prefix_ + std::string(key));
  if (!value || !value->is_array()) return integer(key, hi);
  for (size_t i = 0; i < value->size(); ++i) {
    if (value->int_at(i) != value->int_at(0)) {
      fail(ErrorKind::kUnsupported, "key ", quoted(value->key()),
           ": layers of different sizes are not supported");
    }
  }
  const int64_t count = value->size() > 0 ? value->int_at(0) : 0;
  if (count < 1 || count > hi) {
    fail(ErrorKind::kMalformed, "key ", quoted(value->key()), ": found ", count,
         ", expected an integer from 1 to ", hi);
  }
  return count;
}

std::vector<int64_t> ArchitectureKeys::per_layer(std::string_view key, int64_t layers,
                                                 int64_t hi) const {
  const auto value = metadata_.find(prefix_ + std::string(key));
  if (!value || !value->is_array()) {
    return std::vector<int64_t>(static_cast<size_t>(layers), integer(key, hi, 0));
  }
  if (static_cast<int64_t>(value->size()) != layers) {
    fail(ErrorKind::kMalformed, "key ", quoted(value->key()), ": found ", value->size(),
         " counts, expected ", layers, ", one per layer");
  }
  std::vector<int64_t> counts;
  for (size_t i = 0; i < value->size(); ++i) {
    counts.push_back(value->int_at(i));
    if (counts.back() >= 0 && counts.back() <= hi) continue;
    fail(ErrorKind::kMalformed, "key ", quoted(value->key()), ": layer ", i, " has ", counts.back(),
         ", expected an integer from 0 to ", hi);
  }
  return counts;
}

bool ArchitectureKeys::has_in_layers(std::string_view part) const {
  const int64_t layers = integer("block_count", limits::kLayers);
  for (int64_t i = 0; i < layers; ++i) {
    if (has_tensor(i, part)) return true;
  }
  return false;
}

std::vector<int64_t> ArchitectureKeys::list(std::string_view key, size_t count, int64_t hi) const {
  const std::string name = prefix_ + std::string(key);
  const auto value = metadata_.find(name);
  if (!value || !value->is_array() || value->size() != count) {
    fail(ErrorKind::kMalformed, "key ", quoted(name), ": expected an array of ", count,
         " integers");
  }
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < count; ++i) {
    numbers.push_back(value->int_at(i));
    if (numbers.back() >= 0 && numbers.back() <= hi) continue;
    fail(ErrorKind::kMalformed, "key ", quoted(name), ": found ", numbers.back(),
         ", expected integers from 0 to ", hi);
  }
  return numbers;
}

std::vector<double> ArchitectureKeys::numbers(std::string_view key, int64_t layers) const {
  const std::string name = prefix_ + std::string(key);
  const auto value = metadata_.find(name);
  if (!value || !value->is_array() || static_cast<int64_t>(value->size()) != layers) {
    fail(ErrorKind::kMalformed, "key ", quoted(name), ": expected an array of ", layers,
         " numbers, one per layer");
  }
  std::vector<double> numbers;
  for (size_t i = 0; i < value->size(); ++i) numbers.push_back(value->number_at(i));
  return numbers;
}

std::vector<bool> ArchitectureKeys::flags(std::string_view key, int64_t layers) const {
  const std::string name = prefix_ + std::string(key);
  const auto value = metadata_.find(name);
  if (!value || !value->is_array() || static_cast<int64_t>(value->size()) != layers) {
    fail(ErrorKind::kMalformed, "key ", quoted(name), ": expected an array of ", layers,
         " flags, one per layer");
  }
  std::vector<bool> flags;
  const bool is_bool = value->element_type() == GgufType::kBool;
  for (size_t i = 0; i < value->size(); ++i) {
    flags.push_back(is_bool ? value->bool_at(i) : value->int_at(i) != 0);
  }
  return flags;
}

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

void require_windows(const Json& config, std::string_view architecture, const Json& expected) {
  const std::vector<int64_t> windows = layer_windows(config);
  for (size_t i = 0; i < windows.size(); ++i) {
    const bool may_have = !expected.is_null() && expected[i] == "sliding_attention";
    if (may_have == (windows[i] > 0)) continue;
    fail(ErrorKind::kUnsupported, "layer ", i, " has ",
         windows[i] > 0 ? str("a sliding window of ", windows[i], " tokens")
                        : std::string("no sliding window"),
         ", which cannot be written as GGUF for ", architecture);
  }
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
       ", whose readers ", why);
}

void read_family_keys(std::string_view architecture, const ArchitectureKeys& keys, Json& config) {
  if (const Own& own = own_of(architecture); own.read != nullptr) own.read(keys, config);
}

void write_family_keys(std::string_view architecture, const Json& config, const KeyWriter& keys) {
  require_activation(config, architecture);
  own_of(architecture).write(config, keys);
}

}  // namespace lumen::io
