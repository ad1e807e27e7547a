#include "lib/nn/decoder.h"

#include <cmath>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/nn/training_scope.h"

namespace lumen::nn {
namespace {

int64_t size(const io::Json& config, const char* key, int64_t most) {
  return io::get_int(config, key, 1, most);
}

}  // namespace

DecoderConfig::DecoderConfig(const io::Json& config)
    : hidden_size(size(config, "hidden_size", limits::kDim)),
      intermediate_size(size(config, "intermediate_size", limits::kDim)),
      num_hidden_layers(size(config, "num_hidden_layers", limits::kLayers)),
      num_attention_heads(size(config, "num_attention_heads", limits::kHeads)),
      num_key_value_heads(
          io::get_int(config, "num_key_value_heads", 1, limits::kHeads, num_attention_heads)),
      head_dim(io::get_int(config, "head_dim", 1, limits::kDim,
                           std::max<int64_t>(1, hidden_size / num_attention_heads))),
      vocab_size(size(config, "vocab_size", limits::kVocab)),
      max_position_embeddings(
          io::get_int(config, "max_position_embeddings", 1, limits::kContext, 2048)),
      rms_norm_eps(io::get_number(config, "rms_norm_eps", 0, 1)),
      initializer_range(io::get_number(config, "initializer_range", 0, 100, 0.02)),
      tie_word_embeddings(io::get_bool(config, "tie_word_embeddings", false)),
      sliding_window(io::get_int(config, "sliding_window", 0, limits::kContext, 0)),
      dropout(io::get_number(config, "hidden_dropout", 0, 1, 0)),
      attention_dropout(io::get_number(config, "attention_dropout", 0, 1, 0)) {
  if (num_attention_heads % num_key_value_heads != 0) {
    fail(ErrorKind::kMalformed, "num_attention_heads ", num_attention_heads,
         " is not a multiple of num_key_value_heads ", num_key_value_heads);
  }
  if (head_dim % 2 != 0) {
    fail(ErrorKind::kMalformed, "head_dim ", head_dim, " is odd: it cannot be rotated in pairs");
  }
  const std::string activation = io::get_string(config, "hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    fail(ErrorKind::kUnsupported, "hidden_act ", quoted(activation),
         " is not supported; known: silu");
  }
}

// Whether products with these weights round activations to bfloat16 where that is fast
// (kernels/matmul.h).
bool rounds_activations(DType weights) {
  return weights == DType::kBF16 || is_quantized(weights);
}

void add_to_cache(const Pass& pass, int64_t layer, Tensor& k, Tensor& v) {
  if (pass.cache) {
    k = ops::kv_append(pass.cache->k(layer), k, pass.position, pass.slots());
    v = ops::kv_append(pass.cache->v(layer), v, pass.position, pass.slots());
  } else {
    k = graph::permute(k, {0, 2, 1, 3});
    v = graph::permute(v, {0, 2, 1, 3});
  }
}

SelfAttention::SelfAttention(const Parameters& parameters, const AttentionShape& shape)
    : shape_(shape),
      q_proj_(parameters / "q_proj", shape.hidden, shape.heads * shape.head_dim, shape.qkv_bias),
      k_proj_(parameters / "k_proj", shape.hidden, shape.kv_heads * shape.head_dim, shape.qkv_bias),
      v_proj_(parameters / "v_proj", shape.hidden, shape.kv_heads * shape.head_dim, shape.qkv_bias),
      o_proj_(parameters / "o_proj", shape.heads * shape.head_dim, shape.hidden,
              shape.output_bias) {
  if (shape.qk_norm_eps) {
    q_norm_.emplace(parameters / "q_norm", shape.head_dim, *shape.qk_norm_eps);
    k_norm_.emplace(parameters / "k_norm", shape.head_dim, *shape.qk_norm_eps);
  }
}

Tensor SelfAttention::operator()(const Tensor& x, const Pass& pass, int64_t layer) const {
  const int64_t batch = x.dim(0), tokens = x.dim(1);
  auto heads = [&](const Tensor& projected, int64_t count) {
    return graph::reshape(projected, {batch, tokens, count, shape_.head_dim});
  };
  Tensor q = heads(q_proj_(x), shape_.heads);
  Tensor k = heads(k_proj_(x), shape_.kv_heads);
  Tensor v = heads(v_proj_(x), shape_.kv_heads);
  if (q_norm_) q = (*q_norm_)(q), k = (*k_norm_)(k);
  q = ops::rope(q, pass.rope_table, pass.rope->interleaved);
  k = ops::rope(k, pass.rope_table, pass.rope->interleaved);
  add_to_cache(pass, layer, k, v);
  const ops::AttentionOptions options = {
      .scale = 1 / std::sqrt(static_cast<double>(shape_.head_dim)),
      .causal = true,
      .window = shape_.window,
      .segments = pass.segments,
      .slots = pass.slots(),
      .dropout = attention_dropout(shape_.dropout),
      .bf16 = rounds_activations(o_proj_.weight.dtype())};
  const Tensor out = ops::attention(q, k, v, pass.position, options);
  return o_proj_(graph::reshape(out, {batch, tokens, shape_.heads * shape_.head_dim}));
}

SwiGlu::SwiGlu(const Parameters& parameters, int64_t hidden, int64_t intermediate, bool bias)
    : gate_proj_(parameters / "gate_proj", hidden, intermediate, bias),
      up_proj_(parameters / "up_proj", hidden, intermediate, bias),
      down_proj_(parameters / "down_proj", intermediate, hidden, bias) {}

Tensor SwiGlu::operator()(const Tensor& x) const {
  return down_proj_(ops::mul(ops::silu(gate_proj_(x)), up_proj_(x)));
}

DecoderLayer::DecoderLayer(const Parameters& parameters, const DecoderConfig& config,
                           const AttentionShape& attention, bool mlp_bias)
    : input_layernorm_(parameters / "input_layernorm", config.hidden_size, config.rms_norm_eps),
      self_attn_(parameters / "self_attn", attention),
      post_attention_layernorm_(parameters / "post_attention_layernorm", config.hidden_size,
                                config.rms_norm_eps),
      mlp_(parameters / "mlp", config.hidden_size, config.intermediate_size, mlp_bias),
      dropout_(config.dropout) {}

Tensor DecoderLayer::operator()(const Tensor& x, const Pass& pass, int64_t layer) const {
  const Tensor added = dropout(self_attn_(input_layernorm_(x), pass, layer), dropout_);
  const Tensor attended = ops::add(added, x);
  return ops::add(dropout(mlp_(post_attention_layernorm_(attended)), dropout_), attended);
}

}  // namespace lumen::nn
