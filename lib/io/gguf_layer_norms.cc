// What files of families with layer norms say: GPT-2, StarCoder, Command R, Nemotron, GPT-NeoX,
// StableLM, Phi-2, Falcon, OLMo, BLOOM, MPT and Jais 2. Keys:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <cmath>

#include "lib/base/limits.h"
#include "lib/io/gguf_architecture.h"
#include "lib/io/gguf_families.h"
#include "lib/io/layer_windows.h"

namespace lumen::io {
namespace {

constexpr const char* kLogitScale = "logit_scale";
constexpr int64_t kCoherePeriod = 4;
constexpr int64_t kNormedLayers = 64;  // from so many on queries and keys of Command R have norms

// Files say that layers of GPT-NeoX add what attention and mlp give of the same, and those of
// StableLM do by having no second norm.
constexpr const char* kParallel = "use_parallel_residual";  // in a config, too

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

}  // namespace

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

void read_starcoder(const ArchitectureKeys&, Json& config) {
  config["hidden_act"] = "gelu_pytorch_tanh";
  config["multi_query"] = config["num_key_value_heads"] == 1;
}

void write_starcoder(const Json& config, const KeyWriter&) {
  if (!get_bool(config, "scale_attn_weights", true)) {
    cannot_write("starcoder", "scale_attn_weights false", "divide scores by the root of head_dim");
  }
  if (get_bool(config, "multi_query", true)) return;
  cannot_write("starcoder", "multi_query false", "look for all queries before the keys");
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
  read_windows(keys, kCoherePeriod, config);
}

void write_cohere2(const Json& config, const KeyWriter& keys) {
  write_any_cohere(config, keys);
  if (find_value(config, "sliding_window") == nullptr) {
    cannot_write("cohere2", "sliding_window null", "look for a window");
  }
  write_windows(config, keys, kCoherePeriod);
}

void read_nemotron(const ArchitectureKeys&, Json& config) {
  say_rotary_factor(config);
  config["rms_norm_offset"] = 0;  // the files have the sums
  config["hidden_act"] = "relu2";
}

void write_nemotron(const Json& config, const KeyWriter&) {
  require_own_output(config);
}

void read_jais2(const ArchitectureKeys&, Json& config) {
  config["hidden_act"] = "relu2";
}

void write_jais2(const Json& config, const KeyWriter&) {
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (get_bool(config, key, true)) continue;
    cannot_write("jais2", str(key, " false"), "look for biases in every layer");
  }
}

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

void read_falcon(const ArchitectureKeys& keys, Json& config) {
  const int64_t kv_heads = config["num_key_value_heads"].get<int64_t>();
  config["hidden_act"] = "gelu";
  config["linear_heads_tiled"] = true;
  config["num_kv_heads"] = kv_heads;
  const bool two_norms = keys.has_in_layers("attn_norm_2.weight");
  const bool all = kv_heads == config["num_attention_heads"].get<int64_t>();
  const bool grouped = two_norms || (kv_heads > 1 && !all);
  config["new_decoder_architecture"] = grouped;
  if (!grouped) config["multi_query"] = kv_heads == 1;
  config["num_ln_in_parallel_attn"] = two_norms ? 2 : 1;
}

void write_falcon(const Json& config, const KeyWriter&) {
  require_no_bias(config, "attention_bias");
  const bool grouped = get_bool(config, "new_decoder_architecture", false);
  if (grouped || get_bool(config, "parallel_attn", true)) return;
  cannot_write("falcon", "parallel_attn false", "give the mlp what attention is given");
}

void read_bloom(const ArchitectureKeys&, Json& config) {
  config["hidden_act"] = "gelu_pytorch_tanh";
  config["linear_heads_tiled"] = true;
}

constexpr const char *kClip = "attention.clamp_kqv", *kClipQkv = "clip_qkv";
constexpr const char *kMaxBias = "attention.max_alibi_bias", *kBiasMax = "alibi_bias_max";
constexpr const char* kMptAttention = "attn_config";

void read_mpt(const ArchitectureKeys& keys, Json& config) {
  config["hidden_act"] = "gelu";
  const double bias = keys.number(kMaxBias, 8);
  Json attention = {{"alibi", true}, {kBiasMax, bias}};
  // A whole number is one in a config, too.
  if (bias == std::floor(bias)) attention[kBiasMax] = static_cast<int64_t>(bias);
  if (const double clip = keys.number(kClip, 0); clip > 0) attention[kClipQkv] = clip;
  config[kMptAttention] = std::move(attention);
}

void write_mpt(const Json& config, const KeyWriter& keys) {
  const Json* found = find_value(config, kMptAttention);
  const Json attention = found == nullptr ? Json::object() : *found;
  if (find_value(attention, "softmax_scale") != nullptr) {
    cannot_write("mpt", "softmax_scale", "divide scores by the root of head_dim");
  }
  keys.number(kMaxBias, get_number(attention, kBiasMax, 1e-3, 1e3, 8));
  if (find_value(attention, kClipQkv) == nullptr) return;
  keys.number(kClip, get_number(attention, kClipQkv, 1e-6, 1e6));
}

void read_olmo(const ArchitectureKeys& keys, Json& config) {
  if (keys.has(kClip)) config[kClipQkv] = keys.number(kClip);
}

void write_olmo(const Json& config, const KeyWriter& keys) {
  require_no_bias(config, "attention_bias");
  if (find_value(config, kClipQkv) == nullptr) return;
  keys.number(kClip, get_number(config, kClipQkv, 1e-6, 1e6));
}

void read_phi2(const ArchitectureKeys&, Json& config) {
  say_rotary_factor(config);
  config["hidden_act"] = "gelu_new";
}

}  // namespace lumen::io
