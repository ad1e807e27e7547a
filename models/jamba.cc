// Jamba (AI21 Labs 2024, "Jamba: A Hybrid Transformer-Mamba Language Model").
//
// Loads Jamba v0.1, 1.5, 1.6 and 1.7 (Mini 52B-A12B, Large 398B-A94B) and Jamba Reasoning 3B.
// Differs from plain Llama by the mixer of Mamba, with norms inside, in place of attention in all
// layers but every attn_layer_period-th, where nothing rotates, by mixtures of experts in place of
// every expert_layer_period-th feed-forward layer, whose weights are the router's, not added up to
// 1, and by names.
#include "lib/base/limits.h"
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace jamba {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  constexpr const char* kFeedForward = "feed_forward";
  const nn::DecoderConfig config(json);
  require_silu(json, "Mamba");
  nn::LayerShape attention = plain_layer(config);
  attention.norms.before_mlp = "pre_ff_layernorm";
  attention.mlp.name = kFeedForward;
  nn::LayerShape recurrent = attention;
  recurrent.mamba1 =
      nn::Mamba1Shape{.name = "mamba",
                      .hidden = config.hidden_size,
                      .inner = io::get_int(json, "mamba_expand", 1, 64) * config.hidden_size,
                      .state = io::get_int(json, "mamba_d_state", 1, limits::kDim),
                      .step_rank = io::get_int(json, "mamba_dt_rank", 1, limits::kDim),
                      .kernel = io::get_int(json, "mamba_d_conv", 2, io::kMostConvTaps),
                      .conv_bias = io::get_bool(json, "mamba_conv_bias", true),
                      .bias = io::get_bool(json, "mamba_proj_bias", false),
                      .norms = nn::Mamba1Norms::kWeighted,
                      .eps = config.rms_norm_eps};
  const int64_t period = io::get_int(json, "attn_layer_period", 1, limits::kLayers);
  const int64_t offset = io::get_int(json, "attn_layer_offset", 0, limits::kLayers);
  std::function<nn::LayerShape(int64_t)> layer = [=](int64_t i) {
    return i % period == offset ? attention : recurrent;
  };
  if (io::expert_count(json) > 0) {
    nn::SparseMlpShape experts = experts_of(json, config, "num_experts");
    experts.name = kFeedForward;
    experts.router = "router";
    layer = with_experts(json, layer, experts);
  }
  return std::make_unique<DecoderLm>(
      json, config, parameters,
      DecoderShape{.layer = layer,
                   .rotation = [](int64_t) { return Rotation::kNone; },
                   .norm = "final_layernorm"});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("jamba", {{"intermediate_size", 48},
                                               {"num_hidden_layers", 3},
                                               {"attn_layer_period", 2},
                                               {"attn_layer_offset", 1},
                                               {"mlp_only_layers", {0, 2}},
                                               {"num_experts", 3},
                                               {"num_experts_per_tok", 2},
                                               {"rms_norm_eps", 1e-6},
                                               {"mamba_d_state", 6},
                                               {"mamba_d_conv", 4},
                                               {"mamba_dt_rank", 2},
                                               {"mamba_expand", 2},
                                               {"initializer_range", 0.3},
                                               {"tie_word_embeddings", false}});
  io::Json dense = base;
  dense.update({{"num_experts", 0},
                {"num_hidden_layers", 2},
                {"mlp_only_layers", {0, 1}},
                {"attn_layer_offset", 0},
                {"mamba_d_conv", 3},
                {"mamba_conv_bias", false},
                {"mamba_proj_bias", true},
                {"tie_word_embeddings", true}});
  return {base, dense};
}

constexpr std::string_view kModelTypes[] = {"jamba"};

}  // namespace jamba

extern const ModelDef kJamba;
const ModelDef kJamba = {"jamba", jamba::kModelTypes, jamba::make, jamba::tiny_configs};

}  // namespace lumen::models
