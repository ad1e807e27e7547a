// LFM2 (Liquid AI 2025, "LFM2 Technical Report").
//
// Loads LFM2 and LFM2.5, 350M to 2.6B, and the mixtures of experts LFM2-8B-A1B and LFM2-24B-A2B.
// Differs from plain Llama by gated short convolutions in place of attention in most layers, norms
// of every query and key head before rotation, and names. In the mixtures all but the first layers
// have experts, whose scores are sigmoids, with a correction per expert.
#include "lib/base/limits.h"
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace lfm2 {

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

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape full = plain_layer(config);
  full.attention.qk_norm = nn::QkNorm::kHeads;
  full.attention.q_norm = "q_layernorm";
  full.attention.k_norm = "k_layernorm";
  full.attention.output = "out_proj";
  full.mlp.name = "feed_forward";
  full.mlp.gate = "w1";
  full.mlp.up = "w3";
  full.mlp.down = "w2";
  full.norms = {.before_attention = "operator_norm", .before_mlp = "ffn_norm"};
  nn::LayerShape convolution = full;
  convolution.short_convolution = {
      .hidden = config.hidden_size,
      .kernel = io::get_int(json, "conv_L_cache", 2, io::kMostConvTaps),
      .bias = io::get_bool(json, "conv_bias", false)};
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
  const io::Json base = {{"model_type", "lfm2"},
                         {"hidden_size", 32},
                         {"intermediate_size", 48},
                         {"block_auto_adjust_ff_dim", false},
                         {"num_hidden_layers", 3},
                         {"num_attention_heads", 4},
                         {"num_key_value_heads", 2},
                         {"conv_L_cache", 3},
                         {"layer_types", {"conv", "full_attention", "conv"}},
                         {"vocab_size", 37},
                         {"max_position_embeddings", 64},
                         {"norm_eps", 1e-5},
                         {"rms_norm_eps", 1e-5},
                         {"rope_theta", 1e6},
                         {"tie_word_embeddings", true}};
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
  return {base, biased, mixture, scaled};
}

constexpr std::string_view kModelTypes[] = {"lfm2", "lfm2_moe"};

}  // namespace lfm2

extern const ModelDef kLfm2;
const ModelDef kLfm2 = {"lfm2", lfm2::kModelTypes, lfm2::make, lfm2::tiny_configs};

}  // namespace lumen::models
