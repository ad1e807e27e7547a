#include "models/decoder_lm.h"

#include <algorithm>
#include <cmath>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/layer_windows.h"
#include "lib/nn/fused_layers.h"
#include "lib/nn/head_order.h"
#include "lib/nn/training_scope.h"
#include "lib/tensor/dtype.h"

namespace lumen::models {
namespace {

nn::Parameters parameters_of(const nn::Parameters& all, const nn::DecoderConfig& config) {
  return all.with_normal_weights(config.initializer_range);
}

// What the cache holds of `layers` layers with a state, which are like this one.
std::optional<nn::KvCacheShape::Recurrent> states_of(const nn::LayerShape& layer, int64_t layers) {
  if (layer.delta_net) return nn::GatedDeltaNet::cache_shape(*layer.delta_net, layers);
  if (layer.kimi_delta) return nn::KimiDeltaAttention::cache_shape(*layer.kimi_delta, layers);
  if (layer.short_convolution) {
    return nn::ShortConvolution::cache_shape(*layer.short_convolution, layers);
  }
  if (layer.griffin) return nn::GriffinBlock::cache_shape(*layer.griffin, layers);
  if (layer.mamba1) return nn::Mamba1::cache_shape(*layer.mamba1, layers);
  if (layer.mamba) return nn::Mamba2::cache_shape(*layer.mamba, layers);
  return {};
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

nn::PlainMlpShape plain_mlp(const nn::DecoderConfig& config, bool bias) {
  return {.hidden = config.hidden_size,
          .intermediate = config.intermediate_size,
          .activation = config.hidden_act,
          .bias = bias};
}

io::Json small_config(std::string_view model_type, const io::Json& keys) {
  io::Json config = {{"model_type", model_type},      {"hidden_size", 32},
                     {"num_hidden_layers", 2},        {"num_attention_heads", 4},
                     {"num_key_value_heads", 2},      {"vocab_size", 37},
                     {"max_position_embeddings", 64}, {"rms_norm_eps", 1e-5}};
  config.update(keys);
  return config;
}

void require_silu(const io::Json& json, std::string_view part) {
  const std::string activation = io::get_string(json, "hidden_act", "silu");
  if (activation == "silu" || activation == "swish") return;
  fail(ErrorKind::kUnsupported, "hidden_act ", quoted(activation), " is not supported in ", part,
       "; known: silu, swish");
}

nn::LatentAttentionShape latent_attention_of(const io::Json& json,
                                             const nn::DecoderConfig& config) {
  const auto size = [&](const char* key) { return io::get_int(json, key, 1, limits::kDim); };
  const bool has_latents = io::find_value(json, "q_lora_rank") != nullptr;
  nn::LatentAttentionShape shape = {.hidden = config.hidden_size,
                                    .heads = config.num_attention_heads,
                                    .query_rank = has_latents ? size("q_lora_rank") : 0,
                                    .rank = size("kv_lora_rank"),
                                    .key_dim = size("qk_nope_head_dim"),
                                    .rotary_dim = size("qk_rope_head_dim"),
                                    .value_dim = size("v_head_dim"),
                                    .bias = config.attention_bias,
                                    .dropout = config.attention_dropout};
  shape.scale = 1 / std::sqrt(static_cast<double>(shape.query_dim()));
  return shape;
}

nn::SparseMlpShape experts_of(const io::Json& json, const nn::DecoderConfig& config,
                              const char* count) {
  require_silu(json, "experts");
  const int64_t experts = io::get_int(json, count, 1, limits::kExperts);
  return {.hidden = config.hidden_size,
          .intermediate = config.intermediate_size,
          .experts = experts,
          .used = io::get_int(json, "num_experts_per_tok", 1, experts)};
}

nn::SparseMlpShape mixtral_experts_of(const io::Json& json, const nn::DecoderConfig& config) {
  nn::SparseMlpShape experts = experts_of(json, config, "num_local_experts");
  experts.name = "block_sparse_moe";
  experts.gate = "w1";
  experts.up = "w3";
  experts.down = "w2";
  experts.normalize = true;
  return experts;
}

nn::SparseMlpShape qwen_experts_of(const io::Json& json, const nn::DecoderConfig& config) {
  nn::SparseMlpShape experts = experts_of(json, config, "num_experts");
  experts.intermediate = io::get_int(json, "moe_intermediate_size", 1, limits::kDim);
  experts.normalize = io::get_bool(json, "norm_topk_prob", false);
  return experts;
}

void add_shared_experts(int64_t count, nn::SparseMlpShape& experts) {
  experts.shared = count * experts.intermediate;
  experts.shared_name = "shared_experts";
  experts.shared_gate = false;
}

nn::SparseMlpShape shared_experts_of(const io::Json& json, const nn::DecoderConfig& config) {
  nn::SparseMlpShape experts = qwen_experts_of(json, config);
  experts.shared = io::get_int(json, "shared_expert_intermediate_size", 1, limits::kDim);
  return experts;
}

nn::ExpertChoice grouped_choice(const io::Json& json, const nn::SparseMlpShape& experts) {
  nn::ExpertChoice choice;
  const std::string type = io::get_string(json, "model_type");
  const bool is_v2 = type == "deepseek_v2";
  choice.sigmoid = !is_v2 && type != "mistral4";
  if (choice.sigmoid) choice.correction = "gate.e_score_correction_bias";
  choice.scale = io::get_number(json, "routed_scaling_factor", 0, 1e6, 1);
  if (experts.normalize && is_v2) {
    fail(ErrorKind::kUnsupported,
         "norm_topk_prob true is not supported in deepseek_v2: transformers disregards it, others "
         "do not");
  }
  if (io::get_string(json, "topk_method", "") == "greedy") return choice;
  choice.best = is_v2 ? 1 : 2;
  choice.groups = io::get_int(json, "n_group", 1, experts.experts, 1);
  choice.used_groups = io::get_int(json, "topk_group", 1, choice.groups, choice.groups);
  const int64_t size = experts.experts / choice.groups;
  const bool even = experts.experts % choice.groups == 0 && size >= choice.best;
  if (choice.groups > 1 && (!even || size * choice.used_groups < experts.used)) {
    fail(ErrorKind::kMalformed, "n_group ", choice.groups, " with topk_group ", choice.used_groups,
         ": of ", experts.experts, " experts ", experts.used,
         " cannot be chosen in so many groups of equal size",
         choice.best > 1 ? ", of at least 2" : "");
  }
  return choice;
}

nn::SparseMlpShape grouped_experts_of(const io::Json& json, const nn::DecoderConfig& config) {
  nn::SparseMlpShape shape = qwen_experts_of(json, config);
  add_shared_experts(io::get_int(json, "n_shared_experts", 0, limits::kExperts, 0), shape);
  shape.choice = grouped_choice(json, shape);
  return shape;
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

double embedding_root(const nn::DecoderConfig& config, const nn::Parameters& parameters) {
  const Tensor table = (parameters_of(parameters, config) / "model" / "embed_tokens")
                           .get("weight", {config.vocab_size, config.hidden_size});
  const double root = std::sqrt(static_cast<double>(config.hidden_size));
  if (table.dtype() != DType::kBF16) return root;
  return to_float(to_bf16(static_cast<float>(root)));
}

nn::PerLayerEmbeddingShape per_layer_embedding_of(const io::Json& json,
                                                  const nn::DecoderConfig& config) {
  const int64_t dim = io::get_int(json, "hidden_size_per_layer_input", 1, limits::kDim);
  return {.vocab =
              io::get_int(json, "vocab_size_per_layer_input", 1, limits::kVocab, config.vocab_size),
          .tokens = config.vocab_size,
          .hidden = config.hidden_size,
          .layers = config.num_hidden_layers,
          .dim = dim,
          .scale = std::sqrt(static_cast<double>(dim)),
          .norm = {.eps = config.rms_norm_eps}};
}

std::vector<int64_t> shared_keys_of(const io::Json& json, const std::vector<int64_t>& windows) {
  const int64_t layers = std::ssize(windows);
  const int64_t shared = io::get_int(json, "num_kv_shared_layers", 0, layers - 1, 0);
  const int64_t own = layers - shared;
  std::vector<int64_t> result;
  for (int64_t i = 0; i < layers; ++i) {
    int64_t source = std::min(i, own - 1);
    while (source >= 0 && windows[source] != windows[i]) --source;
    if (source < 0) {
      fail(ErrorKind::kMalformed, "num_kv_shared_layers ", shared, ": layer ", i,
           " shares keys and values, and no layer of its type before has any");
    }
    result.push_back(i < own ? i : source);
  }
  return result;
}

double soft_cap(const io::Json& json, const char* key) {
  return io::find_value(json, key) == nullptr ? 0 : io::get_number(json, key, 1e-3, 1e6);
}

double clip_of(const io::Json& json) {
  return io::find_value(json, "clip_qkv") == nullptr ? 0
                                                     : io::get_number(json, "clip_qkv", 1e-6, 1e6);
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

nn::GatedDeltaNetShape delta_net_of(const io::Json& json, const nn::DecoderConfig& config) {
  require_silu(json, "Gated DeltaNet");
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

std::function<nn::LayerShape(int64_t)> delta_net_layers(const io::Json& json,
                                                        const nn::DecoderConfig& config) {
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
      temperature_(shape.temperature),
      scales_rotated_(shape.scales_rotated),
      rope_(json, shape.rotary_dim > 0 ? shape.rotary_dim : config.rotary_dim),
      norm_(all / "model" / shape.norm, config.hidden_size, shape.layer(0).norm),
      lm_head_(config.tie_word_embeddings
                   ? nn::Linear(embed_tokens_.weight)
                   : nn::Linear(parameters_of(all, config) / "lm_head", config.hidden_size,
                                config.vocab_size, shape.head_bias)) {
  const nn::Parameters parameters = parameters_of(all, config);
  if (config.tie_word_embeddings && shape.head_bias) {
    lm_head_.bias = (all / "lm_head").get_f32("bias", {config.vocab_size}, nn::Init::zeros());
  }
  if (shape.positions) {
    positions_.emplace(parameters / "model" / shape.positions->name, config.max_position_embeddings,
                       config.hidden_size, shape.positions->offset);
  }
  if (shape.embedding_norm) {
    embedding_norm_.emplace(all / "model" / shape.embedding_norm->name, config.hidden_size,
                            shape.embedding_norm->shape);
  }
  if (!shape.local_rope.is_null()) {
    local_rope_.emplace(shape.local_rope,
                        shape.local_rotary_dim > 0 ? shape.local_rotary_dim : config.rotary_dim);
  }
  if (shape.layer_embedding) {
    layer_embedding_.emplace(parameters / "model", *shape.layer_embedding);
  }
  if (shape.altup) altup_.emplace(parameters / "model", *shape.altup);
  if (rope_.temperature.beta > 0 && config.rotary_dim != config.head_dim) {
    fail(ErrorKind::kUnsupported, "llama_4_scaling_beta with heads of which only a part rotates");
  }
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const nn::LayerShape layer = shape.layer(i);
    layers_.emplace_back(parameters / "model" / "layers" / str(i), layer);
    if (layer.experts) used_experts_ = layer.experts->used;
    if (layer.dual_mlp) used_experts_ = layer.dual_mlp->experts.used;
    rotations_.push_back(shape.rotation(i));
    chunk_ = std::max(chunk_, layer.attention.chunk);
    const int64_t keys_of = shape.keys_of.empty() ? i : shape.keys_of[static_cast<size_t>(i)];
    keys_of_.push_back(static_cast<size_t>(keys_of));
    is_borrowed_.push_back(false);
    if (keys_of != i) is_borrowed_[keys_of_.back()] = true;
    const bool mixes = layer.parts != nn::LayerParts::kMlp;
    if (keys_of == i && mixes) last_to_keep_ = static_cast<size_t>(i);
    const auto states = states_of(layer, recurrent_.layers + 1);
    // With both, a layer is the same one of both kinds if all layers have both or none; else what
    // attends beside knows its number itself.
    numbers_.push_back(states ? recurrent_.layers : std::ssize(heads_));
    if (!mixes) continue;
    if (layer.latent) latent_dim_ = layer.latent->cached();
    if (states) recurrent_ = *states;
    const bool attends = !states || layer.mamba_beside || layer.shared_transformer;
    if (layer.shared_transformer) sees_embedding_ = true;
    if (keys_of == i && attends) {
      heads_.push_back({layer.attention.kv_heads, layer.attention.head_dim});
    }
  }
  // GGUF stores the scaling of Llama 3.1 and of Phi-3 as divisors of the frequencies.
  auto divisors = [&](const char* name) {
    return parameters.buffer(name, {rope_.frequencies.dim(0)}, nn::Init::ones());
  };
  if (parameters.has("rope_freqs.weight")) rope_.divide(divisors("rope_freqs.weight"));
  if (parameters.has("rope_factors_short.weight")) {
    rope_.set_factors(divisors("rope_factors_short.weight"), divisors("rope_factors_long.weight"));
  }
}

nn::KvCacheShape DecoderLm::cache_shape(int64_t batch, int64_t context) const {
  const int64_t layers = std::ssize(heads_);
  if (latent_dim_ > 0) {
    return {layers, batch, 1, context, latent_dim_, recurrent_, /*has_values=*/false};
  }
  nn::KvCacheShape shape = {layers,           batch,     config_.num_key_value_heads, context,
                            config_.head_dim, recurrent_};
  const bool alike = std::all_of(heads_.begin(), heads_.end(), [&](const auto& heads) {
    return heads.kv_heads == shape.kv_heads && heads.head_dim == shape.head_dim;
  });
  if (!alike) shape.own_heads = heads_;
  return shape;
}

Tensor DecoderLm::run_all(const Tensor& tokens, const Tensor& position, nn::KvCache* cache,
                          const Training& training, int64_t asked) const {
  // Rotary attention depends on distances only, so documents that begin later in a row need no
  // positions of their own, but for the scale of queries.
  const int64_t count = tokens.dim(1);
  const int64_t positions = cache ? cache->shape().context : count;
  auto pass_with = [&](const nn::Rope* rope) -> nn::Pass {
    Tensor scale;
    if (rope == nullptr || scales_rotated_) {
      scale = temperature_.of(position, count, training.positions, positions);
    }
    if (rope == nullptr) return {position, {}, {}, scale, rope, cache, training.segments};
    const Tensor table = rope->table(position, count);
    return {position,
            table,
            rope->query_table(table, position, training.positions, positions),
            scale,
            rope,
            cache,
            training.segments};
  };
  Tensor chunks;
  if (chunk_ > 0 && cache == nullptr && count > chunk_) {
    const Tensor row = graph::contiguous(graph::iota(count), DType::kI32);
    const Tensor rows = graph::expand(graph::reshape(row, {1, count}), tokens.shape());
    chunks = nn::chunks_of(training.positions.defined() ? training.positions : rows, chunk_);
  }
  const nn::Pass global = pass_with(&rope_);
  const nn::Pass local = pass_with(local_rope_ ? &*local_rope_ : nullptr);
  const nn::Pass plain = pass_with(nullptr);
  const Tensor embedded = embed_tokens_(tokens);
  Tensor x = nn::scaled(embedded, embedding_scale_);
  if (positions_) x = ops::add(x, (*positions_)(position, count, training.positions));
  if (embedding_norm_) x = (*embedding_norm_)(x);
  x = nn::dropout(x, config_.dropout);
  Tensor layer_inputs;  // [batch, tokens, layers, dim]
  if (layer_embedding_) {
    // Not x, whose gradient is then the sum of the same two, recomputed or not.
    layer_inputs = (*layer_embedding_)(tokens, nn::scaled(embedded, embedding_scale_));
  }
  const Tensor start = x;
  if (altup_) x = altup_->streams_of(x);
  std::vector<nn::KeysAndValues> kept(layers_.size());
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Rotation rotation = rotations_[i];
    nn::Pass pass = rotation == Rotation::kGlobal  ? global
                    : rotation == Rotation::kLocal ? local
                                                   : plain;
    pass.chunks = chunks;
    if (sees_embedding_) pass.layer_input = start;
    if (layer_embedding_) {
      const auto at = static_cast<int64_t>(i);
      const Shape one = {tokens.dim(0), count, layer_inputs.dim(3)};
      pass.layer_input = graph::reshape(graph::slice(layer_inputs, 2, at, at + 1), one);
    }
    // From the last layer on that all tokens leave something in, only those asked for go on.
    if (asked < count && i >= last_to_keep_) {
      const Tensor first = ops::add(position, count - asked);
      if (pass.rope != nullptr) {
        pass.query_table =
            pass.rope->query_table(pass.rope->table(first, asked), first, {}, positions);
      }
      if (pass.query_scale.defined()) {
        pass.query_scale = nn::last_tokens(pass.query_scale, asked);
      }
      if (layer_embedding_) pass.layer_input = nn::last_tokens(pass.layer_input, asked);
      (i == last_to_keep_ ? pass.asked_position : pass.position) = first;
      if (i == last_to_keep_) pass.asked = asked;
    }
    x = run(i, x, pass, training, kept);
  }
  return altup_ ? altup_->mean_of(x) : x;
}

namespace {

// [batch, heads, tokens, dim] as columns [batch, tokens, heads · dim], and back.
Tensor in_columns(const Tensor& heads) {
  return graph::reshape(graph::permute(heads, {0, 2, 1, 3}), {heads.dim(0), heads.dim(2), -1});
}
Tensor in_heads(const Tensor& columns, int64_t dim) {
  const Tensor parted = graph::reshape(columns, {columns.dim(0), columns.dim(1), -1, dim});
  return graph::permute(parted, {0, 2, 1, 3});
}

}  // namespace

Tensor DecoderLm::run(size_t layer, const Tensor& x, const nn::Pass& pass, const Training& training,
                      std::vector<nn::KeysAndValues>& kept) const {
  const size_t source = keys_of_[layer];
  const auto run_with = [this, layer](nn::Pass own, const Tensor& in, nn::KeysAndValues& attended,
                                      Tensor* logits) {
    own.attended = &attended;
    own.router_logits = logits;
    return layers_[layer](in, own, numbers_[layer]);
  };
  const bool routed = training.router_logits != nullptr, borrows = source != layer;
  Tensor logits;
  if (!training.recompute) {
    const Tensor out = run_with(pass, x, kept[source], routed ? &logits : nullptr);
    if (logits.defined()) training.router_logits->push_back(logits);
    return out;
  }
  // What is recomputed is made of inputs that are all named and has one result: behind the columns
  // of x are those of the keys and values that others attend to, and of the router's logits.
  std::vector<Tensor> inputs = {x};
  if (pass.layer_input.defined()) inputs.push_back(pass.layer_input);
  if (borrows) inputs.insert(inputs.end(), {kept[source].k, kept[source].v});
  const bool lends = is_borrowed_[layer];
  const auto body = [=](std::span<const Tensor> in) {
    nn::Pass own = pass;
    size_t next = 1;
    if (own.layer_input.defined()) own.layer_input = in[next++];
    nn::KeysAndValues attended;
    if (borrows) attended = {in[next], in[next + 1]};
    Tensor of_router;
    std::vector<Tensor> columns = {run_with(own, in[0], attended, routed ? &of_router : nullptr)};
    if (lends) columns.insert(columns.end(), {in_columns(attended.k), in_columns(attended.v)});
    if (of_router.defined()) columns.push_back(of_router);
    return columns.size() == 1 ? columns[0] : ops::concat(columns, -1);
  };
  const Tensor all = nn::checkpoint(body, inputs);
  int64_t column = 0;
  const auto next = [&](int64_t width) {
    column += width;
    return graph::slice(all, -1, column - width, column);
  };
  const Tensor out = next(x.dim(-1));
  if (lends) {
    const auto [kv_heads, dim] = heads_[static_cast<size_t>(numbers_[layer])];
    const Tensor k = next(kv_heads * dim);
    kept[layer] = {in_heads(k, dim), in_heads(next(kv_heads * dim), dim)};
  }
  if (column < all.dim(-1)) training.router_logits->push_back(next(all.dim(-1) - column));
  return out;
}

Tensor DecoderLm::normalized(const Tensor& hidden) const {
  return nn::scaled(norm_(hidden), logit_scale_);
}

}  // namespace lumen::models
