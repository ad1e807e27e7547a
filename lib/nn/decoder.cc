#include "lib/nn/decoder.h"

#include <algorithm>
#include <cmath>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/base/strings.h"
#include "lib/nn/training_scope.h"

namespace lumen::nn {
namespace {

int64_t size(const io::Json& config, const char* key, int64_t most) {
  return io::get_int(config, key, 1, most);
}

// partial_rotary_factor of head_dim, which may have been the quotient of the two.
int64_t rotating_part(const io::Json& config, int64_t head_dim) {
  const double factor = io::get_number(config, "partial_rotary_factor", 0, 1, 1);
  return static_cast<int64_t>(static_cast<double>(head_dim) * factor + 1e-6);
}

Activation gate_activation(const io::Json& config) {
  const std::vector<std::string> known = {"silu", "swish", "gelu", "gelu_pytorch_tanh", "gelu_new"};
  const std::string name = io::get_string(config, "hidden_act", known[0]);
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    fail(ErrorKind::kUnsupported, "hidden_act ", quoted(name),
         " is not supported; known: ", join(known, ", "));
  }
  return Activation(name);
}

std::vector<Linear> projections(const Parameters& parameters, const AttentionShape& s) {
  const int64_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  std::vector<Linear> result;
  if (s.fused) {
    result.emplace_back(parameters / "qkv_proj", s.hidden, q + 2 * kv, s.qkv_bias);
    return result;
  }
  result.emplace_back(parameters / "q_proj", s.hidden, q, s.qkv_bias);
  result.emplace_back(parameters / "k_proj", s.hidden, kv, s.qkv_bias);
  result.emplace_back(parameters / "v_proj", s.hidden, kv, s.qkv_bias);
  return result;
}

std::vector<Linear> gate_and_up(const Parameters& parameters, const GatedMlpShape& s) {
  std::vector<Linear> result;
  if (s.fused) {
    result.emplace_back(parameters / "gate_up_proj", s.hidden, 2 * s.intermediate, s.bias);
    return result;
  }
  result.emplace_back(parameters / "gate_proj", s.hidden, s.intermediate, s.bias);
  result.emplace_back(parameters / "up_proj", s.hidden, s.intermediate, s.bias);
  return result;
}

// The values of all layers for x, in parts of these widths along the last axis: a layer gives one
// part, or, if it is the only one, all of them.
std::vector<Tensor> parts_of(const std::vector<Linear>& layers, const Tensor& x,
                             std::span<const int64_t> widths) {
  std::vector<Tensor> parts;
  if (layers.size() > 1) {
    for (const Linear& layer : layers) parts.push_back(layer(x));
    return parts;
  }
  const Tensor whole = layers[0](x);
  int64_t column = 0;
  for (const int64_t width : widths) {
    parts.push_back(graph::slice(whole, -1, column, column + width));
    column += width;
  }
  return parts;
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
      rotary_dim(rotating_part(config, head_dim)),
      vocab_size(size(config, "vocab_size", limits::kVocab)),
      max_position_embeddings(
          io::get_int(config, "max_position_embeddings", 1, limits::kContext, 2048)),
      rms_norm_eps(io::get_number(config, "rms_norm_eps", 0, 1)),
      initializer_range(io::get_number(config, "initializer_range", 0, 100, 0.02)),
      tie_word_embeddings(io::get_bool(config, "tie_word_embeddings", false)),
      attention_bias(io::get_bool(config, "attention_bias", false)),
      sliding_window(io::get_int(config, "sliding_window", 0, limits::kContext, 0)),
      hidden_act(gate_activation(config)),
      dropout(io::get_number(config, "hidden_dropout", 0, 1, 0)),
      attention_dropout(io::get_number(config, "attention_dropout", 0, 1, 0)) {
  if (num_attention_heads % num_key_value_heads != 0) {
    fail(ErrorKind::kMalformed, "num_attention_heads ", num_attention_heads,
         " is not a multiple of num_key_value_heads ", num_key_value_heads);
  }
  if (rotary_dim % 2 != 0 || rotary_dim == 0) {
    fail(ErrorKind::kMalformed, "of head_dim ", head_dim, " numbers ", rotary_dim,
         " rotate: expected a positive even number, as they rotate in pairs");
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
      qkv_(projections(parameters, shape)),
      o_proj_(parameters / "o_proj", shape.heads * shape.head_dim, shape.hidden,
              shape.output_bias) {
  if (shape.sinks) sinks_ = parameters.get_f32("sinks", {shape.heads});
  if (shape.qk_norm == QkNorm::kNone) return;
  const bool whole = shape.qk_norm == QkNorm::kWhole;
  auto norm = [&](const char* name, int64_t heads) {
    return RmsNorm(parameters / name, (whole ? heads : 1) * shape.head_dim, shape.norm_eps,
                   shape.norm_offset);
  };
  q_norm_ = norm("q_norm", shape.heads);
  k_norm_ = norm("k_norm", shape.kv_heads);
}

Tensor SelfAttention::operator()(const Tensor& x, const Pass& pass, int64_t layer) const {
  const int64_t batch = x.dim(0), tokens = x.dim(1), dim = shape_.head_dim;
  const int64_t widths[] = {shape_.heads * dim, shape_.kv_heads * dim, shape_.kv_heads * dim};
  const std::vector<Tensor> qkv = parts_of(qkv_, x, widths);
  auto in_heads = [&](Tensor projected, int64_t count, const std::optional<RmsNorm>& norm) {
    if (norm && shape_.qk_norm == QkNorm::kWhole) projected = (*norm)(projected);
    const Tensor heads = graph::reshape(projected, {batch, tokens, count, dim});
    return norm && shape_.qk_norm == QkNorm::kHeads ? (*norm)(heads) : heads;
  };
  Tensor q = in_heads(qkv[0], shape_.heads, q_norm_);
  Tensor k = in_heads(qkv[1], shape_.kv_heads, k_norm_);
  Tensor v = in_heads(qkv[2], shape_.kv_heads, {});
  if (pass.rope != nullptr) {
    q = ops::rope(q, pass.rope_table, pass.rope->interleaved);
    k = ops::rope(k, pass.rope_table, pass.rope->interleaved);
  }
  add_to_cache(pass, layer, k, v);
  const ops::AttentionOptions options = {
      .scale = shape_.scale.value_or(1 / std::sqrt(static_cast<double>(dim))),
      .cap = shape_.cap,
      .causal = true,
      .window = shape_.window,
      .segments = pass.segments,
      .sinks = sinks_,
      .slots = pass.slots(),
      .dropout = attention_dropout(shape_.dropout),
      .bf16 = rounds_activations(o_proj_.weight.dtype())};
  const Tensor out = ops::attention(q, k, v, pass.position, options);
  return o_proj_(graph::reshape(out, {batch, tokens, shape_.heads * dim}));
}

GatedMlp::GatedMlp(const Parameters& parameters, const GatedMlpShape& shape)
    : shape_(shape),
      gate_up_(gate_and_up(parameters, shape)),
      down_proj_(parameters / "down_proj", shape.intermediate, shape.hidden, shape.bias) {}

Tensor GatedMlp::operator()(const Tensor& x) const {
  const int64_t widths[] = {shape_.intermediate, shape_.intermediate};
  const std::vector<Tensor> parts = parts_of(gate_up_, x, widths);
  return down_proj_(ops::mul(shape_.activation(parts[0]), parts[1]));
}

namespace {

std::variant<GatedMlp, SparseMlp> feed_forward(const Parameters& parameters,
                                               const LayerShape& shape) {
  if (shape.experts) return SparseMlp(parameters / shape.experts->name, *shape.experts);
  return GatedMlp(parameters / "mlp", shape.mlp);
}

}  // namespace

DecoderLayer::DecoderLayer(const Parameters& parameters, const LayerShape& shape)
    : shape_(shape),
      self_attn_(parameters / "self_attn", shape.attention),
      mlp_(feed_forward(parameters, shape)) {
  auto norm = [&](const char* name) {
    return RmsNorm(parameters / name, shape.attention.hidden, shape.norm_eps, shape.norm_offset);
  };
  const NormPlacement norms = shape.norms;
  if (norms != NormPlacement::kAfter) {
    before_attention_ = norm("input_layernorm");
    before_mlp_ = norm(norms == NormPlacement::kBefore ? "post_attention_layernorm"
                                                       : "pre_feedforward_layernorm");
  }
  if (norms != NormPlacement::kBefore) {
    after_attention_ = norm("post_attention_layernorm");
    after_mlp_ = norm("post_feedforward_layernorm");
  }
}

Tensor DecoderLayer::added(const Tensor& x, Tensor branch,
                           const std::optional<RmsNorm>& norm) const {
  if (norm) branch = (*norm)(branch);
  if (shape_.residual_scale != 1) {
    branch = ops::mul(branch, graph::scalar(static_cast<float>(shape_.residual_scale)));
  }
  return ops::add(dropout(branch, shape_.dropout), x);
}

Tensor DecoderLayer::operator()(const Tensor& x, const Pass& pass, int64_t layer) const {
  const Tensor attention = self_attn_(before_attention_ ? (*before_attention_)(x) : x, pass, layer);
  const Tensor attended = added(x, attention, after_attention_);
  const Tensor normed = before_mlp_ ? (*before_mlp_)(attended) : attended;
  const auto* const sparse = std::get_if<SparseMlp>(&mlp_);
  const Tensor mlp =
      sparse != nullptr ? (*sparse)(normed, pass.router_logits) : std::get<GatedMlp>(mlp_)(normed);
  return added(attended, mlp, after_mlp_);
}

}  // namespace lumen::nn
