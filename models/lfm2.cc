// LFM2 (Liquid AI 2025, "LFM2 Technical Report") and LFM3 (2026).
//
// Loads LFM2 and LFM2.5, 350M to 2.6B, the mixtures of experts LFM2-8B-A1B and LFM2-24B-A2B, and
// LFM3-1.7B. Differs from plain Llama by gated short convolutions in place of attention in most
// layers, norms of every query and key head before rotation, and names. In the mixtures all but the
// first layers have experts, whose scores are sigmoids, with a correction per expert. LFM3 has
// norms behind the branches, too, a gate of each head's output, and windows with a rotation of
// their own in half of the layers with attention.
#include <algorithm>

#include "lib/base/limits.h"
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace lfm2 {

void set_names(nn::LayerShape& layer) {
  layer.mlp.name = "feed_forward";
  layer.mlp.gate = "w1";
  layer.mlp.up = "w3";
  layer.mlp.down = "w2";
  layer.norms = {.before_attention = "operator_norm", .before_mlp = "ffn_norm"};
}

// Such a layer with a convolution in place of attention.
nn::LayerShape with_convolution(const io::Json& json, const nn::DecoderConfig& config,
                                nn::LayerShape layer) {
  layer.short_convolution = {.hidden = config.hidden_size,
                             .kernel = io::get_int(json, "conv_L_cache", 2, io::kMostConvTaps),
                             .bias = io::get_bool(json, "conv_bias", false)};
  return layer;
}

// What transformers adds to the sum of the chosen experts' scores.
constexpr double kAddedToSum = 1e-6;

nn::SparseMlpShape experts(const io::Json& json, const nn::DecoderConfig& config,
                           const nn::GatedMlpShape& mlp) {
  nn::SparseMlpShape shape = qwen_experts_of(json, config);
  shape.name = mlp.name;
  shape.gate = mlp.gate;
  shape.up = mlp.up;
  shape.down = mlp.down;
  shape.named_alone = false;
  shape.choice.sigmoid = true;
  if (io::get_bool(json, "use_expert_bias", true)) shape.choice.correction = "expert_bias";
  shape.choice.scale = io::get_number(json, "routed_scaling_factor", 0, 1e6, 1);
  shape.choice.added = kAddedToSum;
  return shape;
}

// The config as if layers of type `type` were of type `other`.
io::Json with_type(io::Json json, const char* type, const char* other) {
  io::Json& types = json["layer_types"];
  if (types.is_array()) std::replace(types.begin(), types.end(), io::Json(type), io::Json(other));
  return json;
}

constexpr const char *kFull = "full_attention", *kSliding = "sliding_attention", *kConv = "conv";

std::unique_ptr<CausalLm> make_third(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape full = plain_layer(config);
  full.attention.qk_norm = nn::QkNorm::kHeads;
  if (io::get_bool(json, "use_attention_gate", true)) {
    full.attention.gate = "gate_proj";  // g_proj in transformers
    full.attention.gates_heads = true;
  }
  set_names(full);
  if (io::get_bool(json, "use_sandwich_norm", true)) {
    full.norms.after_attention = "post_operator_norm";
    full.norms.after_mlp = "post_ffn_norm";
  }
  const nn::LayerShape convolution = with_convolution(json, config, full);
  const std::vector<bool> has_convolution =
      io::convolution_layers(with_type(json, kSliding, kFull));
  const std::vector<int64_t> windows = io::layer_windows(with_type(json, kConv, kFull));
  const auto attention = with_windows(full, windows);
  return std::make_unique<DecoderLm>(
      json, config, parameters,
      DecoderShape{.layer =
                       [=](int64_t i) {
                         return has_convolution[static_cast<size_t>(i)] ? convolution
                                                                        : attention(i);
                       },
                   .rotation = local_if_windowed(windows),
                   .local_rope = {{"rope_theta", io::get_number(json, "rope_local_base_freq", 1e-3,
                                                                1e12, 10000)}},
                   .norm = "embedding_norm"});
}

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  if (io::get_string(json, "model_type") == "lfm3") return make_third(json, parameters);
  const nn::DecoderConfig config(json);
  nn::LayerShape full = plain_layer(config);
  full.attention.qk_norm = nn::QkNorm::kHeads;
  full.attention.q_norm = "q_layernorm";
  full.attention.k_norm = "k_layernorm";
  full.attention.output = "out_proj";
  set_names(full);
  const nn::LayerShape convolution = with_convolution(json, config, full);
  const std::vector<bool> has_convolution = io::convolution_layers(json);
  std::function<nn::LayerShape(int64_t)> layer = [=](int64_t i) {
    return has_convolution[static_cast<size_t>(i)] ? convolution : full;
  };
  if (io::get_string(json, "model_type") == "lfm2_moe") {
    layer = with_experts(json, layer, experts(json, config, full.mlp));
  }
  return std::make_unique<DecoderLm>(json, config, parameters,
                                     DecoderShape{.layer = layer, .norm = "embedding_norm"});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("lfm2", {{"intermediate_size", 48},
                                              {"block_auto_adjust_ff_dim", false},
                                              {"num_hidden_layers", 3},
                                              {"conv_L_cache", 3},
                                              {"layer_types", {"conv", "full_attention", "conv"}},
                                              {"norm_eps", 1e-5},
                                              {"rope_theta", 1e6},
                                              {"tie_word_embeddings", true}});
  io::Json biased = base;
  biased["conv_bias"] = true;
  biased["conv_L_cache"] = 4;
  biased["layer_types"] = {"full_attention", "conv", "conv"};
  biased["tie_word_embeddings"] = false;
  io::Json mixture = base;
  mixture.update({{"model_type", "lfm2_moe"},
                  {"moe_intermediate_size", 16},
                  {"num_experts", 4},
                  {"num_experts_per_tok", 2},
                  {"norm_topk_prob", true},
                  {"use_expert_bias", true},
                  {"routed_scaling_factor", 1.0},
                  {"num_dense_layers", 1},
                  {"mlp_only_layers", {0}}});
  io::Json scaled = mixture;
  scaled.update({{"norm_topk_prob", false},
                 {"use_expert_bias", false},
                 {"routed_scaling_factor", 2.5},
                 {"num_dense_layers", 0},
                 {"mlp_only_layers", io::Json::array()},
                 {"tie_word_embeddings", false}});
  io::Json third = base;
  third.update({{"model_type", "lfm3"},
                {"num_hidden_layers", 4},
                {"head_dim", 12},
                {"conv_L_cache", 5},
                {"sliding_window", 3},
                {"layer_types", {kConv, kFull, kSliding, kConv}},
                {"rope_local_base_freq", 1e4},
                {"rope_scaling", {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.5}}}});
  io::Json ungated = third;
  ungated.update({{"use_attention_gate", false},
                  {"use_sandwich_norm", false},
                  {"attention_bias", true},
                  {"conv_bias", true},
                  {"tie_word_embeddings", false}});
  return {base, biased, mixture, scaled, third, ungated};
}

constexpr std::string_view kModelTypes[] = {"lfm2", "lfm2_moe", "lfm3"};

}  // namespace lfm2

extern const ModelDef kLfm2;
const ModelDef kLfm2 = {"lfm2", lfm2::kModelTypes, lfm2::make, lfm2::tiny_configs};

}  // namespace lumen::models
