// Llama (Touvron et al. 2023, "LLaMA" and "Llama 2"; Dubey et al. 2024, "The Llama 3 Herd").
//
// Loads Llama 2, 3, 3.1, 3.2, TinyLlama, SmolLM2, and Mistral 7B (Jiang et al. 2023), whose only
// difference is a sliding window. The baseline of the zoo: pre-norm decoder, grouped-query
// attention without biases, rotary positions (Llama 3.1 and later: scaled), SwiGLU, output head
// tied to the embedding or not.
#include "models/decoder_lm.h"

namespace lumen::models {
namespace llama {

struct Config : nn::DecoderConfig {
  explicit Config(const io::Json& config)
      : DecoderConfig(config),
        attention_bias(io::get_bool(config, "attention_bias", false)),
        mlp_bias(io::get_bool(config, "mlp_bias", false)) {}

  bool attention_bias, mlp_bias;
};

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const Config config(json);
  const nn::AttentionShape attention = {.hidden = config.hidden_size,
                                        .heads = config.num_attention_heads,
                                        .kv_heads = config.num_key_value_heads,
                                        .head_dim = config.head_dim,
                                        .qkv_bias = config.attention_bias,
                                        .output_bias = config.attention_bias,
                                        .window = config.sliding_window,
                                        .dropout = config.attention_dropout};
  return std::make_unique<DecoderLm>(
      json, config, parameters.with_normal_weights(config.initializer_range),
      [&](int64_t) { return attention; }, config.mlp_bias);
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = {{"model_type", "llama"},    {"hidden_size", 32},
                         {"intermediate_size", 48},  {"num_hidden_layers", 2},
                         {"num_attention_heads", 4}, {"num_key_value_heads", 2},
                         {"vocab_size", 37},         {"max_position_embeddings", 64},
                         {"rms_norm_eps", 1e-5},     {"rope_theta", 10000.0}};
  io::Json tied = base, llama3 = base, mistral = base, biased = base;
  tied["tie_word_embeddings"] = true;
  tied["rope_interleaved"] = true;
  llama3["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 16}};
  mistral["model_type"] = "mistral";
  mistral["sliding_window"] = 3;
  biased["attention_bias"] = true;
  biased["mlp_bias"] = true;
  return {base, tied, llama3, mistral, biased};
}

constexpr std::string_view kModelTypes[] = {"llama", "mistral"};

}  // namespace llama

extern const ModelDef kLlama;
const ModelDef kLlama = {"llama", llama::kModelTypes, llama::make, llama::tiny_configs};

}  // namespace lumen::models
