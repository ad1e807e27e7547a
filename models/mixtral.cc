// Mixtral (Jiang et al. 2024, "Mixtral of Experts").
//
// Loads Mixtral 8x7B and 8x22B. Differs from Llama by a mixture of experts in place of every
// feed-forward layer: of 8 experts each token goes through 2, weighted by a softmax over these.
#include "models/decoder_lm.h"

namespace lumen::models {
namespace mixtral {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.window = config.sliding_window;
  layer.experts = mixtral_experts_of(json, config);
  return std::make_unique<DecoderLm>(json, config, parameters,
                                     DecoderShape{.layer = [=](int64_t) { return layer; }});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("mixtral", {{"intermediate_size", 48},
                                                 {"num_local_experts", 3},
                                                 {"num_experts_per_tok", 2},
                                                 {"rope_theta", 1e6}});
  io::Json windowed = base;
  windowed["sliding_window"] = 3;
  return {base, windowed};
}

constexpr std::string_view kModelTypes[] = {"mixtral"};

}  // namespace mixtral

extern const ModelDef kMixtral;
const ModelDef kMixtral = {"mixtral", mixtral::kModelTypes, mixtral::make, mixtral::tiny_configs};

}  // namespace lumen::models
