// Ling 2.0 (Ling Team 2025, "Every Activation Boosted: Scaling General Reasoner to 1 Trillion Open
// Language Foundation").
//
// Loads Ling-mini-2.0, Ling-flash-2.0, Ling-1T and what is trained from them (Ring). Differs from
// GLM-4.5, whose experts it has, by one product for queries, keys and values and by names.
#include "lib/base/error.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace ling {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  if (const std::string scores = io::get_string(json, "score_function", "sigmoid");
      scores != "sigmoid") {
    fail(ErrorKind::kUnsupported, "score_function ", quoted(scores),
         " is not supported; known: sigmoid");
  }
  if (io::get_bool(json, "norm_head", false)) {
    fail(ErrorKind::kUnsupported, "norm_head true is not supported: outputs of unit length");
  }
  const nn::DecoderConfig config(json);
  nn::LayerShape dense = plain_layer(config);
  dense.attention.name = "attention";
  dense.attention.fused = true;
  dense.attention.fused_name = "query_key_value";
  dense.attention.output = "dense";
  dense.attention.qkv_bias = io::get_bool(json, "use_qkv_bias", false);
  dense.attention.output_bias = io::get_bool(json, "use_bias", false);
  dense.attention.q_norm = "query_layernorm";
  dense.attention.k_norm = "key_layernorm";
  if (io::get_bool(json, "use_qk_norm", true)) dense.attention.qk_norm = nn::QkNorm::kHeads;
  nn::SparseMlpShape experts = grouped_experts_of(json, config);
  experts.choice.correction = "gate.expert_bias";
  const auto layer = with_experts(
      json, [dense](int64_t) { return dense; }, experts);
  return std::make_unique<DecoderLm>(json, config, parameters, DecoderShape{.layer = layer});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("bailing_moe_v2", {{"intermediate_size", 48},
                                                        {"moe_intermediate_size", 16},
                                                        {"head_dim", 8},
                                                        {"num_experts", 4},
                                                        {"n_routed_experts", 4},
                                                        {"num_experts_per_tok", 2},
                                                        {"num_shared_experts", 1},
                                                        {"n_shared_experts", 1},
                                                        {"routed_scaling_factor", 2.5},
                                                        {"norm_topk_prob", true},
                                                        {"n_group", 1},
                                                        {"topk_group", 1},
                                                        {"first_k_dense_replace", 1},
                                                        {"mlp_only_layers", {0}},
                                                        {"rms_norm_eps", 1e-6},
                                                        {"rope_theta", 6e5},
                                                        {"partial_rotary_factor", 0.5}});
  io::Json other = base;
  other.update({{"use_qkv_bias", true},
                {"use_bias", true},
                {"use_qk_norm", false},
                {"num_key_value_heads", 1},
                {"n_group", 2},
                {"partial_rotary_factor", 1.0},
                {"num_shared_experts", 2},
                {"n_shared_experts", 2},
                {"first_k_dense_replace", 0},
                {"mlp_only_layers", io::Json::array()},
                {"tie_word_embeddings", true}});
  return {base, other};
}

constexpr std::string_view kModelTypes[] = {"bailing_moe_v2"};

}  // namespace ling

extern const ModelDef kLing;
const ModelDef kLing = {"ling", ling::kModelTypes, ling::make, ling::tiny_configs};

}  // namespace lumen::models
