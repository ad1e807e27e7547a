// Arcee (Arcee AI 2025, "AFM-4.5B").
//
// Loads AFM-4.5B and its base model. Differs from Llama by a feed-forward layer without a gate,
// whose activation is the square of ReLU.
#include "models/decoder_lm.h"

namespace lumen::models {
namespace arcee {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.plain_mlp = plain_mlp(config, io::get_bool(json, "mlp_bias", false));
  return std::make_unique<DecoderLm>(json, config, parameters,
                                     DecoderShape{.layer = [=](int64_t) { return layer; }});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config(
      "arcee", {{"intermediate_size", 48}, {"rope_theta", 10000.0}, {"hidden_act", "relu2"}});
  io::Json biased = base;
  biased.update(
      {{"attention_bias", true},
       {"mlp_bias", true},
       {"tie_word_embeddings", true},
       {"rope_scaling",
        {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}}}});
  return {base, biased};
}

constexpr std::string_view kModelTypes[] = {"arcee"};

}  // namespace arcee

extern const ModelDef kArcee;
const ModelDef kArcee = {"arcee", arcee::kModelTypes, arcee::make, arcee::tiny_configs};

}  // namespace lumen::models
