// Phi-3 (Abdin et al. 2024, "Phi-3 Technical Report") and Phi-4 (Abdin et al. 2024, "Phi-4
// Technical Report").
//
// Loads Phi-3 and 3.5 mini and medium, Phi-4 and Phi-4-mini. Differs from plain Llama by one
// product for q, k and v and one for gate and up; an optional sliding window; and, in those for
// long texts, rotary frequencies for short and for long contexts ("longrope") and heads that rotate
// in part.
#include "models/decoder_lm.h"

namespace lumen::models {
namespace phi3 {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.fused = layer.mlp.fused = true;
  layer.attention.window = config.sliding_window;
  return std::make_unique<DecoderLm>(json, config, parameters,
                                     DecoderShape{.layer = [=](int64_t) { return layer; }});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("phi3", {{"intermediate_size", 48}, {"rope_theta", 10000.0}});
  io::Json longer = base;
  longer["sliding_window"] = 3;
  longer["partial_rotary_factor"] = 0.75;
  longer["tie_word_embeddings"] = true;
  longer["rope_scaling"] = {{"rope_type", "longrope"},
                            {"original_max_position_embeddings", 16},
                            {"short_factor", {1.0, 1.1, 1.5}},
                            {"long_factor", {1.0, 2.5, 4.0}}};
  return {base, longer};
}

constexpr std::string_view kModelTypes[] = {"phi3"};

}  // namespace phi3

extern const ModelDef kPhi3;
const ModelDef kPhi3 = {"phi3", phi3::kModelTypes, phi3::make, phi3::tiny_configs};

}  // namespace lumen::models
