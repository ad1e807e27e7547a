// GLM-4.5 (GLM Team 2025, "GLM-4.5: Agentic, Reasoning, and Coding (ARC) Foundation Models").
//
// Loads GLM-4.5, GLM-4.5-Air, GLM-4.6, GLM-4.7 and Solar Open 100B (Upstage 2025), all of whose
// heads rotate and all of whose layers have experts. Differs from plain Llama by heads of which
// half rotates, biases on the query, key and value projections, in all but Air norms of every query
// and key head, and, but for the first layers, by mixtures of experts as DeepSeek-V3 has them.
#include "models/decoder_lm.h"

namespace lumen::models {
namespace glm4moe {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape dense = plain_layer(config);
  dense.attention.output_bias = false;
  if (io::get_bool(json, "use_qk_norm", false)) dense.attention.qk_norm = nn::QkNorm::kHeads;
  const auto layer = with_experts(
      json, [dense](int64_t) { return dense; }, grouped_experts_of(json, config));
  return std::make_unique<DecoderLm>(json, config, parameters, DecoderShape{.layer = layer});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("glm4_moe", {{"intermediate_size", 48},
                                                  {"moe_intermediate_size", 16},
                                                  {"head_dim", 8},
                                                  {"num_experts", 4},
                                                  {"n_routed_experts", 4},
                                                  {"num_experts_per_tok", 2},
                                                  {"n_shared_experts", 1},
                                                  {"routed_scaling_factor", 1.0},
                                                  {"norm_topk_prob", true},
                                                  {"n_group", 1},
                                                  {"topk_group", 1},
                                                  {"first_k_dense_replace", 1},
                                                  {"mlp_only_layers", {0}},
                                                  {"rope_theta", 1e6},
                                                  {"partial_rotary_factor", 0.5},
                                                  {"attention_bias", true},
                                                  {"use_qk_norm", false}});
  io::Json normed = base;
  normed.update({{"use_qk_norm", true},
                 {"head_dim", 16},
                 {"partial_rotary_factor", 1.0},
                 {"attention_bias", false},
                 {"routed_scaling_factor", 2.5},
                 {"norm_topk_prob", false},
                 {"n_shared_experts", 2},
                 {"n_group", 2},
                 {"first_k_dense_replace", 0},
                 {"mlp_only_layers", io::Json::array()},
                 {"tie_word_embeddings", true}});
  io::Json solar = base;
  solar.update({{"model_type", "solar_open"},
                {"attention_bias", false},
                {"partial_rotary_factor", 1.0},
                {"num_experts_per_tok", 3},
                {"first_k_dense_replace", 0},
                {"mlp_only_layers", io::Json::array()}});
  return {base, normed, solar};
}

constexpr std::string_view kModelTypes[] = {"glm4_moe", "solar_open"};

}  // namespace glm4moe

extern const ModelDef kGlm4moe;
const ModelDef kGlm4moe = {"glm4moe", glm4moe::kModelTypes, glm4moe::make, glm4moe::tiny_configs};

}  // namespace lumen::models
