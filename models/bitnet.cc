// BitNet b1.58 (Ma et al. 2024, "The Era of 1-bit LLMs: All Large Language Models are in 1.58
// Bits"; Ma et al. 2025, "BitNet b1.58 2B4T Technical Report").
//
// Loads BitNet b1.58 2B4T. Differs from plain Llama by norms of what the last projections of
// attention and of the feed-forward layer are given, and by an activation that is the square of
// ReLU. Weights are −1, 0 or 1 times a number for each matrix (io/packed_weights.h).
#include "models/decoder_lm.h"

namespace lumen::models {
namespace bitnet {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.output_norm = "attn_sub_norm";
  layer.mlp.down_norm = "ffn_sub_norm";
  layer.mlp.norm = layer.norm;
  return std::make_unique<DecoderLm>(json, config, parameters,
                                     DecoderShape{.layer = [=](int64_t) { return layer; }});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("bitnet", {{"intermediate_size", 48},
                                                {"rope_theta", 500000.0},
                                                {"hidden_act", "relu2"},
                                                {"tie_word_embeddings", true}});
  io::Json other = base;
  other.update({{"hidden_act", "silu"},
                {"attention_bias", true},
                {"tie_word_embeddings", false},
                {"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}});
  return {base, other};
}

constexpr std::string_view kModelTypes[] = {"bitnet"};

}  // namespace bitnet

extern const ModelDef kBitnet;
const ModelDef kBitnet = {"bitnet", bitnet::kModelTypes, bitnet::make, bitnet::tiny_configs};

}  // namespace lumen::models
