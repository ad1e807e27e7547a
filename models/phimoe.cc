// Phi-3.5-MoE (Abdin et al. 2024, "Phi-3 Technical Report: A Highly Capable Language Model Locally
// on Your Phone").
//
// Loads Phi-3.5-MoE, Phi-mini-MoE and Phi-tiny-MoE. Differs from Mixtral by LayerNorm instead of
// RMSNorm, biases of attention and the output head, rotation by other factors in long contexts, and
// how the two experts of a token are weighted: each by its probability among those that are near it
// (nn::ExpertChoice::jitter).
#include "lib/base/error.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace phimoe {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.window = config.sliding_window;
  layer.norm.kind = nn::NormKind::kLayer;
  layer.experts = mixtral_experts_of(json, config);
  layer.experts->named_alone = false;
  layer.experts->choice.jitter = io::get_number(json, "router_jitter_noise", 1e-9, 1, 0.01);
  if (layer.experts->used != 2) {
    fail(ErrorKind::kUnsupported, "num_experts_per_tok ", layer.experts->used,
         " is not supported for model_type 'phimoe', whose router chooses 2");
  }
  return std::make_unique<DecoderLm>(
      json, config, parameters,
      DecoderShape{.layer = [=](int64_t) { return layer; },
                   .head_bias = io::get_bool(json, "lm_head_bias", false)});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("phimoe", {{"intermediate_size", 48},
                                                {"num_local_experts", 3},
                                                {"num_experts_per_tok", 2},
                                                {"rope_theta", 10000.0},
                                                {"attention_bias", true},
                                                {"lm_head_bias", true},
                                                {"router_jitter_noise", 0.3}});
  io::Json plain = base;
  plain.update({{"attention_bias", false},
                {"lm_head_bias", false},
                {"tie_word_embeddings", true},
                {"sliding_window", 4}});
  return {base, plain};
}

constexpr std::string_view kModelTypes[] = {"phimoe"};

}  // namespace phimoe

extern const ModelDef kPhimoe;
const ModelDef kPhimoe = {"phimoe", phimoe::kModelTypes, phimoe::make, phimoe::tiny_configs};

}  // namespace lumen::models
