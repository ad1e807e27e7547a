// Qwen3 (Yang et al. 2025, "Qwen3 Technical Report").
//
// Loads the dense Qwen3 sizes, and the language model of Qwen3-VL, whose three positions are equal
// in text. Differs from plain Llama by an RMSNorm of every query and key head
// before rotation, a head_dim that is not hidden_size / heads, a rotary base of 10^6 and an
// optional sliding window on some layers; small sizes tie the output head to the embedding.
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace qwen3 {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.qk_norm = nn::QkNorm::kHeads;
  return std::make_unique<DecoderLm>(
      json, config, parameters,
      DecoderShape{.layer = with_windows(layer, io::layer_windows(json))});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("qwen3", {{"hidden_size", 24},
                                               {"intermediate_size", 40},
                                               {"head_dim", 16},
                                               {"vocab_size", 43},
                                               {"rms_norm_eps", 1e-6},
                                               {"rope_theta", 1e6},
                                               {"tie_word_embeddings", true}});
  io::Json biased = base;
  biased["attention_bias"] = true;
  biased["sliding_window"] = 4;
  biased["layer_types"] = {"sliding_attention", "full_attention"};
  io::Json seeing = base;
  seeing["model_type"] = "qwen3_vl_text";
  seeing["n_deepstack_layers"] = 1;
  return {base, biased, seeing};
}

constexpr std::string_view kModelTypes[] = {"qwen3", "qwen3_vl_text"};

}  // namespace qwen3

extern const ModelDef kQwen3;
const ModelDef kQwen3 = {"qwen3", qwen3::kModelTypes, qwen3::make, qwen3::tiny_configs};

}  // namespace lumen::models
