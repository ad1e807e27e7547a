// OLMo (Groeneveld et al. 2024, "OLMo: Accelerating the Science of Language Models").
//
// Loads OLMo 1B and 7B and what followed them until OLMo 2 (OLMo-1B-hf, OLMo-7B-0724-hf). Differs
// from plain Llama by LayerNorm without weights instead of RMSNorm, and by queries, keys and values
// that some clip.
#include "models/decoder_lm.h"

namespace lumen::models {
namespace olmo {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.clip = clip_of(json);
  layer.norm.kind = nn::NormKind::kPlainLayer;
  return std::make_unique<DecoderLm>(json, config, parameters,
                                     DecoderShape{.layer = [=](int64_t) { return layer; }});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config(
      "olmo", {{"intermediate_size", 48}, {"num_key_value_heads", 4}, {"rope_theta", 10000.0}});
  io::Json clipped = base;
  clipped.update({{"clip_qkv", 0.5},
                  {"num_key_value_heads", 2},
                  {"attention_bias", true},
                  {"tie_word_embeddings", true}});
  return {base, clipped};
}

constexpr std::string_view kModelTypes[] = {"olmo"};

}  // namespace olmo

extern const ModelDef kOlmo;
const ModelDef kOlmo = {"olmo", olmo::kModelTypes, olmo::make, olmo::tiny_configs};

}  // namespace lumen::models
