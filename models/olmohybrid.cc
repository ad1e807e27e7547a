// OLMo Hybrid (OLMo Team 2026).
//
// Loads OLMo Hybrid 7B. Differs from OLMo 3 by Gated DeltaNets (layer_types) with norms before both
// branches in place of the layers with windows, of which each projection and convolution is alone
// and the state may change its sign; the attention of the others does not rotate where rope_theta
// is null, as in what was published.
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace olmo_hybrid {

constexpr double kHeadNormEps = 1e-5;  // whatever rms_norm_eps says

bool rotates(const io::Json& json) {
  const io::Json* rope = io::find_value(json, "rope_parameters");
  if (rope == nullptr) return true;
  const io::Json* theta = io::find(*rope, "rope_theta");
  return theta == nullptr || !theta->is_null();
}

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape linear = plain_layer(config);
  nn::LayerShape full = linear;
  linear.delta_net = delta_net_of(json, config);
  linear.delta_net->eps = kHeadNormEps;
  linear.delta_net->separate = true;
  linear.delta_net->beta_scale = io::get_bool(json, "linear_allow_neg_eigval", true) ? 2 : 1;
  full.attention.qk_norm = nn::QkNorm::kWhole;
  full.norms = {.before_attention = "",
                .after_attention = "post_attention_layernorm",
                .before_mlp = "",
                .after_mlp = "post_feedforward_layernorm"};
  const auto layer = [full, linear, is_linear = io::linear_attention_layers(json)](int64_t i) {
    return is_linear[static_cast<size_t>(i)] ? linear : full;
  };
  const Rotation rotation = rotates(json) ? Rotation::kGlobal : Rotation::kNone;
  return std::make_unique<DecoderLm>(
      json, config, parameters,
      DecoderShape{.layer = layer, .rotation = [rotation](int64_t) { return rotation; }});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base =
      small_config("olmo_hybrid", {{"intermediate_size", 48},
                                   {"layer_types", {"linear_attention", "full_attention"}},
                                   {"rms_norm_eps", 1e-6},
                                   {"linear_num_key_heads", 2},
                                   {"linear_num_value_heads", 2},
                                   {"linear_key_head_dim", 6},
                                   {"linear_value_head_dim", 12},
                                   {"linear_conv_kernel_dim", 4},
                                   {"rope_theta", 5e5}});
  io::Json still = base;
  still.update({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", nullptr}}},
                {"num_hidden_layers", 3},
                {"layer_types", {"linear_attention", "full_attention", "linear_attention"}},
                {"linear_num_value_heads", 4},
                {"linear_conv_kernel_dim", 3},
                {"linear_allow_neg_eigval", false},
                {"attention_bias", true},
                {"tie_word_embeddings", true}});
  return {base, still};
}

constexpr std::string_view kModelTypes[] = {"olmo_hybrid"};

}  // namespace olmo_hybrid

extern const ModelDef kOlmohybrid;
const ModelDef kOlmohybrid = {"olmohybrid", olmo_hybrid::kModelTypes, olmo_hybrid::make,
                              olmo_hybrid::tiny_configs};

}  // namespace lumen::models
