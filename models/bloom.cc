// BLOOM (BigScience Workshop 2022, "BLOOM: A 176B-Parameter Open-Access Multilingual Language
// Model") and BLOOMZ (Muennighoff et al. 2022).
//
// Loads BLOOM and BLOOMZ, 560M to 176B. Differs from plain Llama by linear biases of scores in
// place of rotation (ALiBi, Press et al. 2022); by LayerNorm, also of what is embedded; by one
// product for q, k and v, whose rows are those of one head after the other; by a GELU feed-forward
// layer without a gate; and by biases.
#include "lib/base/error.h"
#include "lib/nn/head_order.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace bloom {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  if (io::get_bool(json, "apply_residual_connection_post_layernorm", false)) {
    fail(ErrorKind::kUnsupported,
         "apply_residual_connection_post_layernorm true is not supported: no published model of "
         "BLOOM has it");
  }
  nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  config.dropout = 0;  // of what is embedded
  layer.attention.name = "self_attention";
  layer.attention.fused = true;
  layer.attention.fused_name = "query_key_value";
  layer.attention.by_groups = !nn::has_tiled_heads(json);
  layer.attention.qkv_bias = layer.attention.output_bias = true;
  layer.attention.output = "dense";
  layer.attention.max_bias = 8;
  layer.norm.kind = nn::NormKind::kLayer;
  layer.plain_mlp = plain_mlp(config, /*bias=*/true);
  layer.plain_mlp->up = "dense_h_to_4h";
  layer.plain_mlp->down = "dense_4h_to_h";
  return std::make_unique<DecoderLm>(
      json, config, parameters,
      DecoderShape{
          .layer = [=](int64_t) { return layer; },
          .rotation = [](int64_t) { return Rotation::kNone; },
          .embedding_norm = DecoderShape::EmbeddingNorm{.name = "word_embeddings_layernorm",
                                                        .shape = layer.norm}});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("bloom", {{"intermediate_size", 128},
                                               {"num_key_value_heads", 4},
                                               {"layer_norm_epsilon", 1e-5},
                                               {"tie_word_embeddings", true},
                                               {"hidden_act", "gelu_pytorch_tanh"}});
  io::Json other = base;
  other.update({{"num_attention_heads", 6},
                {"num_key_value_heads", 6},
                {"hidden_size", 24},
                {"intermediate_size", 96},
                {"linear_heads_tiled", true},
                {"tie_word_embeddings", false}});
  return {base, other};
}

constexpr std::string_view kModelTypes[] = {"bloom"};

}  // namespace bloom

extern const ModelDef kBloom;
const ModelDef kBloom = {"bloom", bloom::kModelTypes, bloom::make, bloom::tiny_configs};

}  // namespace lumen::models
