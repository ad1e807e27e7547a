// dots.llm1 (rednote-hilab 2025, "dots.llm1 Technical Report").
//
// Loads dots.llm1 base and inst (142B-A14B). Differs from plain Llama by norms of every query and
// key head and, but for the first layers, by mixtures of experts as DeepSeek-V3 has them. A window,
// if there is one, is that of the last layers.
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace dots1 {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape dense = plain_layer(config);
  dense.attention.qk_norm = nn::QkNorm::kHeads;
  const auto layer = with_experts(json, with_windows(dense, io::layer_windows(json)),
                                  grouped_experts_of(json, config));
  return std::make_unique<DecoderLm>(json, config, parameters, DecoderShape{.layer = layer});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("dots1", {{"intermediate_size", 48},
                                               {"moe_intermediate_size", 16},
                                               {"head_dim", 16},
                                               {"num_experts", 4},
                                               {"n_routed_experts", 4},
                                               {"num_experts_per_tok", 2},
                                               {"n_shared_experts", 2},
                                               {"routed_scaling_factor", 2.5},
                                               {"norm_topk_prob", true},
                                               {"n_group", 1},
                                               {"topk_group", 1},
                                               {"first_k_dense_replace", 1},
                                               {"mlp_only_layers", {0}},
                                               {"sliding_window", nullptr},
                                               {"rope_theta", 1e7}});
  io::Json windowed = base;
  windowed.update({{"sliding_window", 3},
                   {"max_window_layers", 1},
                   {"attention_bias", true},
                   {"n_shared_experts", 1},
                   {"norm_topk_prob", false},
                   {"first_k_dense_replace", 0},
                   {"mlp_only_layers", io::Json::array()}});
  return {base, windowed};
}

constexpr std::string_view kModelTypes[] = {"dots1"};

}  // namespace dots1

extern const ModelDef kDots1;
const ModelDef kDots1 = {"dots1", dots1::kModelTypes, dots1::make, dots1::tiny_configs};

}  // namespace lumen::models
