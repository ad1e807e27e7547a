// The parts of a pre-norm decoder with grouped-query attention, rotary positions and a SwiGLU
// feed-forward layer. Models choose biases, query-key norms and windows.
#pragma once

#include <optional>

#include "lib/io/json.h"
#include "lib/nn/kv_cache.h"
#include "lib/nn/layers.h"
#include "lib/nn/rope.h"

namespace lumen::nn {

// The config.json keys that decoders share; fields are named as the keys.
struct DecoderConfig {
  // Throws Error(kMalformed) for missing or contradictory values (heads not divisible by kv_heads,
  // odd head_dim) and Error(kUnsupported) for a hidden_act other than silu.
  explicit DecoderConfig(const io::Json& config);

  int64_t hidden_size, intermediate_size, num_hidden_layers;
  int64_t num_attention_heads, num_key_value_heads, head_dim;
  int64_t vocab_size, max_position_embeddings;
  double rms_norm_eps;
  double initializer_range;  // deviation of new weights
  bool tie_word_embeddings;
  int64_t sliding_window;    // 0: none
  double dropout;            // "hidden_dropout": of what layers add, while training
  double attention_dropout;  // of the attention's weights, while training
};

// What all layers of one forward pass share.
struct Pass {
  Tensor position;    // int32 [1] or [batch]: of the first token; 0 without a cache
  Tensor rope_table;  // of Rope::table
  const Rope* rope;
  KvCache* cache = nullptr;  // null: attend among the given tokens only
  Tensor segments;           // int32 [batch, tokens]: documents of a packed row; may be undefined

  // The cache rows that the batch uses; undefined: its own.
  Tensor slots() const { return cache ? cache->slots() : Tensor(); }
};

// Appends k and v [batch, tokens, kv_heads, head_dim] to the cache of `layer` and replaces them by
// what attention reads, [batch, kv_heads, positions, head_dim]; without a cache, the given tokens.
void add_to_cache(const Pass& pass, int64_t layer, Tensor& k, Tensor& v);

struct AttentionShape {
  int64_t hidden, heads, kv_heads, head_dim;
  bool qkv_bias = false, output_bias = false;
  std::optional<double> qk_norm_eps{};  // RMSNorm of each query and key head before rotation
  int64_t window = 0;
  double dropout = 0;  // of the weights, while training
};

// Grouped-query self-attention (Ainslie et al. 2023): q_proj, k_proj, v_proj, o_proj and, with
// qk_norm_eps, q_norm and k_norm. x [batch, tokens, hidden] → the same.
class SelfAttention {
 public:
  SelfAttention(const Parameters& parameters, const AttentionShape& shape);
  Tensor operator()(const Tensor& x, const Pass& pass, int64_t layer) const;

 private:
  AttentionShape shape_;
  Linear q_proj_, k_proj_, v_proj_, o_proj_;
  std::optional<RmsNorm> q_norm_, k_norm_;
};

// down_proj(silu(gate_proj(x)) · up_proj(x)) (Shazeer 2020).
class SwiGlu {
 public:
  SwiGlu(const Parameters& parameters, int64_t hidden, int64_t intermediate, bool bias = false);
  Tensor operator()(const Tensor& x) const;

 private:
  Linear gate_proj_, up_proj_, down_proj_;
};

// x + self_attn(norm(x)), then x + mlp(norm(x)).
class DecoderLayer {
 public:
  DecoderLayer(const Parameters& parameters, const DecoderConfig& config,
               const AttentionShape& attention, bool mlp_bias = false);
  Tensor operator()(const Tensor& x, const Pass& pass, int64_t layer) const;

 private:
  RmsNorm input_layernorm_;
  SelfAttention self_attn_;
  RmsNorm post_attention_layernorm_;
  SwiGlu mlp_;
  double dropout_;
};

}  // namespace lumen::nn
