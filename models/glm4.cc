// GLM-4 (GLM Team 2024, "ChatGLM: A Family of Large Language Models from GLM-130B to GLM-4").
//
// Loads the dense models of April 2025, GLM-4-9B-0414, GLM-4-32B-0414, GLM-Z1, and GLM-4-9B before
// them (glm). Differs from plain Llama by norms after each branch as well as before it, which glm
// lacks, biases on the query, key and value projections, one product for gate and up, and heads of
// which half rotates, in pairs of neighbours.
#include "models/decoder_lm.h"

namespace lumen::models {
namespace glm4 {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.output_bias = false;
  layer.mlp.fused = true;
  if (io::get_string(json, "model_type") == "glm4") {
    layer.norms.after_attention = "post_self_attn_layernorm";
    layer.norms.after_mlp = "post_mlp_layernorm";
  }
  return std::make_unique<DecoderLm>(json, config, parameters,
                                     DecoderShape{.layer = [=](int64_t) { return layer; }});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("glm4", {{"intermediate_size", 48},
                                              {"head_dim", 8},
                                              {"rope_theta", 10000.0},
                                              {"rope_interleaved", true},
                                              {"partial_rotary_factor", 0.5},
                                              {"attention_bias", true}});
  io::Json plain = base;
  plain["attention_bias"] = false;
  plain["partial_rotary_factor"] = 1.0;
  plain["head_dim"] = 16;
  io::Json first = base;
  first["model_type"] = "glm";
  return {base, plain, first};
}

constexpr std::string_view kModelTypes[] = {"glm4", "glm"};

}  // namespace glm4

extern const ModelDef kGlm4;
const ModelDef kGlm4 = {"glm4", glm4::kModelTypes, glm4::make, glm4::tiny_configs};

}  // namespace lumen::models
