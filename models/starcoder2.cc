// StarCoder2 (Lozhkov et al. 2024, "StarCoder 2 and The Stack v2: The Next Generation").
//
// Loads StarCoder2 in all sizes. Differs from plain Llama by LayerNorm instead of RMSNorm, a GELU
// feed-forward layer without a gate, biases everywhere, and a sliding window in every layer.
#include "models/decoder_lm.h"

namespace lumen::models {
namespace starcoder2 {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  nn::DecoderConfig config(json);
  config.dropout = io::get_number(json, "embedding_dropout", 0, 1, 0);
  const bool bias = io::get_bool(json, "use_bias", true);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.qkv_bias = layer.attention.output_bias = bias;
  layer.attention.window = config.sliding_window;
  layer.norm.kind = nn::NormKind::kLayer;
  layer.plain_mlp = plain_mlp(config, bias);
  layer.plain_mlp->up = "c_fc";
  layer.plain_mlp->down = "c_proj";
  layer.dropout = io::get_number(json, "residual_dropout", 0, 1, 0);
  return std::make_unique<DecoderLm>(json, config, parameters,
                                     DecoderShape{.layer = [=](int64_t) { return layer; }});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("starcoder2", {{"intermediate_size", 48},
                                                    {"norm_epsilon", 1e-5},
                                                    {"rope_theta", 1e5},
                                                    {"tie_word_embeddings", true},
                                                    {"hidden_act", "gelu_pytorch_tanh"}});
  io::Json windowed = base;
  windowed["sliding_window"] = 3;
  windowed["use_bias"] = false;
  windowed["tie_word_embeddings"] = false;
  return {base, windowed};
}

constexpr std::string_view kModelTypes[] = {"starcoder2"};

}  // namespace starcoder2

extern const ModelDef kStarcoder2;
const ModelDef kStarcoder2 = {"starcoder2", starcoder2::kModelTypes, starcoder2::make,
                              starcoder2::tiny_configs};

}  // namespace lumen::models
