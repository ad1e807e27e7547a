// The language model around a stack of decoder layers: embedding, layers, final norm, output head.
// Llama, Qwen, Gemma and their like differ only in what their layers are and in some scales.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/nn/learned_positions.h"
#include "models/model.h"

namespace lumen::models {

// How the queries and keys of a layer are rotated.
enum class Rotation {
  kGlobal,  // as rope_theta and rope_scaling say
  kLocal,   // as DecoderShape::local_rope says
  kNone,
};

struct DecoderShape {
  std::function<nn::LayerShape(int64_t layer)> layer;
  std::function<Rotation(int64_t layer)> rotation = [](int64_t) { return Rotation::kGlobal; };
  io::Json local_rope = nullptr;  // a config of nn::Rope; null: no layer is Rotation::kLocal
  // Added to the embedding: a table of max_position_embeddings.
  struct Positions {
    std::string name;    // of the table
    int64_t offset = 0;  // as of nn::LearnedPositions
  };
  std::optional<Positions> positions{};
  // Of what is embedded, before the first layer.
  struct EmbeddingNorm {
    std::string name;  // in the model; not of kinds without weights
    nn::NormShape shape;
  };
  std::optional<EmbeddingNorm> embedding_norm{};
  nn::QueryTemperature temperature{};  // of layers with Rotation::kNone
  bool scales_rotated = false;         // of the others, too (Mistral 4)
  // How much of heads with Rotation::kGlobal and with kLocal rotates; 0: as the config says.
  int64_t rotary_dim = 0, local_rotary_dim = 0;
  std::optional<nn::PerLayerEmbeddingShape> layer_embedding{};
  std::optional<nn::AltUpShape> altup{};  // of all layers, which are between its ends
  // Of each layer, the one that it attends to keys and values of; empty: all have their own.
  std::vector<int64_t> keys_of{};
  double embedding_scale = 1;  // what the rows of the embedding are multiplied by
  double logit_scale = 1;      // what the logits are multiplied by
  double logit_cap = 0;        // as of CausalLm
  std::string norm = "norm";   // the name of the final norm
  bool head_bias = false;
};

// Attention, feed-forward layer and norms of a plain Llama of this config, for models to change.
nn::LayerShape plain_layer(const nn::DecoderConfig& config);
// A feed-forward layer without a gate, of hidden_act, with biases if `bias` says so.
nn::PlainMlpShape plain_mlp(const nn::DecoderConfig& config, bool bias);
// For ModelDef::tiny_configs: `keys`, and where they say nothing else 2 layers, 32 wide, of 4
// heads, 2 of them of keys; 37 tokens, contexts of 64.
io::Json small_config(std::string_view model_type, const io::Json& keys);

// Throws Error(kUnsupported) for another hidden_act than silu, which such parts of a model have.
void require_silu(const io::Json& json, std::string_view part);
// The latent attention of a config with kv_lora_rank and so on; scores are divided by the root of
// the size of a query.
nn::LatentAttentionShape latent_attention_of(const io::Json& json, const nn::DecoderConfig& config);
// The experts of such a model, as many as the key `count` says, of which num_experts_per_tok are
// used, each of intermediate_size. Throws Error(kUnsupported) for another activation than silu.
nn::SparseMlpShape experts_of(const io::Json& json, const nn::DecoderConfig& config,
                              const char* count);
// The same of Mixtral's: num_local_experts, whose weights add up to 1, with its names.
nn::SparseMlpShape mixtral_experts_of(const io::Json& json, const nn::DecoderConfig& config);
// The same of the keys of Qwen's mixtures: num_experts, moe_intermediate_size, norm_topk_prob.
nn::SparseMlpShape qwen_experts_of(const io::Json& json, const nn::DecoderConfig& config);
// The same with the expert that all tokens go through, of shared_expert_intermediate_size.
nn::SparseMlpShape shared_experts_of(const io::Json& json, const nn::DecoderConfig& config);
// Puts beside such experts `count` ones, of their size, that all tokens go through unweighted:
// shared_experts (DeepSeek, ERNIE).
void add_shared_experts(int64_t count, nn::SparseMlpShape& experts);
// Those of DeepSeek's: num_experts, moe_intermediate_size and n_shared_experts of that size that
// all tokens go through, without a router. The chosen are by n_group, topk_group and, unless
// model_type is deepseek_v2 or mistral4, by sigmoids with a correction. Throws Error(kMalformed)
// for groups that do not fit and Error(kUnsupported) for what transformers disregards.
nn::SparseMlpShape grouped_experts_of(const io::Json& json, const nn::DecoderConfig& config);
// How such experts are chosen, of which `experts` tells the rest. Throws likewise.
nn::ExpertChoice grouped_choice(const io::Json& json, const nn::SparseMlpShape& experts);
// DecoderShape::layer of layers that are like those of `dense`, but those of io::sparse_layers with
// these experts in place of their mlp.
std::function<nn::LayerShape(int64_t)> with_experts(const io::Json& json,
                                                    std::function<nn::LayerShape(int64_t)> dense,
                                                    const nn::SparseMlpShape& experts);
// √hidden_size, what Gemma multiplies the rows of the embedding by. A table of bfloat16 was trained
// with the root rounded to it.
double embedding_root(const nn::DecoderConfig& config, const nn::Parameters& parameters);
// The embeddings that every layer has of its own, of hidden_size_per_layer_input numbers and
// vocab_size_per_layer_input rows (Gemma 3n and 4).
nn::PerLayerEmbeddingShape per_layer_embedding_of(const io::Json& json,
                                                  const nn::DecoderConfig& config);
// DecoderShape::keys_of of layers with these windows: of the last num_kv_shared_layers each attends
// to keys and values of the last before them that has the same window. Throws Error(kMalformed)
// where there is none.
std::vector<int64_t> shared_keys_of(const io::Json& json, const std::vector<int64_t>& windows);
// The cap (ops::soft_cap) that a config names; null is none, 0.
double soft_cap(const io::Json& json, const char* key);
// AttentionShape::clip of a config with clip_qkv (OLMo, OLMoE).
double clip_of(const io::Json& json);
// DecoderShape::layer of layers that are all like `shape`, but each with its own of `windows`
// (io::layer_windows), and DecoderShape::rotation of those of which the windowed ones rotate
// locally.
std::function<nn::LayerShape(int64_t)> with_windows(const nn::LayerShape& shape,
                                                    std::vector<int64_t> windows);
std::function<Rotation(int64_t)> local_if_windowed(std::vector<int64_t> windows);
// DecoderShape::layer of Qwen3-Next and Qwen3.5, without experts: those of
// io::linear_attention_layers have Gated DeltaNet in place of attention; that of the others has
// norms of heads and a gate of its output, which q_proj gives beside the queries. The weights of
// norms, but that of the DeltaNet, are stored less rms_norm_offset, of 1. Throws
// Error(kUnsupported) for another activation than silu and Error(kMalformed) for heads that do not
// fit.
std::function<nn::LayerShape(int64_t)> delta_net_layers(const io::Json& json,
                                                        const nn::DecoderConfig& config);
// The Gated DeltaNet of a config with linear_num_key_heads and so on. Throws likewise.
nn::GatedDeltaNetShape delta_net_of(const io::Json& json, const nn::DecoderConfig& config);
// A small config of such models, without model_type and experts: two layers, one of each kind.
io::Json tiny_delta_net_config();

class DecoderLm : public CausalLm {
 public:
  // New weights start as the config's initializer_range says. Parameters: model.embed_tokens,
  // learned positions, a norm of what is embedded, model.layers.N, the final norm, lm_head unless
  // tied (its bias, if it has one, always), and of GGUF's rope_freqs, rope_factors_short and
  // rope_factors_long those that the file has.
  DecoderLm(const io::Json& json, const nn::DecoderConfig& config, const nn::Parameters& parameters,
            const DecoderShape& shape);

  nn::KvCacheShape cache_shape(int64_t batch, int64_t context) const override;
  int64_t vocab_size() const override { return config_.vocab_size; }
  int64_t max_positions() const override { return config_.max_position_embeddings; }
  bool keeps_positions() const override { return recurrent_.layers == 0; }
  bool keeps_several() const override { return true; }
  bool set_context(int64_t context) override { return rope_.set_context(context); }
  Tensor hidden(const Tensor& tokens, const Tensor& position, nn::KvCache* cache,
                const Training& training) const override {
    return run_all(tokens, position, cache, training, tokens.dim(1));
  }
  Tensor last_hidden(const Tensor& tokens, const Tensor& position, nn::KvCache& cache,
                     int64_t count) const override {
    return run_all(tokens, position, &cache, {}, count);
  }
  Tensor normalized(const Tensor& hidden) const override;
  const nn::Linear& head() const override { return lm_head_; }
  int64_t used_experts() const override { return used_experts_; }
  double logit_cap() const override { return logit_cap_; }

 private:
  Tensor run_all(const Tensor& tokens, const Tensor& position, nn::KvCache* cache,
                 const Training& training, int64_t asked) const;
  // `kept`: keys and values of each layer that others attend to.
  Tensor run(size_t layer, const Tensor& x, const nn::Pass& pass, const Training& training,
             std::vector<nn::KeysAndValues>& kept) const;

  nn::DecoderConfig config_;
  double embedding_scale_, logit_scale_, logit_cap_;
  int64_t used_experts_ = 0;
  nn::Embedding embed_tokens_;
  std::optional<nn::LearnedPositions> positions_;
  std::optional<nn::Norm> embedding_norm_;
  nn::QueryTemperature temperature_;
  bool scales_rotated_;
  nn::Rope rope_;
  std::optional<nn::Rope> local_rope_;
  std::optional<nn::PerLayerEmbedding> layer_embedding_;
  std::optional<nn::AltUpEnds> altup_;
  std::vector<nn::DecoderLayer> layers_;
  std::vector<Rotation> rotations_;             // of each layer
  std::vector<int64_t> numbers_;                // of each layer among those of its kind
  std::vector<nn::KvCacheShape::Heads> heads_;  // of each layer with keys and values
  std::vector<size_t> keys_of_;                 // of each layer, itself or another
  std::vector<bool> is_borrowed_;               // others attend to what it keeps
  bool sees_embedding_ = false;                 // layers see what was embedded
  int64_t chunk_ = 0;                           // of the layers that attend to chunks; 0: none does
  size_t last_to_keep_ = 0;  // the last layer that has keys and values, or a state, of its own
  nn::KvCacheShape::Recurrent recurrent_;
  int64_t latent_dim_ = 0;  // of layers with latent attention, which all that attend have or none
  nn::Norm norm_;
  nn::Linear lm_head_;
};

}  // namespace lumen::models
