// Qwen3 (Yang et al. 2025, "Qwen3 Technical Report").
//
// Loads the dense Qwen3 sizes. Differs from plain Llama by an RMSNorm of every query and key head
// before rotation, a head_dim that is not hidden_size / heads, a rotary base of 10^6 and an
// optional sliding window on the upper layers; small sizes tie the output head to the embedding.
#include "models/decoder_lm.h"

namespace lumen::models {
namespace qwen3 {

struct Config : nn::DecoderConfig {
  explicit Config(const io::Json& config)
      : DecoderConfig(config),
        attention_bias(io::get_bool(config, "attention_bias", false)),
        max_window_layers(io::get_int(config, "max_window_layers", 0, limits::kLayers, 0)) {}

  // Layers from max_window_layers on see only the sliding window, if use_sliding_window says so.
  int64_t window(int64_t layer) const { return layer >= max_window_layers ? sliding_window : 0; }

  bool attention_bias;
  int64_t max_window_layers;
};

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const Config config(json);
  auto attention = [&](int64_t layer) -> nn::AttentionShape {
    return {.hidden = config.hidden_size,
            .heads = config.num_attention_heads,
            .kv_heads = config.num_key_value_heads,
            .head_dim = config.head_dim,
            .qkv_bias = config.attention_bias,
            .output_bias = config.attention_bias,
            .qk_norm_eps = config.rms_norm_eps,
            .window = config.window(layer),
            .dropout = config.attention_dropout};
  };
  return std::make_unique<DecoderLm>(
      json, config, parameters.with_normal_weights(config.initializer_range), attention);
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = {
      {"model_type", "qwen3"},  {"hidden_size", 24},        {"intermediate_size", 40},
      {"num_hidden_layers", 2}, {"num_attention_heads", 4}, {"num_key_value_heads", 2},
      {"head_dim", 16},         {"vocab_size", 43},         {"max_position_embeddings", 64},
      {"rms_norm_eps", 1e-6},   {"rope_theta", 1e6},        {"tie_word_embeddings", true}};
  io::Json biased = base;
  biased["attention_bias"] = true;
  biased["sliding_window"] = 4;
  return {base, biased};
}

constexpr std::string_view kModelTypes[] = {"qwen3"};

}  // namespace qwen3

extern const ModelDef kQwen3;
const ModelDef kQwen3 = {"qwen3", qwen3::kModelTypes, qwen3::make, qwen3::tiny_configs};

}  // namespace lumen::models
