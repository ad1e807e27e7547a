// OLMoE (Muennighoff et al. 2024, "OLMoE: Open Mixture-of-Experts Language Models").
//
// Loads OLMoE-1B-7B. Differs from Llama by a mixture of experts in place of every feed-forward
// layer, whose router's softmax is over all experts, and by norms of all query and all key heads at
// once.
#include "models/decoder_lm.h"

namespace lumen::models {
namespace olmoe {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.qk_norm = nn::QkNorm::kWhole;
  layer.attention.clip = clip_of(json);
  layer.experts = experts_of(json, config, "num_experts");
  layer.experts->normalize = io::get_bool(json, "norm_topk_prob", false);
  return std::make_unique<DecoderLm>(json, config, parameters,
                                     DecoderShape{.layer = [=](int64_t) { return layer; }});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("olmoe", {{"intermediate_size", 16},
                                               {"num_experts", 4},
                                               {"num_experts_per_tok", 2},
                                               {"rope_theta", 10000.0}});
  io::Json normalized = base;
  normalized["norm_topk_prob"] = true;
  normalized["attention_bias"] = true;
  normalized["clip_qkv"] = 0.5;
  return {base, normalized};
}

constexpr std::string_view kModelTypes[] = {"olmoe"};

}  // namespace olmoe

extern const ModelDef kOlmoe;
const ModelDef kOlmoe = {"olmoe", olmoe::kModelTypes, olmoe::make, olmoe::tiny_configs};

}  // namespace lumen::models
