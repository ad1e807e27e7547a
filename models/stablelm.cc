// StableLM (Stability AI 2023, "StableLM 3B 4E1T"; Bellagente et al. 2024, "Stable LM 2 1.6B
// Technical Report").
//
// Loads StableLM 3B, Zephyr 3B, Stable Code 3B and Stable LM 2 (1.6B, 12B). Differs from plain
// Llama by LayerNorm instead of RMSNorm, heads of which a quarter rotates, optional biases of q, k
// and v, and, in the largest, attention and feed-forward layer side by side after one norm, and
// norms of queries and keys with a weight for each head (io/head_norms.h).
#include "models/decoder_lm.h"

namespace lumen::models {
namespace stablelm {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.drops_mixed = false;
  config.dropout = 0;  // of the embedding
  layer.attention.qkv_bias = io::get_bool(json, "use_qkv_bias", false);
  layer.attention.output_bias = false;
  if (io::get_bool(json, "qk_layernorm", false)) layer.attention.qk_norm = nn::QkNorm::kEachHead;
  layer.attention.q_norm = "q_layernorm";
  layer.attention.k_norm = "k_layernorm";
  layer.norm.kind = nn::NormKind::kLayer;
  layer.parallel = io::get_bool(json, "use_parallel_residual", false);
  if (layer.parallel) layer.norms.before_mlp = "";
  return std::make_unique<DecoderLm>(json, config, parameters,
                                     DecoderShape{.layer = [=](int64_t) { return layer; }});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("stablelm", {{"intermediate_size", 48},
                                                  {"layer_norm_eps", 1e-5},
                                                  {"rope_theta", 10000.0},
                                                  {"partial_rotary_factor", 0.5},
                                                  {"use_qkv_bias", true}});
  io::Json parallel = base;
  parallel.update({{"use_parallel_residual", true},
                   {"use_qkv_bias", false},
                   {"qk_layernorm", true},
                   {"tie_word_embeddings", true}});
  return {base, parallel};
}

constexpr std::string_view kModelTypes[] = {"stablelm"};

}  // namespace stablelm

extern const ModelDef kStablelm;
const ModelDef kStablelm = {"stablelm", stablelm::kModelTypes, stablelm::make,
                            stablelm::tiny_configs};

}  // namespace lumen::models
