// GPT-J (Wang & Komatsuzaki 2021, "GPT-J-6B: A 6 Billion Parameter Autoregressive Language Model").
//
// Loads GPT-J-6B and what is trained from it. Differs from plain Llama by attention and
// feed-forward layer side by side, after one LayerNorm; a GELU feed-forward layer without a gate,
// with biases, as the output head has one; and heads of which a part rotates, in pairs of
// neighbours.
#include "models/decoder_lm.h"

namespace lumen::models {
namespace gptj {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  nn::DecoderConfig config(json);
  config.dropout = io::get_number(json, "embd_pdrop", 0, 1, 0);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.name = "attn";
  layer.attention.output = "out_proj";
  layer.attention.dropout = io::get_number(json, "attn_pdrop", 0, 1, 0);
  layer.parallel = true;
  layer.norms.before_attention = "ln_1";
  layer.norms.before_mlp = "";
  layer.norm.kind = nn::NormKind::kLayer;
  layer.plain_mlp = plain_mlp(config, /*bias=*/true);
  layer.plain_mlp->up = "fc_in";
  layer.plain_mlp->down = "fc_out";
  layer.dropout = io::get_number(json, "resid_pdrop", 0, 1, 0);
  return std::make_unique<DecoderLm>(
      json, config, parameters,
      DecoderShape{.layer = [=](int64_t) { return layer; }, .head_bias = true});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("gptj", {{"intermediate_size", 48},
                                              {"num_key_value_heads", 4},
                                              {"layer_norm_epsilon", 1e-5},
                                              {"rope_theta", 10000.0},
                                              {"rope_interleaved", true},
                                              {"partial_rotary_factor", 0.5},
                                              {"hidden_act", "gelu_new"}});
  io::Json tied = base;
  tied["tie_word_embeddings"] = true;
  tied["partial_rotary_factor"] = 1.0;
  return {base, tied};
}

constexpr std::string_view kModelTypes[] = {"gptj"};

}  // namespace gptj

extern const ModelDef kGptj;
const ModelDef kGptj = {"gptj", gptj::kModelTypes, gptj::make, gptj::tiny_configs};

}  // namespace lumen::models
