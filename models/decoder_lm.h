// The language model around a stack of decoder layers: embedding, layers, final norm, output head.
// Llama, Qwen2 and Qwen3 differ only in what their layers are, which they tell by a function.
#pragma once

#include <functional>
#include <vector>

#include "models/model.h"

namespace lumen::models {

class DecoderLm : public CausalLm {
 public:
  // `attention_of` gives the attention of each layer. Parameters: model.embed_tokens,
  // model.layers.N, model.norm, lm_head unless tied, and GGUF's rope_freqs if the file has it.
  DecoderLm(const io::Json& json, const nn::DecoderConfig& config, const nn::Parameters& parameters,
            const std::function<nn::AttentionShape(int64_t layer)>& attention_of,
            bool mlp_bias = false);

  nn::KvCacheShape cache_shape(int64_t batch, int64_t context) const override;
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t max_positions() const override { return config_.max_position_embeddings; }
  Tensor hidden(const Tensor& tokens, const Tensor& position, nn::KvCache* cache,
                const Training& training) const override;
  Tensor normalized(const Tensor& hidden) const override { return norm_(hidden); }
  const nn::Linear& head() const override { return lm_head_; }

 private:
  nn::DecoderConfig config_;
  nn::Embedding embed_tokens_;
  nn::Rope rope_;
  std::vector<nn::DecoderLayer> layers_;
  nn::RmsNorm norm_;
  nn::Linear lm_head_;
};

}  // namespace lumen::models
