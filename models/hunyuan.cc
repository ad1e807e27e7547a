// Hunyuan (Tencent 2025, "Hunyuan-A13B Technical Report").
//
// Loads Hunyuan 0.5B, 1.8B, 4B and 7B and Hunyuan-A13B. Differs from plain Llama by norms of every
// query and key head, after rotation, whose base an `alpha` of rope_scaling stretches (NTK-aware
// scaling). A13B has a mixture of experts in every layer, beside a layer of their size that all
// tokens go through.
#include "models/decoder_lm.h"

namespace lumen::models {
namespace hunyuan {

nn::SparseMlpShape experts(const io::Json& json, const nn::DecoderConfig& config) {
  nn::SparseMlpShape shape = experts_of(json, config, "num_experts");
  add_shared_experts(1, shape);
  shape.shared_name = "shared_mlp";
  shape.router = "gate.wg";
  shape.normalize = true;
  return shape;
}

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.qk_norm = nn::QkNorm::kHeads;
  layer.attention.q_norm = "query_layernorm";
  layer.attention.k_norm = "key_layernorm";
  layer.attention.rotates_first = true;
  if (io::get_string(json, "model_type") == "hunyuan_v1_moe") layer.experts = experts(json, config);
  return std::make_unique<DecoderLm>(json, config, parameters,
                                     DecoderShape{.layer = [=](int64_t) { return layer; }});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config(
      "hunyuan_v1_dense",
      {{"hidden_size", 24},
       {"intermediate_size", 40},
       {"head_dim", 16},
       {"rope_theta", 1e4},
       {"rope_scaling", {{"rope_type", "dynamic"}, {"alpha", 1000.0}, {"factor", 1.0}}},
       {"tie_word_embeddings", true}});
  io::Json biased = base;
  biased["attention_bias"] = true;
  biased["tie_word_embeddings"] = false;
  biased.erase("rope_scaling");
  io::Json mixture = base;
  mixture.update({{"model_type", "hunyuan_v1_moe"},
                  {"num_experts", 4},
                  {"num_experts_per_tok", 2},
                  {"moe_topk", 2}});
  return {base, biased, mixture};
}

constexpr std::string_view kModelTypes[] = {"hunyuan_v1_dense", "hunyuan_v1_moe"};

}  // namespace hunyuan

extern const ModelDef kHunyuan;
const ModelDef kHunyuan = {"hunyuan", hunyuan::kModelTypes, hunyuan::make, hunyuan::tiny_configs};

}  // namespace lumen::models
