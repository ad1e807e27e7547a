// EXAONE 4.0 (LG AI Research 2025, "EXAONE 4.0: Unified Large Language Models Integrating
// Non-reasoning and Reasoning Modes") and K-EXAONE (LG AI Research 2026, "K-EXAONE Technical
// Report").
//
// Loads EXAONE 4.0 1.2B and 32B and K-EXAONE-236B-A23B. Differs from plain Llama by norms after
// each branch instead of before it, and of every query and key head before rotation. The larger has
// a sliding window in three of four layers, and no rotation in the fourth. So has K-EXAONE, with
// norms as Llama's and, but for the first layers, mixtures of experts as DeepSeek-V3 has them.
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace exaone4 {

nn::SparseMlpShape experts(const io::Json& json, const nn::DecoderConfig& config) {
  nn::SparseMlpShape shape = grouped_experts_of(json, config);
  shape.choice.correction = "e_score_correction_bias";
  return shape;
}

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.qkv_bias = layer.attention.output_bias = false;  // whatever the config says
  layer.attention.qk_norm = nn::QkNorm::kHeads;
  const bool mixture = io::get_string(json, "model_type") == "exaone_moe";
  if (!mixture) {
    layer.norms = {.before_attention = "",
                   .after_attention = "post_attention_layernorm",
                   .before_mlp = "",
                   .after_mlp = "post_feedforward_layernorm"};
  }
  const std::vector<int64_t> windows = io::layer_windows(json);
  const bool rotates_all = config.sliding_window == 0;
  const auto rotation = [=](int64_t i) {
    const bool rotates = rotates_all || windows[static_cast<size_t>(i)] > 0;
    return rotates ? Rotation::kGlobal : Rotation::kNone;
  };
  DecoderShape shape{.layer = with_windows(layer, windows), .rotation = rotation};
  if (mixture) shape.layer = with_experts(json, shape.layer, experts(json, config));
  return std::make_unique<DecoderLm>(json, config, parameters, shape);
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("exaone4", {{"intermediate_size", 48},
                                                 {"rope_theta", 1e6},
                                                 {"sliding_window", nullptr},
                                                 {"tie_word_embeddings", true}});
  io::Json hybrid = base;
  hybrid["sliding_window"] = 3;
  hybrid["layer_types"] = {"sliding_attention", "full_attention"};
  hybrid["tie_word_embeddings"] = false;
  io::Json mixture = hybrid;
  mixture.update({{"model_type", "exaone_moe"},
                  {"num_hidden_layers", 4},
                  {"layer_types", io::periodic_layer_types(4, 4)},
                  {"moe_intermediate_size", 16},
                  {"num_experts", 4},
                  {"num_experts_per_tok", 3},
                  {"n_shared_experts", 1},
                  {"num_shared_experts", 1},
                  {"routed_scaling_factor", 2.5},
                  {"norm_topk_prob", true},
                  {"n_group", 1},
                  {"topk_group", 1},
                  {"first_k_dense_replace", 1},
                  {"mlp_only_layers", {0}}});
  return {base, hybrid, mixture};
}

constexpr std::string_view kModelTypes[] = {"exaone4", "exaone_moe"};

}  // namespace exaone4

extern const ModelDef kExaone4;
const ModelDef kExaone4 = {"exaone4", exaone4::kModelTypes, exaone4::make, exaone4::tiny_configs};

}  // namespace lumen::models
