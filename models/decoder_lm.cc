#include "models/decoder_lm.h"

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/layer_windows.h"
#include "lib/nn/fused_layers.h"
#include "lib/nn/training_scope.h"

namespace lumen::models {
namespace {

Tensor scaled(const Tensor& x, double scale) {
  return scale == 1 ? x : ops::mul(x, graph::scalar(static_cast<float>(scale)));
}

nn::Parameters parameters_of(const nn::Parameters& all, const nn::DecoderConfig& config) {
  return all.with_normal_weights(config.initializer_range);
}

nn::GatedDeltaNetShape delta_net_of(const io::Json& json, const nn::DecoderConfig& config) {
  const auto size = [&](const char* key, int64_t least, int64_t most) {
    return io::get_int(json, key, least, most);
  };
  const nn::GatedDeltaNetShape shape = {
      .hidden = config.hidden_size,
      .key_heads = size("linear_num_key_heads", 1, limits::kHeads),
      .key_dim = size("linear_key_head_dim", 1, limits::kDim),
      .heads = size("linear_num_value_heads", 1, limits::kHeads),
      .value_dim = size("linear_value_head_dim", 1, limits::kDim),
      .kernel = size("linear_conv_kernel_dim", 2, io::kMostConvTaps),
      .eps = config.rms_norm_eps,
      .tiled = nn::has_tiled_heads(json),
      .fused = nn::has_fused_inputs(json),
      .apart = nn::has_inputs_apart(json)};
  if (shape.heads % shape.key_heads != 0) {
    fail(ErrorKind::kMalformed, "linear_num_value_heads ", shape.heads,
         " is not a multiple of linear_num_key_heads ", shape.key_heads);
  }
  return shape;
}

}  // namespace

nn::LayerShape plain_layer(const nn::DecoderConfig& config) {
  return {.attention = {.hidden = config.hidden_size,
                        .heads = config.num_attention_heads,
                        .kv_heads = config.num_key_value_heads,
                        .head_dim = config.head_dim,
                        .qkv_bias = config.attention_bias,
                        .output_bias = config.attention_bias,
                        .norm = {.eps = config.rms_norm_eps},
                        .dropout = config.attention_dropout},
          .mlp = {.hidden = config.hidden_size,
                  .intermediate = config.intermediate_size,
                  .activation = config.hidden_act},
          .norm = {.eps = config.rms_norm_eps},
          .dropout = config.dropout};
}

nn::SparseMlpShape experts_of(const io::Json& json, const nn::DecoderConfig& config,
                              const char* count) {
  const std::string activation = io::get_string(json, "hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    fail(ErrorKind::kUnsupported, "hidden_act ", quoted(activation),
         " is not supported in experts; known: silu, swish");
  }
  const int64_t experts = io::get_int(json, count, 1, limits::kExperts);
  return {.hidden = config.hidden_size,
          .intermediate = config.intermediate_size,
          .experts = experts,
          .used = io::get_int(json, "num_experts_per_tok", 1, experts)};
}

nn::SparseMlpShape qwen_experts_of(const io::Json& json, const nn::DecoderConfig& config) {
  nn::SparseMlpShape experts = experts_of(json, config, "num_experts");
  experts.intermediate = io::get_int(json, "moe_intermediate_size", 1, limits::kDim);
  experts.normalize = io::get_bool(json, "norm_topk_prob", false);
  return experts;
}

nn::SparseMlpShape shared_experts_of(const io::Json& json, const nn::DecoderConfig& config) {
  nn::SparseMlpShape experts = qwen_experts_of(json, config);
  experts.shared = io::get_int(json, "shared_expert_intermediate_size", 1, limits::kDim);
  return experts;
}

std::function<nn::LayerShape(int64_t)> with_experts(const io::Json& json,
                                                    std::function<nn::LayerShape(int64_t)> dense,
                                                    const nn::SparseMlpShape& experts) {
  return [layer = std::move(dense), experts, is_sparse = io::sparse_layers(json)](int64_t i) {
    nn::LayerShape own = layer(i);
    if (is_sparse[static_cast<size_t>(i)]) own.experts = experts;
    return own;
  };
}

std::function<nn::LayerShape(int64_t)> with_windows(const nn::LayerShape& shape,
                                                    std::vector<int64_t> windows) {
  return [shape, windows = std::move(windows)](int64_t layer) {
    nn::LayerShape own = shape;
    own.attention.window = windows[static_cast<size_t>(layer)];
    return own;
  };
}

std::function<Rotation(int64_t)> local_if_windowed(std::vector<int64_t> windows) {
  return [windows = std::move(windows)](int64_t layer) {
    return windows[static_cast<size_t>(layer)] > 0 ? Rotation::kLocal : Rotation::kGlobal;
  };
}

std::function<nn::LayerShape(int64_t)> delta_net_layers(const io::Json& json,
                                                        const nn::DecoderConfig& config) {
  const std::string activation = io::get_string(json, "hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    fail(ErrorKind::kUnsupported, "hidden_act ", quoted(activation),
         " is not supported in Gated DeltaNet; known: silu, swish");
  }
  nn::LayerShape full = plain_layer(config);
  full.attention.gated = true;
  full.attention.qk_norm = nn::QkNorm::kHeads;
  full.attention.norm.offset = full.norm.offset = io::get_number(json, "rms_norm_offset", 0, 1, 1);
  nn::LayerShape linear = full;
  linear.delta_net = delta_net_of(json, config);
  return [full, linear, is_linear = io::linear_attention_layers(json)](int64_t i) {
    return is_linear[static_cast<size_t>(i)] ? linear : full;
  };
}

io::Json tiny_delta_net_config() {
  return {{"hidden_size", 24},
          {"intermediate_size", 40},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 16},
          {"partial_rotary_factor", 0.25},
          {"linear_conv_kernel_dim", 4},
          {"linear_key_head_dim", 6},
          {"linear_value_head_dim", 10},
          {"linear_num_key_heads", 2},
          {"linear_num_value_heads", 4},
          {"layer_types", {"linear_attention", "full_attention"}},
          {"vocab_size", 43},
          {"max_position_embeddings", 64},
          {"rms_norm_eps", 1e-6},
          {"rms_norm_offset", 1},
          {"rope_theta", 1e7}};
}

DecoderLm::DecoderLm(const io::Json& json, const nn::DecoderConfig& config,
                     const nn::Parameters& all, const DecoderShape& shape)
    : config_(config),
      embedding_scale_(shape.embedding_scale),
      logit_scale_(shape.logit_scale),
      logit_cap_(shape.logit_cap),
      embed_tokens_(parameters_of(all, config) / "model" / "embed_tokens", config.vocab_size,
                    config.hidden_size),
      rope_(json, config.rotary_dim),
      norm_(all / "model" / shape.norm, config.hidden_size, shape.layer(0).norm),
      lm_head_(config.tie_word_embeddings
                   ? nn::Linear(embed_tokens_.weight)
                   : nn::Linear(parameters_of(all, config) / "lm_head", config.hidden_size,
                                config.vocab_size, shape.head_bias)) {
  const nn::Parameters parameters = parameters_of(all, config);
  if (!shape.local_rope.is_null()) local_rope_.emplace(shape.local_rope, config.rotary_dim);
  if (rope_.query_beta > 0 && config.rotary_dim != config.head_dim) {
    fail(ErrorKind::kUnsupported, "llama_4_scaling_beta with heads of which only a part rotates");
  }
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const nn::LayerShape layer = shape.layer(i);
    layers_.emplace_back(parameters / "model" / "layers" / str(i), layer);
    if (layer.experts) used_experts_ = layer.experts->used;
    rotations_.push_back(shape.rotation(i));
    const bool keeps_state = layer.delta_net || layer.short_convolution || layer.mamba;
    numbers_.push_back(keeps_state ? recurrent_.layers : attention_layers_);
    if (layer.latent) latent_dim_ = layer.latent->cached();
    if (layer.delta_net) {
      recurrent_ = nn::GatedDeltaNet::cache_shape(*layer.delta_net, recurrent_.layers + 1);
    } else if (layer.short_convolution) {
      recurrent_ =
          nn::ShortConvolution::cache_shape(*layer.short_convolution, recurrent_.layers + 1);
    } else if (layer.mamba) {
      recurrent_ = nn::Mamba2::cache_shape(*layer.mamba, recurrent_.layers + 1);
    } else {
      ++attention_layers_;
    }
  }
  // GGUF stores the scaling of Llama 3.1 and of Phi-3 as divisors of the frequencies.
  auto divisors = [&](const char* name) {
    return parameters.buffer(name, {config.rotary_dim / 2}, nn::Init::ones());
  };
  if (parameters.has("rope_freqs.weight")) rope_.divide(divisors("rope_freqs.weight"));
  if (parameters.has("rope_factors_short.weight")) {
    rope_.set_factors(divisors("rope_factors_short.weight"), divisors("rope_factors_long.weight"));
  }
}

nn::KvCacheShape DecoderLm::cache_shape(int64_t batch, int64_t context) const {
  if (latent_dim_ > 0) {
    return {attention_layers_, batch, 1, context, latent_dim_, recurrent_, /*has_values=*/false};
  }
  return {attention_layers_, batch,     config_.num_key_value_heads, context,
          config_.head_dim,  recurrent_};
}

Tensor DecoderLm::hidden(const Tensor& tokens, const Tensor& position, nn::KvCache* cache,
                         const Training& training) const {
  // Rotary attention depends on distances only, so documents that begin later in a row need no
  // positions of their own, but for the scale of queries.
  const int64_t count = tokens.dim(1);
  const int64_t positions = cache ? cache->shape().context : count;
  auto pass_with = [&](const nn::Rope* rope) -> nn::Pass {
    if (rope == nullptr) return {position, {}, {}, rope, cache, training.segments};
    const Tensor table = rope->table(position, count);
    return {position, table, rope->query_table(table, position, training.positions, positions),
            rope,     cache, training.segments};
  };
  const nn::Pass global = pass_with(&rope_);
  const nn::Pass local = pass_with(local_rope_ ? &*local_rope_ : nullptr);
  const nn::Pass plain = pass_with(nullptr);
  Tensor x = nn::dropout(scaled(embed_tokens_(tokens), embedding_scale_), config_.dropout);
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Rotation rotation = rotations_[i];
    const nn::Pass pass = rotation == Rotation::kGlobal  ? global
                          : rotation == Rotation::kLocal ? local
                                                         : plain;
    x = run(i, x, pass, training);
  }
  return x;
}

Tensor DecoderLm::run(size_t layer, const Tensor& x, const nn::Pass& pass,
                      const Training& training) const {
  // What is recomputed has one result: the router's logits are columns behind those of x.
  const bool routed = training.router_logits != nullptr;
  const Tensor out =
      run_layer(training.recompute, x, [this, layer, pass, routed](const Tensor& in) {
        nn::Pass own = pass;
        Tensor logits;
        if (routed) own.router_logits = &logits;
        const Tensor y = layers_[layer](in, own, numbers_[layer]);
        const Tensor both[] = {y, logits};
        return logits.defined() ? ops::concat(both, -1) : y;
      });
  const int64_t hidden = x.dim(-1), columns = out.dim(-1);
  if (columns == hidden) return out;
  training.router_logits->push_back(graph::slice(out, -1, hidden, columns));
  return graph::slice(out, -1, 0, hidden);
}

Tensor DecoderLm::normalized(const Tensor& hidden) const {
  return scaled(norm_(hidden), logit_scale_);
}

}  // namespace lumen::models
