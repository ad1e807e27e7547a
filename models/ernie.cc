// ERNIE 4.5 (Baidu ERNIE Team 2025, "ERNIE 4.5 Technical Report").
//
// Loads the dense ERNIE-4.5-0.3B. Differs from plain Llama by rotation in pairs of neighbours,
// heads wider than hidden_size over their number, and a head tied to the embedding.
#include "models/decoder_lm.h"

namespace lumen::models {
namespace ernie {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.qkv_bias = layer.attention.output_bias = layer.mlp.bias =
      io::get_bool(json, "use_bias", false);
  return std::make_unique<DecoderLm>(json, config, parameters,
                                     DecoderShape{.layer = [=](int64_t) { return layer; }});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = {{"model_type", "ernie4_5"},
                         {"hidden_size", 24},
                         {"intermediate_size", 40},
                         {"num_hidden_layers", 2},
                         {"num_attention_heads", 4},
                         {"num_key_value_heads", 2},
                         {"head_dim", 16},
                         {"vocab_size", 37},
                         {"max_position_embeddings", 64},
                         {"rms_norm_eps", 1e-5},
                         {"rope_theta", 5e5},
                         {"rope_interleaved", true},
                         {"tie_word_embeddings", true}};
  io::Json biased = base;
  biased["use_bias"] = true;
  biased["tie_word_embeddings"] = false;
  return {base, biased};
}

constexpr std::string_view kModelTypes[] = {"ernie4_5"};

}  // namespace ernie

extern const ModelDef kErnie;
const ModelDef kErnie = {"ernie", ernie::kModelTypes, ernie::make, ernie::tiny_configs};

}  // namespace lumen::models
