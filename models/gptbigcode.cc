// GPT-BigCode (Ben Allal et al. 2023, "SantaCoder: don't reach for the stars!"; Li et al. 2023,
// "StarCoder: may the source be with you!").
//
// Loads StarCoder (1B, 3B, 7B, 15.5B), StarCoderBase, SantaCoder and WizardCoder. Differs from
// plain Llama by learned positions instead of rotation, one head of keys for all queries, one
// product for q, k and v, LayerNorm instead of RMSNorm, biases everywhere, and a GELU feed-forward
// layer without a gate.
#include "models/decoder_lm.h"

namespace lumen::models {
namespace gptbigcode {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  nn::DecoderConfig config(json);
  config.dropout = io::get_number(json, "embd_pdrop", 0, 1, 0);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.name = "attn";
  layer.attention.fused = true;
  layer.attention.fused_name = "c_attn";
  layer.attention.by_groups = true;
  layer.attention.qkv_bias = layer.attention.output_bias = true;
  layer.attention.output = "c_proj";
  layer.attention.dropout = io::get_number(json, "attn_pdrop", 0, 1, 0);
  if (!io::get_bool(json, "scale_attn_weights", true)) layer.attention.scale = 1;
  layer.norms.before_attention = "ln_1";
  layer.norms.before_mlp = "ln_2";
  layer.norm.kind = nn::NormKind::kLayer;
  layer.plain_mlp = plain_mlp(config, /*bias=*/true);
  layer.plain_mlp->up = "c_fc";
  layer.plain_mlp->down = "c_proj";
  layer.dropout = io::get_number(json, "resid_pdrop", 0, 1, 0);
  return std::make_unique<DecoderLm>(
      json, config, parameters,
      DecoderShape{.layer = [=](int64_t) { return layer; },
                   .rotation = [](int64_t) { return Rotation::kNone; },
                   .positions = DecoderShape::Positions{"wpe"}});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("gpt_bigcode", {{"intermediate_size", 48},
                                                     {"num_key_value_heads", 1},
                                                     {"layer_norm_epsilon", 1e-5},
                                                     {"multi_query", true},
                                                     {"tie_word_embeddings", true},
                                                     {"hidden_act", "gelu_pytorch_tanh"}});
  io::Json many = base;
  many.update({{"multi_query", false},
               {"num_key_value_heads", 4},
               {"scale_attn_weights", false},
               {"tie_word_embeddings", false}});
  return {base, many};
}

constexpr std::string_view kModelTypes[] = {"gpt_bigcode"};

}  // namespace gptbigcode

extern const ModelDef kGptbigcode;
const ModelDef kGptbigcode = {"gptbigcode", gptbigcode::kModelTypes, gptbigcode::make,
                              gptbigcode::tiny_configs};

}  // namespace lumen::models
