// Qwen2 and Qwen2.5 (Yang et al. 2024, "Qwen2 Technical Report").
//
// Loads Qwen2 and Qwen2.5 in all dense sizes. Differs from plain Llama by biases on the query, key
// and value projections (not on the output), a rotary base of 10^6, and an optional sliding window
// on the upper layers; small sizes tie the output head to the embedding.
#include "models/model.h"

namespace lumen::models {
namespace {

struct Config : nn::DecoderConfig {
  explicit Config(const io::Json& config)
      : DecoderConfig(config),
        max_window_layers(io::get_int(config, "max_window_layers", 0, limits::kLayers, 0)) {}

  // Layers from max_window_layers on see only the sliding window, if use_sliding_window says so.
  int64_t window(int64_t layer) const { return layer >= max_window_layers ? sliding_window : 0; }

  int64_t max_window_layers;
};

class Qwen2 : public CausalLm {
 public:
  Qwen2(const io::Json& json, const nn::Parameters& parameters)
      : config_(json),
        embed_tokens_(parameters / "model" / "embed_tokens", config_.vocab_size,
                      config_.hidden_size),
        rope_(json, config_.head_dim),
        norm_(parameters / "model" / "norm", config_.hidden_size, config_.rms_norm_eps),
        lm_head_(config_.tie_word_embeddings
                     ? embed_tokens_.weight
                     : (parameters / "lm_head")
                           .get("weight", {config_.vocab_size, config_.hidden_size})) {
    for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
      const nn::AttentionShape attention = {.hidden = config_.hidden_size,
                                            .heads = config_.num_attention_heads,
                                            .kv_heads = config_.num_key_value_heads,
                                            .head_dim = config_.head_dim,
                                            .qkv_bias = true,
                                            .window = config_.window(i)};
      layers_.emplace_back(parameters / "model" / "layers" / str(i), config_, attention);
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
  return std::make_unique<Qwen2>(config, parameters);
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = {{"model_type", "qwen2"},      {"hidden_size", 28},
                         {"intermediate_size", 40},    {"num_hidden_layers", 2},
                         {"num_attention_heads", 7},   {"num_key_value_heads", 1},
                         {"vocab_size", 41},           {"max_position_embeddings", 64},
                         {"rms_norm_eps", 1e-6},       {"rope_theta", 1e6},
                         {"tie_word_embeddings", true}};
  io::Json windowed = base;
  windowed["sliding_window"] = 3;
  windowed["max_window_layers"] = 1;
  windowed["tie_word_embeddings"] = false;
  return {base, windowed};
}

constexpr std::string_view kModelTypes[] = {"qwen2"};

}  // namespace

extern const ModelDef kQwen2;
const ModelDef kQwen2 = {"qwen2", kModelTypes, make, tiny_configs};

}  // namespace lumen::models
