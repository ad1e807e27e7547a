// Llama (Touvron et al. 2023, "LLaMA" and "Llama 2"; Dubey et al. 2024, "The Llama 3 Herd").
//
// Loads Llama 2, 3, 3.1, 3.2, TinyLlama, SmolLM2, and Mistral 7B (Jiang et al. 2023), whose only
// difference is a sliding window. The baseline of the zoo: pre-norm decoder, grouped-query
// attention without biases, rotary positions (Llama 3.1 and later: scaled), SwiGLU, output head
// tied to the embedding or not.
#include "models/model.h"

namespace lumen::models {
namespace {

struct Config : nn::DecoderConfig {
  explicit Config(const io::Json& config)
      : DecoderConfig(config),
        attention_bias(io::get_bool(config, "attention_bias", false)),
        mlp_bias(io::get_bool(config, "mlp_bias", false)) {}

  bool attention_bias, mlp_bias;
};

class Llama : public CausalLm {
 public:
  Llama(const io::Json& json, const nn::Parameters& parameters)
      : config_(json),
        embed_tokens_(parameters / "model" / "embed_tokens", config_.vocab_size,
                      config_.hidden_size),
        rope_(json, config_.head_dim),
        norm_(parameters / "model" / "norm", config_.hidden_size, config_.rms_norm_eps),
        lm_head_(config_.tie_word_embeddings
                     ? embed_tokens_.weight
                     : (parameters / "lm_head")
                           .get("weight", {config_.vocab_size, config_.hidden_size})) {
    const nn::AttentionShape attention = {.hidden = config_.hidden_size,
                                          .heads = config_.num_attention_heads,
                                          .kv_heads = config_.num_key_value_heads,
                                          .head_dim = config_.head_dim,
                                          .qkv_bias = config_.attention_bias,
                                          .output_bias = config_.attention_bias,
                                          .window = config_.sliding_window};
    for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
      layers_.emplace_back(parameters / "model" / "layers" / str(i), config_, attention,
                           config_.mlp_bias);
    }
    // GGUF stores the Llama 3.1 scaling as divisors of the frequencies.
    if (parameters.has("rope_freqs.weight")) {
      rope_.divide(parameters.get_f32("rope_freqs.weight", {config_.head_dim / 2}));
    }
  }

  nn::KvCacheShape cache_shape(int64_t batch, int64_t context) const override {
    return {config_.num_hidden_layers, batch, config_.num_key_value_heads, context,
            config_.head_dim};
  }
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t max_positions() const override { return config_.max_position_embeddings; }

  Tensor hidden(const Tensor& tokens, const Tensor& position, nn::KvCache* cache) const override {
    const nn::Pass pass = {position, rope_.table(position, tokens.dim(1)), &rope_, cache};
    Tensor x = embed_tokens_(tokens);
    for (size_t i = 0; i < layers_.size(); ++i) x = layers_[i](x, pass, static_cast<int64_t>(i));
    return x;
  }

  Tensor logits(const Tensor& hidden) const override {
    return ops::linear(norm_(hidden), lm_head_);
  }

 private:
  Config config_;
  nn::Embedding embed_tokens_;
  nn::Rope rope_;
  nn::RmsNorm norm_;
  Tensor lm_head_;
  std::vector<nn::DecoderLayer> layers_;
};

std::unique_ptr<CausalLm> make(const io::Json& config, const nn::Parameters& parameters) {
  return std::make_unique<Llama>(config, parameters);
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

}  // namespace

extern const ModelDef kLlama;
const ModelDef kLlama = {"llama", kModelTypes, make, tiny_configs};

}  // namespace lumen::models
