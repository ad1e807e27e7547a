#include "lib/nn/shared_transformer.h"

#include <cmath>

#include "lib/nn/decoder.h"

namespace lumen::nn {
namespace {

Parameters block_of(const SharedTransformerShape& shape) {
  return shape.block->without_additions();
}

AttentionShape attention_of(const SharedTransformerShape& s) {
  AttentionShape shape = {
      .hidden = s.hidden, .heads = s.heads, .kv_heads = s.kv_heads, .head_dim = s.head_dim};
  shape.given = 2 * s.hidden;
  shape.scale = 1 / std::sqrt(static_cast<double>(s.head_dim) / 2);
  shape.dropout = s.dropout;
  if (s.attention_adapters) shape.own_addition = {s.number, s.adapter_rank};
  return shape;
}

GatedMlpShape mlp_of(const SharedTransformerShape& s) {
  GatedMlpShape shape = {.hidden = s.hidden,
                         .intermediate = s.intermediate,
                         .activation = s.activation,
                         .bias = s.bias,
                         .fused = true};
  shape.own_addition = {s.number, s.adapter_rank};
  return shape;
}

}  // namespace

SharedTransformer::SharedTransformer(const Parameters& layer, const SharedTransformerShape& shape)
    : number_(shape.number),
      input_norm_(block_of(shape) / "input_layernorm", 2 * shape.hidden, shape.eps),
      pre_ff_norm_(block_of(shape) / "pre_ff_layernorm", shape.hidden, shape.eps),
      attention_(
          std::make_shared<SelfAttention>(block_of(shape) / "self_attn", attention_of(shape))),
      feed_forward_(block_of(shape) / "feed_forward", mlp_of(shape)),
      linear_(layer / "linear", shape.hidden, shape.hidden, false) {
  // Files may have the weights of others again.
  if (!shape.is_own) layer.leave_out("shared_transformer");
}

Tensor SharedTransformer::operator()(const Tensor& x, const Pass& pass) const {
  const Tensor both[] = {x, pass.layer_input};
  Pass whole = pass;  // what all tokens are given is what the mixer behind needs, too
  whole.asked = 0;
  whole.query_table = pass.rope_table;
  const Tensor attended = (*attention_)(input_norm_(ops::concat(both, 2)), whole, number_);
  return linear_(feed_forward_(pre_ff_norm_(attended)));
}

}  // namespace lumen::nn
