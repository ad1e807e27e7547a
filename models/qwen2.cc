// Qwen2 and Qwen2.5 (Yang et al. 2024, "Qwen2 Technical Report").
//
// Loads Qwen2 and Qwen2.5 in all dense sizes, and the language models of Qwen2-VL and Qwen2.5-VL,
// whose three positions are equal in text. Differs from plain Llama by biases on the query, key
// and value projections (not on the output), a rotary base of 10^6, and an optional sliding window
// on some layers; small sizes tie the output head to the embedding.
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace qwen2 {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.qkv_bias = true;
  layer.attention.output_bias = false;
  return std::make_unique<DecoderLm>(
      json, config, parameters,
      DecoderShape{.layer = with_windows(layer, io::layer_windows(json))});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("qwen2", {{"hidden_size", 28},
                                               {"intermediate_size", 40},
                                               {"num_attention_heads", 7},
                                               {"num_key_value_heads", 1},
                                               {"vocab_size", 41},
                                               {"rms_norm_eps", 1e-6},
                                               {"rope_theta", 1e6},
                                               {"tie_word_embeddings", true}});
  io::Json windowed = base;
  windowed["sliding_window"] = 3;
  windowed["max_window_layers"] = 1;
  windowed["tie_word_embeddings"] = false;
  io::Json seeing = base;
  seeing["model_type"] = "qwen2_vl_text";
  seeing["mrope_section"] = {0, 1, 1};
  return {base, windowed, seeing};
}

constexpr std::string_view kModelTypes[] = {"qwen2", "qwen2_vl_text", "qwen2_5_vl_text"};

}  // namespace qwen2

extern const ModelDef kQwen2;
const ModelDef kQwen2 = {"qwen2", qwen2::kModelTypes, qwen2::make, qwen2::tiny_configs};

}  // namespace lumen::models
