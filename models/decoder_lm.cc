#include "models/decoder_lm.h"

#include "lib/nn/training_scope.h"

namespace lumen::models {

DecoderLm::DecoderLm(const io::Json& json, const nn::DecoderConfig& config,
                     const nn::Parameters& parameters,
                     const std::function<nn::AttentionShape(int64_t)>& attention_of, bool mlp_bias)
    : config_(config),
      embed_tokens_(parameters / "model" / "embed_tokens", config.vocab_size, config.hidden_size),
      rope_(json, config.head_dim),
      norm_(parameters / "model" / "norm", config.hidden_size, config.rms_norm_eps),
      lm_head_(config.tie_word_embeddings ? nn::Linear(embed_tokens_.weight)
                                          : nn::Linear(parameters / "lm_head", config.hidden_size,
                                                       config.vocab_size, false)) {
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    layers_.emplace_back(parameters / "model" / "layers" / str(i), config, attention_of(i),
                         mlp_bias);
  }
  // GGUF stores the Llama 3.1 scaling as divisors of the frequencies.
  if (parameters.has("rope_freqs.weight")) {
    rope_.divide(parameters.buffer("rope_freqs.weight", {config.head_dim / 2}, nn::Init::ones()));
  }
}

nn::KvCacheShape DecoderLm::cache_shape(int64_t batch, int64_t context) const {
  return {config_.num_hidden_layers, batch, config_.num_key_value_heads, context, config_.head_dim};
}

Tensor DecoderLm::hidden(const Tensor& tokens, const Tensor& position, nn::KvCache* cache,
                         const Training& training) const {
  // Rotary attention depends on distances only, so documents that begin later in a row need no
  // positions of their own.
  const nn::Pass pass = {position, rope_.table(position, tokens.dim(1)), &rope_, cache,
                         training.segments};
  Tensor x = nn::dropout(embed_tokens_(tokens), config_.dropout);
  for (size_t i = 0; i < layers_.size(); ++i) {
    x = run_layer(training.recompute, x, [this, i, pass](const Tensor& in) {
      return layers_[i](in, pass, static_cast<int64_t>(i));
    });
  }
  return x;
}

}  // namespace lumen::models
