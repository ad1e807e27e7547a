// SmolLM3 (Bakouch et al. 2025, "SmolLM3: smol, multilingual, long-context reasoner").
//
// Loads SmolLM3 3B. Differs from plain Llama by layers, every fourth, that do not rotate queries
// and keys (NoPE: Yang et al. 2025, "Rope to Nope and Back Again").
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace smollm3 {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.mlp.bias = io::get_bool(json, "mlp_bias", false);
  const std::vector<bool> rotates = io::rotating_layers(json);
  auto rotation = [&](int64_t i) {
    return rotates[static_cast<size_t>(i)] ? Rotation::kGlobal : Rotation::kNone;
  };
  return std::make_unique<DecoderLm>(
      json, config, parameters,
      DecoderShape{.layer = with_windows(layer, io::layer_windows(json)), .rotation = rotation});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("smollm3", {{"intermediate_size", 48},
                                                 {"num_hidden_layers", 4},
                                                 {"rms_norm_eps", 1e-6},
                                                 {"rope_theta", 5e6},
                                                 {"rope_interleaved", true},
                                                 {"tie_word_embeddings", true}});
  io::Json listed = base;
  listed["num_hidden_layers"] = 2;
  listed["no_rope_layers"] = {0, 1};
  listed["rope_interleaved"] = false;
  listed["attention_bias"] = true;
  return {base, listed};
}

constexpr std::string_view kModelTypes[] = {"smollm3"};

}  // namespace smollm3

extern const ModelDef kSmollm3;
const ModelDef kSmollm3 = {"smollm3", smollm3::kModelTypes, smollm3::make, smollm3::tiny_configs};

}  // namespace lumen::models
