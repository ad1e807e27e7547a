// The transformer block of Zamba2 (Glorioso et al. 2024, "The Zamba2 Suite"), whose weights several
// layers share.
#pragma once

#include <optional>

#include "lib/nn/gated_mlp.h"
#include "lib/nn/layers.h"

namespace lumen::nn {

struct AttentionShape;
struct Pass;
class SelfAttention;

struct SharedTransformerShape {
  int64_t hidden, intermediate;
  int64_t heads, kv_heads, head_dim;
  Activation activation;
  bool bias = false;                  // of the feed-forward layer
  double eps = 0;                     // of the norms
  double dropout = 0;                 // of the attention's weights, while training
  int64_t adapter_rank = 0;           // of the additions that a layer has of its own
  bool attention_adapters = false;    // to queries, keys and values, too
  int64_t number = 0;                 // among the layers that have such a block
  std::optional<Parameters> block{};  // where its weights are
  bool is_own = true;                 // they are below the layer itself
};

// linear(feed_forward(pre_ff_layernorm(self_attn(input_layernorm([x, e]))))) with e what was
// embedded, as Pass::layer_input: attention of heads of 2 · hidden numbers together, whose scores
// are divided by √(head_dim / 2). To what q_proj, k_proj, v_proj and gate_up_proj give the layer
// `number` adds B A of what they are given, linear_q_adapter_list.N.0 and 1 (A and B) and its like.
// Parameters: linear of the layer, the others of the block, which take no new additions.
class SharedTransformer {
 public:
  SharedTransformer(const Parameters& layer, const SharedTransformerShape& shape);
  // x [batch, tokens, hidden] → the same.
  Tensor operator()(const Tensor& x, const Pass& pass) const;

 private:
  int64_t number_;
  RmsNorm input_norm_, pre_ff_norm_;
  std::shared_ptr<const SelfAttention> attention_;
  GatedMlp feed_forward_;
  Linear linear_;
};

}  // namespace lumen::nn
