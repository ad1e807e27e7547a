// ERNIE 4.5 (Baidu ERNIE Team 2025, "ERNIE 4.5 Technical Report").
//
// Loads the dense ERNIE-4.5-0.3B and the mixtures of experts ERNIE-4.5-21B-A3B and 300B-A47B.
// Differs from plain Llama by rotation in pairs of neighbours, in the dense model heads wider than
// hidden_size over their number, and a head tied to the embedding. The mixtures have experts in a
// range of layers, chosen by their probabilities with a correction each, beside some that all
// tokens go through.
#include "lib/base/limits.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace ernie {

nn::SparseMlpShape experts(const io::Json& json, const nn::DecoderConfig& config) {
  nn::SparseMlpShape shape = qwen_experts_of(json, config);
  add_shared_experts(io::get_int(json, "moe_num_shared_experts", 0, limits::kExperts, 2), shape);
  shape.shared_bias = io::get_bool(json, "use_bias", false);
  shape.normalize = true;
  shape.choice.correction = "moe_statics.e_score_correction_bias";
  shape.choice.correction_row = true;
  shape.choice.least = io::get_number(json, "moe_norm_min", 0, 1, 1e-12);
  return shape;
}

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.qkv_bias = layer.attention.output_bias = layer.mlp.bias =
      io::get_bool(json, "use_bias", false);
  DecoderShape shape{.layer = [=](int64_t) { return layer; }};
  if (io::get_string(json, "model_type") == "ernie4_5_moe") {
    shape.layer = with_experts(json, shape.layer, experts(json, config));
    shape.head_bias = layer.mlp.bias;
  }
  return std::make_unique<DecoderLm>(json, config, parameters, shape);
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("ernie4_5", {{"hidden_size", 24},
                                                  {"intermediate_size", 40},
                                                  {"head_dim", 16},
                                                  {"rope_theta", 5e5},
                                                  {"rope_interleaved", true},
                                                  {"tie_word_embeddings", true}});
  io::Json biased = base;
  biased["use_bias"] = true;
  biased["tie_word_embeddings"] = false;
  io::Json mixture = base;
  mixture.update({{"model_type", "ernie4_5_moe"},
                  {"moe_intermediate_size", 16},
                  {"num_experts", 8},
                  {"moe_num_experts", 8},
                  {"num_experts_per_tok", 6},
                  {"moe_k", 6},
                  {"moe_num_shared_experts", 2},
                  {"moe_layer_start_index", 1},
                  {"moe_layer_end_index", 1},
                  {"moe_layer_interval", 1},
                  {"mlp_only_layers", {0}}});
  io::Json alone = mixture;
  alone.update({{"use_bias", true},
                {"moe_num_shared_experts", 0},
                {"moe_norm_min", 0.9},
                {"moe_layer_start_index", 0},
                {"mlp_only_layers", io::Json::array()}});
  return {base, biased, mixture, alone};
}

constexpr std::string_view kModelTypes[] = {"ernie4_5", "ernie4_5_moe"};

}  // namespace ernie

extern const ModelDef kErnie;
const ModelDef kErnie = {"ernie", ernie::kModelTypes, ernie::make, ernie::tiny_configs};

}  // namespace lumen::models
