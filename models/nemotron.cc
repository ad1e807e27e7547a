// Nemotron-4 and Minitron (Parmar et al. 2024, "Nemotron-4 15B Technical Report"; Muralidharan et
// al. 2024, "Compact Language Models via Pruning and Knowledge Distillation") and Jais 2 (MBZUAI
// 2025).
//
// Loads Nemotron-4 and Minitron 4B and 8B, and Jais 2 8B and 70B. Differs from plain Llama by
// LayerNorm, whose weights Nemotron stores less 1, a feed-forward layer without a gate, whose
// activation is the square of ReLU, and, in Nemotron, heads of which half rotates, in Jais, biases.
#include "models/decoder_lm.h"

namespace lumen::models {
namespace nemotron {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.norm.kind = nn::NormKind::kLayer;
  if (io::get_string(json, "model_type") == "nemotron") {
    layer.norm.offset = io::get_number(json, "rms_norm_offset", 0, 1, 1);
  }
  layer.plain_mlp = plain_mlp(config, io::get_bool(json, "mlp_bias", false));
  return std::make_unique<DecoderLm>(json, config, parameters,
                                     DecoderShape{.layer = [=](int64_t) { return layer; }});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("nemotron", {{"intermediate_size", 48},
                                                  {"head_dim", 12},
                                                  {"norm_eps", 1e-5},
                                                  {"rope_theta", 10000.0},
                                                  {"partial_rotary_factor", 0.5},
                                                  {"hidden_act", "relu2"},
                                                  {"rms_norm_offset", 1}});
  io::Json from_gguf = base;
  from_gguf["rms_norm_offset"] = 0;
  from_gguf["attention_bias"] = true;
  from_gguf["mlp_bias"] = true;
  from_gguf["tie_word_embeddings"] = true;
  io::Json jais = from_gguf;
  jais.update({{"model_type", "jais2"}, {"layer_norm_eps", 1e-5}, {"tie_word_embeddings", false}});
  for (const char* key : {"norm_eps", "partial_rotary_factor", "rms_norm_offset"}) jais.erase(key);
  return {base, from_gguf, jais};
}

constexpr std::string_view kModelTypes[] = {"nemotron", "jais2"};

}  // namespace nemotron

extern const ModelDef kNemotron;
const ModelDef kNemotron = {"nemotron", nemotron::kModelTypes, nemotron::make,
                            nemotron::tiny_configs};

}  // namespace lumen::models
