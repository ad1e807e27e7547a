// MPT (MosaicML 2023, https://www.databricks.com/blog/mpt-7b).
//
// Loads MPT 7B and 30B, their instruct, chat and StoryWriter variants. Differs from plain Llama by
// linear biases of scores in place of rotation (ALiBi, Press et al. 2022); by LayerNorm without a
// bias; by one product for q, k and v, which some clip; and by a GELU feed-forward layer without a
// gate. Transformers disregards alibi_bias_max, with which StoryWriter was trained.
#include "lib/base/error.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace mpt {

void refuse_others(const io::Json& json, const io::Json& attention) {
  const auto refuse = [](const char* key, const std::string& value) {
    fail(ErrorKind::kUnsupported, key, " ", value,
         " is not supported: no published model of MPT has it");
  };
  if (!io::get_bool(attention, "alibi", true)) refuse("alibi", "false");
  for (const char* key : {"qk_ln", "prefix_lm"}) {
    if (io::get_bool(attention, key, false)) refuse(key, "true");
  }
  const std::string type = io::get_string(attention, "attn_type", "multihead_attention");
  if (type != "multihead_attention") refuse("attn_type", quoted(type));
  if (!io::get_bool(json, "no_bias", true)) refuse("no_bias", "false");
  if (const io::Json* scale = io::find_value(json, "logit_scale")) {
    refuse("logit_scale", io::describe(scale));
  }
}

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const io::Json* found = io::find_value(json, "attn_config");
  const io::Json attention = found == nullptr ? io::Json::object() : *found;
  refuse_others(json, attention);
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.name = "attn";
  layer.attention.fused = true;
  layer.attention.fused_name = "Wqkv";
  layer.attention.output = "out_proj";
  layer.attention.max_bias = io::get_number(attention, "alibi_bias_max", 1e-3, 1e3, 8);
  layer.attention.clip = clip_of(attention);
  if (io::find_value(attention, "softmax_scale") != nullptr) {
    layer.attention.scale = io::get_number(attention, "softmax_scale", 1e-9, 1e9);
  }
  layer.attention.dropout = layer.dropout = io::get_number(json, "attn_pdrop", 0, 1, 0);
  layer.norms = {.before_attention = "norm_1", .before_mlp = "norm_2"};
  layer.norm.kind = nn::NormKind::kLayerWithoutBias;
  layer.plain_mlp = plain_mlp(config, /*bias=*/false);
  layer.plain_mlp->name = "ffn";
  return std::make_unique<DecoderLm>(
      json, config, parameters,
      DecoderShape{.layer = [=](int64_t) { return layer; },
                   .rotation = [](int64_t) { return Rotation::kNone; }});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("mpt", {{"intermediate_size", 128},
                                             {"num_key_value_heads", 4},
                                             {"layer_norm_epsilon", 1e-5},
                                             {"tie_word_embeddings", true},
                                             {"hidden_act", "gelu"}});
  io::Json other = base;
  other.update({{"num_attention_heads", 6},
                {"num_key_value_heads", 6},
                {"hidden_size", 24},
                {"intermediate_size", 96},
                {"attn_config", {{"alibi", true}, {"alibi_bias_max", 16}, {"clip_qkv", 0.5}}}});
  return {base, other};
}

constexpr std::string_view kModelTypes[] = {"mpt"};

}  // namespace mpt

extern const ModelDef kMpt;
const ModelDef kMpt = {"mpt", mpt::kModelTypes, mpt::make, mpt::tiny_configs};

}  // namespace lumen::models
