// Falcon (Almazrouei et al. 2023, "The Falcon Series of Open Language Models").
//
// Loads Falcon 7B, 11B, 40B and 180B. Differs from plain Llama by attention and feed-forward layer
// side by side, after one LayerNorm or, in the larger models, after one each; one product for q, k
// and v, whose rows are, of one head of keys after the other, those of its queries, of the key and
// of the value; and a GELU feed-forward layer without a gate. The smallest has one head of keys.
#include "lib/base/error.h"
#include "lib/nn/head_order.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace falcon {

void set_norms(const io::Json& json, nn::LayerShape& layer) {
  const bool grouped = io::get_bool(json, "new_decoder_architecture", false);
  layer.parallel = grouped || io::get_bool(json, "parallel_attn", true);
  if (!layer.parallel) return;
  layer.norms.before_mlp = "";
  if (io::get_int(json, "num_ln_in_parallel_attn", 1, 2, grouped ? 2 : 1) == 1) return;
  if (!grouped) {
    fail(ErrorKind::kUnsupported,
         "num_ln_in_parallel_attn 2 is not supported with new_decoder_architecture false");
  }
  layer.norms.before_attention = "ln_attn";
  layer.norms.before_mlp = "input_layernorm";  // ln_mlp in files (io/backbone_names.cc)
}

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  if (io::get_bool(json, "alibi", false)) {
    fail(ErrorKind::kUnsupported,
         "alibi true is not supported: models of Falcon whose positions are a bias (Falcon-RW)");
  }
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.name = "self_attention";
  layer.attention.fused = true;
  layer.attention.fused_name = "query_key_value";
  layer.attention.by_groups = !nn::has_tiled_heads(json);
  layer.attention.output = "dense";
  layer.norm.kind = nn::NormKind::kLayer;
  layer.plain_mlp = plain_mlp(config, config.attention_bias);
  layer.plain_mlp->up = "dense_h_to_4h";
  layer.plain_mlp->down = "dense_4h_to_h";
  set_norms(json, layer);
  return std::make_unique<DecoderLm>(json, config, parameters,
                                     DecoderShape{.layer = [=](int64_t) { return layer; }});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("falcon", {{"intermediate_size", 48},
                                                {"num_key_value_heads", 1},
                                                {"layer_norm_epsilon", 1e-5},
                                                {"rope_theta", 10000.0},
                                                {"tie_word_embeddings", true},
                                                {"hidden_act", "gelu"}});
  io::Json grouped = base;
  grouped.update({{"new_decoder_architecture", true},
                  {"num_key_value_heads", 2},
                  {"num_kv_heads", 2},
                  {"tie_word_embeddings", false}});
  io::Json one_norm = grouped;
  one_norm.update({{"num_ln_in_parallel_attn", 1}, {"linear_heads_tiled", true}});
  io::Json sequential = base;
  sequential.update({{"parallel_attn", false},
                     {"multi_query", false},
                     {"num_key_value_heads", 4},
                     {"attention_bias", true}});
  return {base, grouped, one_norm, sequential};
}

constexpr std::string_view kModelTypes[] = {"falcon"};

}  // namespace falcon

extern const ModelDef kFalcon;
const ModelDef kFalcon = {"falcon", falcon::kModelTypes, falcon::make, falcon::tiny_configs};

}  // namespace lumen::models
