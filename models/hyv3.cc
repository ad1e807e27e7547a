// Hy3 (Tencent 2026, "Hy3-preview").
//
// Loads Hy3-preview (295B-A21B). Differs from plain Llama by norms of every query and key head and,
// but for the first layer, by mixtures of experts beside one that all tokens go through, chosen by
// sigmoids with a correction each.
#include "models/decoder_lm.h"

namespace lumen::models {
namespace hyv3 {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape dense = plain_layer(config);
  dense.attention.qk_norm = nn::QkNorm::kHeads;
  dense.mlp.bias = io::get_bool(json, "mlp_bias", false);
  nn::SparseMlpShape experts = grouped_experts_of(json, config);
  experts.router = "router.gate";
  experts.choice.correction = "expert_bias";
  experts.shared_name = "shared_mlp";
  experts.shared_bias = dense.mlp.bias;
  const auto layer = with_experts(
      json, [dense](int64_t) { return dense; }, experts);
  return std::make_unique<DecoderLm>(json, config, parameters, DecoderShape{.layer = layer});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("hy_v3", {{"intermediate_size", 48},
                                               {"moe_intermediate_size", 16},
                                               {"head_dim", 16},
                                               {"num_experts", 4},
                                               {"num_experts_per_tok", 2},
                                               {"n_shared_experts", 1},
                                               {"routed_scaling_factor", 2.826},
                                               {"norm_topk_prob", true},
                                               {"mlp_only_layers", {0}},
                                               {"rope_theta", 1e6}});
  io::Json biased = base;
  biased.update({{"n_shared_experts", 2},
                 {"first_k_dense_replace", 0},
                 {"mlp_only_layers", io::Json::array()},
                 {"attention_bias", true},
                 {"mlp_bias", true},
                 {"tie_word_embeddings", true}});
  return {base, biased};
}

constexpr std::string_view kModelTypes[] = {"hy_v3"};

}  // namespace hyv3

extern const ModelDef kHyv3;
const ModelDef kHyv3 = {"hyv3", hyv3::kModelTypes, hyv3::make, hyv3::tiny_configs};

}  // namespace lumen::models
