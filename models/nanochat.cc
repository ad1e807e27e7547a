// nanochat (Karpathy 2025, https://github.com/karpathy/nanochat).
//
// Loads nanochat d20, d32 and d34. Differs from plain Llama by norms without weights, also of what
// is embedded and, after rotation, of every query and key head; by a rotation the other way round,
// whose angles are negative; by a feed-forward layer without a gate, whose activation is the square
// of ReLU; and by logits with a cap.
#include "models/decoder_lm.h"

namespace lumen::models {
namespace nanochat {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.norm.kind = layer.attention.norm.kind = nn::NormKind::kPlainRms;
  layer.attention.qk_norm = nn::QkNorm::kHeads;
  layer.attention.rotates_first = true;
  layer.plain_mlp = plain_mlp(config, /*bias=*/false);
  layer.plain_mlp->up = "fc1";
  layer.plain_mlp->down = "fc2";
  io::Json backward = json;
  backward["rope_backward"] = true;
  return std::make_unique<DecoderLm>(
      backward, config, parameters,
      DecoderShape{.layer = [=](int64_t) { return layer; },
                   .embedding_norm = DecoderShape::EmbeddingNorm{.name = "", .shape = layer.norm},
                   .logit_cap = soft_cap(json, "final_logit_softcapping")});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("nanochat", {{"intermediate_size", 48},
                                                  {"num_key_value_heads", 4},
                                                  {"rms_norm_eps", 1e-6},
                                                  {"rope_theta", 10000.0},
                                                  {"hidden_act", "relu2"},
                                                  {"final_logit_softcapping", 15.0}});
  io::Json other = base;
  other.update({{"num_key_value_heads", 2},
                {"attention_bias", true},
                {"tie_word_embeddings", true},
                {"final_logit_softcapping", nullptr},
                {"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}});
  return {base, other};
}

constexpr std::string_view kModelTypes[] = {"nanochat"};

}  // namespace nanochat

extern const ModelDef kNanochat;
const ModelDef kNanochat = {"nanochat", nanochat::kModelTypes, nanochat::make,
                            nanochat::tiny_configs};

}  // namespace lumen::models
