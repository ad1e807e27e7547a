#include "lib/nn/decoder.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

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
  const std::vector<std::string> known = {"silu",     "swish",     "gelu", "gelu_pytorch_tanh",
                                          "gelu_new", "gelu_fast", "relu", "relu2"};
  const std::string name = io::get_string(config, "hidden_act", known[0]);
  // That of Apertus has parameters, so that it is none: its layers ask for an nn::Xielu.
  if (name == "xielu" && io::get_string(config, "model_type", "") == "apertus") {
    return Activation("identity");
  }
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    fail(ErrorKind::kUnsupported, "hidden_act ", quoted(name),
         " is not supported; known: ", join(known, ", "));
  }
  return Activation(name);
}

std::vector<Linear> projections(const Parameters& parameters, const AttentionShape& s) {
  const int64_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  const int64_t given = s.given > 0 ? s.given : s.hidden;
  std::vector<Linear> result;
  if (s.fused) {
    result.emplace_back(parameters / s.fused_name, s.hidden, q + 2 * kv, s.qkv_bias);
    return result;
  }
  result.emplace_back(parameters / "q_proj", given, (s.gated ? 2 : 1) * q, s.qkv_bias);
  if (s.borrows) {
    for (const char* name : {"k_proj", "v_proj", "k_norm"}) parameters.leave_out(name);
    return result;
  }
  result.emplace_back(parameters / "k_proj", given, kv, s.qkv_bias);
  if (!s.values_of_keys) result.emplace_back(parameters / "v_proj", given, kv, s.qkv_bias);
  if (s.own_addition) {
    constexpr const char* kNames[] = {"linear_q_adapter_list", "linear_k_adapter_list",
                                      "linear_v_adapter_list"};
    for (size_t i = 0; i < result.size(); ++i) {
      give_own_addition(parameters, kNames[i], *s.own_addition, result[i]);
    }
  }
  return result;
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

Tensor chunks_of(const Tensor& positions, int64_t chunk) {
  const Tensor at = graph::contiguous(positions, DType::kF32);
  const Tensor begins = ops::equal(ops::mod(at, static_cast<double>(chunk)), graph::scalar(0));
  return graph::contiguous(ops::cumsum(begins, 1), DType::kI32);
}

Tensor last_tokens(const Tensor& x, int64_t count) {
  const int64_t tokens = x.dim(1);
  return count == tokens ? x : graph::slice(x, 1, tokens - count, tokens);
}

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
      o_proj_(parameters / shape.output, shape.heads * shape.head_dim, shape.hidden,
              shape.output_bias) {
  if (!shape.gate.empty()) {
    const int64_t each = shape.gates_heads ? 1 : shape.head_dim;
    gate_.emplace(parameters / shape.gate, shape.hidden, shape.heads * each, false);
  }
  if (!shape.output_norm.empty()) {
    output_norm_.emplace(parameters / shape.output_norm, shape.heads * shape.head_dim, shape.norm);
  }
  if (shape.sinks) sinks_ = parameters.get_f32("sinks", {shape.heads});
  if (shape.qk_norm == QkNorm::kNone) return;
  const auto norm = [&](const std::string& name, int64_t heads) -> Norm {
    const Parameters place = parameters / name;
    if (shape.qk_norm == QkNorm::kEachHead) {
      return HeadsLayerNorm(place, heads, shape.head_dim, shape.norm.eps);
    }
    const bool whole = shape.qk_norm == QkNorm::kWhole;
    return Norm(place, (whole ? heads : 1) * shape.head_dim, shape.norm);
  };
  q_norm_ = norm(shape.q_norm, shape.heads);
  if (!shape.borrows) k_norm_ = norm(shape.k_norm, shape.kv_heads);
}

Tensor SelfAttention::operator()(const Tensor& given, const Pass& pass, int64_t layer) const {
  const Tensor x = scaled(given, shape_.in_scale);
  const int64_t batch = x.dim(0), tokens = x.dim(1), dim = shape_.head_dim;
  const int64_t asked = pass.going_on(x);
  const int64_t widths[] = {shape_.heads * dim, shape_.kv_heads * dim, shape_.kv_heads * dim};
  const size_t parts = shape_.borrows ? 1 : shape_.values_of_keys ? 2 : 3;
  std::vector<Tensor> qkv;
  if (asked < tokens && qkv_.size() > 1) {
    for (const Linear& layer : qkv_) qkv.push_back(layer(qkv.empty() ? last_tokens(x, asked) : x));
  } else if (shape_.by_groups) {
    const int64_t of_queries = shape_.heads / shape_.kv_heads * dim, key = of_queries + dim;
    const Tensor all =
        graph::reshape(qkv_[0](x), {batch, tokens, shape_.kv_heads, of_queries + 2 * dim});
    qkv = {last_tokens(graph::slice(all, 3, 0, of_queries), asked),
           graph::slice(all, 3, of_queries, key), graph::slice(all, 3, key, key + dim)};
  } else {
    qkv = parts_of(qkv_, x, std::span(widths).first(parts));
    qkv[0] = last_tokens(qkv[0], asked);
  }
  auto in_heads = [&](Tensor projected, int64_t count, const std::optional<Norm>& norm) {
    if (norm && shape_.qk_norm == QkNorm::kWhole) projected = (*norm)(projected);
    if (shape_.clip > 0) projected = ops::clamp(projected, -shape_.clip, shape_.clip);
    return graph::reshape(projected, {batch, projected.dim(1), count, dim});
  };
  const auto placed = [&](Tensor heads, const Tensor& table, const std::optional<Norm>& norm) {
    const bool norms = norm && shape_.qk_norm != QkNorm::kWhole;
    if (norms && !shape_.rotates_first) heads = (*norm)(heads);
    if (pass.rope != nullptr) heads = ops::rope(heads, table, pass.rope->interleaved);
    return norms && shape_.rotates_first ? (*norm)(heads) : heads;
  };
  Tensor queries = qkv[0], gate;
  if (shape_.gated) {
    const Tensor pairs = graph::reshape(queries, {batch, asked, shape_.heads, 2 * dim});
    queries = graph::slice(pairs, 3, 0, dim);
    gate = ops::sigmoid(graph::slice(pairs, 3, dim, 2 * dim));
  } else if (gate_) {
    const Tensor of_gate = (*gate_)(last_tokens(x, asked));
    const Tensor all = shape_.softplus_gate ? ops::softplus(of_gate) : ops::sigmoid(of_gate);
    gate = graph::reshape(all, {batch, asked, shape_.heads, -1});
  }
  Tensor q = placed(in_heads(queries, shape_.heads, q_norm_), pass.query_table, q_norm_);
  if (pass.query_scale.defined()) {
    q = ops::mul(q, graph::reshape(pass.query_scale, {-1, asked, 1, 1}));
  }
  KeysAndValues kv;
  if (shape_.borrows) {
    kv = *pass.attended;
  } else {
    kv.k = placed(in_heads(qkv[1], shape_.kv_heads, k_norm_), pass.rope_table, k_norm_);
    kv.v = in_heads(qkv[parts - 1], shape_.kv_heads, {});
    if (shape_.value_norm) kv.v = ops::rms_norm(kv.v, {}, shape_.norm.eps);
    add_to_cache(pass, layer, kv.k, kv.v);
    if (pass.attended != nullptr) *pass.attended = kv;
  }
  // Of whole rows chunks are documents, if there is more than one.
  const bool in_rows = pass.cache == nullptr && pass.asked == 0;
  const bool cut = shape_.chunk > 0 && in_rows && pass.chunks.defined();
  const ops::AttentionOptions options = {
      .scale = shape_.scale.value_or(1 / std::sqrt(static_cast<double>(dim))),
      .cap = shape_.cap,
      .max_bias = shape_.max_bias,
      .causal = true,
      .window = shape_.window,
      .chunk = in_rows ? 0 : shape_.chunk,
      .segments = cut ? pass.chunks : pass.segments,
      .sinks = sinks_,
      .slots = pass.slots(),
      .dropout = attention_dropout(shape_.dropout),
      .bf16 = rounds_activations(o_proj_.weight.dtype())};
  Tensor out = ops::attention(q, kv.k, kv.v, pass.query_position(), options);
  if (gate.defined()) out = ops::mul(out, gate);
  out = graph::reshape(out, {batch, asked, shape_.heads * dim});
  if (output_norm_) out = (*output_norm_)(out);
  return scaled(o_proj_(out), shape_.out_scale);
}

namespace {

TokenMixer token_mixer(const Parameters& parameters, const LayerShape& shape) {
  if (shape.mamba && !shape.mamba_beside)
    return Mamba2(parameters / shape.mamba->name, *shape.mamba);
  if (shape.griffin) return GriffinBlock(parameters / shape.griffin->name, *shape.griffin);
  if (shape.mamba1) return Mamba1(parameters / shape.mamba1->name, *shape.mamba1);
  if (shape.short_convolution) {
    return ShortConvolution(parameters / "conv", *shape.short_convolution);
  }
  if (shape.delta_net) return GatedDeltaNet(parameters / "linear_attn", *shape.delta_net);
  if (shape.kimi_delta) return KimiDeltaAttention(parameters / "self_attn", *shape.kimi_delta);
  if (shape.latent) return LatentAttention(parameters / "self_attn", *shape.latent);
  return SelfAttention(parameters / shape.attention.name, shape.attention);
}

// The place of a part of a layer, which without a name is the layer's own.
Parameters place_of(const Parameters& layer, const std::string& name) {
  return name.empty() ? layer : layer / name;
}

FeedForward feed_forward(const Parameters& parameters, const LayerShape& shape) {
  if (shape.dual_mlp) return DualMlp(parameters, *shape.dual_mlp);
  if (shape.experts) return SparseMlp(parameters / shape.experts->name, *shape.experts);
  if (shape.plain_mlp) {
    return PlainMlp(place_of(parameters, shape.plain_mlp->name), *shape.plain_mlp);
  }
  return GatedMlp(parameters / shape.mlp.name, shape.mlp);
}

}  // namespace

DecoderLayer::DecoderLayer(const Parameters& parameters, const LayerShape& shape) : shape_(shape) {
  const bool mixes = shape.parts != LayerParts::kMlp, feeds = shape.parts != LayerParts::kMixer;
  if (mixes) mixer_.emplace(token_mixer(parameters, shape));
  if (mixes && shape.mamba_beside) beside_.emplace(parameters / shape.mamba->name, *shape.mamba);
  if (shape.shared_transformer) {
    shared_transformer_.emplace(parameters, *shape.shared_transformer);
  }
  if (feeds) mlp_.emplace(feed_forward(parameters, shape));
  if (shape.shared_mlp) shared_mlp_.emplace(parameters / "shared_mlp", *shape.shared_mlp);
  const auto set = [&](bool is_there, std::optional<Norm>& norm, const std::string& name) {
    if (!is_there || name.empty()) return;
    norm.emplace(parameters / name, shape.attention.hidden, shape.norm);
  };
  set(mixes, before_attention_, shape.norms.before_attention);
  set(mixes, after_attention_, shape.norms.after_attention);
  set(feeds, before_mlp_, shape.norms.before_mlp);
  set(feeds, after_mlp_, shape.norms.after_mlp);
  if (shape.per_layer_input) per_layer_input_.emplace(parameters, *shape.per_layer_input);
  if (shape.laurel) laurel_.emplace(parameters / "laurel", *shape.laurel);
  if (shape.altup) {
    const Parameters place = parameters / "altup";
    altup_.emplace(place, *shape.altup);
    constexpr const char* kScale = "correct_output_scale";
    if (shape.scales_active) {
      active_scale_ = place.get_f32(kScale, {shape.altup->hidden}, Init::zeros());
    } else {
      place.leave_out(kScale);
    }
  }
  if (shape.scaled_output) layer_scalar_ = parameters.buffer("layer_scalar", {1}, Init::ones());
}

Tensor DecoderLayer::added(const Tensor& x, Tensor branch, const std::optional<Norm>& norm,
                           double dropout) const {
  if (norm) branch = (*norm)(branch);
  return ops::add(nn::dropout(scaled(branch, shape_.residual_scale), dropout), x);
}

Tensor DecoderLayer::mixed(const Tensor& x, const Pass& pass, int64_t layer) const {
  const auto mix = [&](const auto& part) { return part(x, pass, layer); };
  const int64_t asked = pass.going_on(x);
  const Tensor y = last_tokens(std::visit(mix, *mixer_), asked);
  return beside_ ? ops::add(y, last_tokens((*beside_)(x, pass, layer), asked)) : y;
}

Tensor DecoderLayer::fed_forward(const Tensor& x, const Pass& pass) const {
  const auto branch = [&](const auto& part) {
    constexpr bool kRouted = std::is_same_v<decltype(part), const SparseMlp&> ||
                             std::is_same_v<decltype(part), const DualMlp&>;
    if constexpr (kRouted) {
      return part(x, pass.router_logits);
    } else {
      return part(x);
    }
  };
  const Tensor y = std::visit(branch, *mlp_);
  return shared_mlp_ ? ops::add(y, (*shared_mlp_)(x)) : y;
}

Tensor DecoderLayer::updated(const Tensor& x, const Pass& pass, int64_t layer) const {
  const int64_t asked = pass.going_on(x);
  const Tensor summed = shared_transformer_ ? ops::add(x, (*shared_transformer_)(x, pass)) : x;
  const Tensor given = before_attention_ ? (*before_attention_)(summed) : summed;
  Tensor result = last_tokens(x, asked);
  const double of_mixed = shape_.drops_mixed ? shape_.dropout : 0;
  if (mixer_) result = added(result, mixed(given, pass, layer), after_attention_, of_mixed);
  if (laurel_) {
    result = ops::mul(ops::add(result, (*laurel_)(last_tokens(given, asked))), std::sqrt(0.5));
  }
  if (mlp_) {
    const Tensor seen = shape_.parallel ? last_tokens(before_mlp_ ? x : given, asked) : result;
    const Tensor normed = before_mlp_ ? (*before_mlp_)(seen) : seen;
    result = added(result, fed_forward(normed, pass), after_mlp_, shape_.dropout);
  }
  return result;
}

Tensor DecoderLayer::operator()(const Tensor& x, const Pass& pass, int64_t layer) const {
  if (altup_) {
    const Tensor predicted = altup_->predicted(x);
    const Tensor computed = updated(altup_->active(predicted), pass, layer);
    const Tensor corrected = altup_->corrected(last_tokens(predicted, pass.going_on(x)), computed);
    Tensor active = altup_->active(corrected);
    if (active_scale_.defined()) active = ops::mul(active, active_scale_);
    return altup_->with_addition(corrected, (*per_layer_input_)(active, pass.layer_input));
  }
  Tensor result = updated(x, pass, layer);
  if (per_layer_input_) {
    result = ops::add(result, (*per_layer_input_)(result, pass.layer_input));
  }
  return layer_scalar_.defined() ? ops::mul(result, layer_scalar_) : result;
}

}  // namespace lumen::nn
