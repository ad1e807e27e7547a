// OPT (Zhang et al. 2022, "OPT: Open Pre-trained Transformer Language Models").
//
// Loads OPT in all sizes but 350M, and Galactica. Differs from plain Llama by learned positions
// instead of rotation, of which the table's third row is the first, LayerNorm instead of RMSNorm,
// biases everywhere, and a ReLU feed-forward layer without a gate.
#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace opt {

constexpr int64_t kRowsBefore = 2;  // rows of the table that are no position's

void require_usual_layers(const io::Json& json, const nn::DecoderConfig& config) {
  for (const auto& [key, expected] :
       {std::pair("do_layer_norm_before", true), {"_remove_final_layer_norm", false}}) {
    if (io::get_bool(json, key, expected) == expected) continue;
    fail(ErrorKind::kUnsupported, key, expected ? " false" : " true",
         " is not supported for model_type 'opt': norms behind the branches (OPT-350M)");
  }
  const int64_t width =
      io::get_int(json, "word_embed_proj_dim", 1, limits::kDim, config.hidden_size);
  if (width == config.hidden_size) return;
  fail(ErrorKind::kUnsupported, "word_embed_proj_dim ", width, " is not supported: expected ",
       config.hidden_size, ", the hidden_size (OPT-350M has other embeddings)");
}

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  nn::DecoderConfig config(json);
  require_usual_layers(json, config);
  config.dropout = 0;  // of the embedding
  const bool bias = io::get_bool(json, "enable_bias", true);
  const bool weighted = io::get_bool(json, "layer_norm_elementwise_affine", true);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.qkv_bias = layer.attention.output_bias = bias;
  layer.attention.output = "out_proj";
  layer.norms.before_attention = "self_attn_layer_norm";
  layer.norms.before_mlp = "final_layer_norm";
  layer.norm.kind = weighted ? nn::NormKind::kLayer : nn::NormKind::kPlainLayer;
  layer.plain_mlp = plain_mlp(config, bias);
  layer.plain_mlp->name = "";
  layer.plain_mlp->up = "fc1";
  layer.plain_mlp->down = "fc2";
  layer.dropout = io::get_number(json, "dropout", 0, 1, 0);
  return std::make_unique<DecoderLm>(
      json, config, parameters,
      DecoderShape{.layer = [=](int64_t) { return layer; },
                   .rotation = [](int64_t) { return Rotation::kNone; },
                   .positions = DecoderShape::Positions{"embed_positions", kRowsBefore}});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("opt", {{"intermediate_size", 48},
                                             {"num_key_value_heads", 4},
                                             {"hidden_act", "relu"},
                                             {"tie_word_embeddings", true}});
  io::Json plain = base;
  plain.update({{"enable_bias", false},
                {"layer_norm_elementwise_affine", false},
                {"hidden_act", "gelu"},
                {"tie_word_embeddings", false}});
  return {base, plain};
}

constexpr std::string_view kModelTypes[] = {"opt"};

}  // namespace opt

extern const ModelDef kOpt;
const ModelDef kOpt = {"opt", opt::kModelTypes, opt::make, opt::tiny_configs};

}  // namespace lumen::models
