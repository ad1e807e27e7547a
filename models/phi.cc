// Phi-1, Phi-1.5 and Phi-2 (Li et al. 2023, "Textbooks Are All You Need II: phi-1.5 technical
// report"; Javaheripi et al. 2023, "Phi-2: The surprising power of small language models").
//
// Differs from plain Llama by attention and feed-forward layer side by side, after one LayerNorm; a
// GELU feed-forward layer without a gate; biases everywhere, in the output head too; and heads that
// rotate in part.
#include "lib/base/error.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace phi {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  for (const char* key : {"qk_layernorm", "tie_word_embeddings"}) {
    if (!io::get_bool(json, key, false)) continue;
    fail(ErrorKind::kUnsupported, key,
         " true is not supported for model_type 'phi'; no published "
         "model has it");
  }
  nn::DecoderConfig config(json);
  config.dropout = io::get_number(json, "embd_pdrop", 0, 1, 0);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.qkv_bias = layer.attention.output_bias = true;
  layer.attention.output = "dense";
  layer.parallel = true;
  layer.norms.before_mlp = "";
  layer.norm.kind = nn::NormKind::kLayer;
  layer.plain_mlp = plain_mlp(config, /*bias=*/true);
  layer.plain_mlp->up = "fc1";
  layer.plain_mlp->down = "fc2";
  layer.dropout = io::get_number(json, "resid_pdrop", 0, 1, 0);
  return std::make_unique<DecoderLm>(
      json, config, parameters,
      DecoderShape{
          .layer = [=](int64_t) { return layer; }, .norm = "final_layernorm", .head_bias = true});
}

std::vector<io::Json> tiny_configs() {
  return {{{"model_type", "phi"},
           {"hidden_size", 32},
           {"intermediate_size", 48},
           {"num_hidden_layers", 2},
           {"num_attention_heads", 4},
           {"num_key_value_heads", 4},
           {"vocab_size", 37},
           {"max_position_embeddings", 64},
           {"layer_norm_eps", 1e-5},
           {"rms_norm_eps", 1e-5},
           {"rope_theta", 10000.0},
           {"partial_rotary_factor", 0.5},
           {"hidden_act", "gelu_new"}}};
}

constexpr std::string_view kModelTypes[] = {"phi"};

}  // namespace phi

extern const ModelDef kPhi;
const ModelDef kPhi = {"phi", phi::kModelTypes, phi::make, phi::tiny_configs};

}  // namespace lumen::models
