// Bamba (IBM, Princeton, CMU and UIUC 2024).
//
// Loads Bamba-9B v1 and v2. Differs from plain Llama by Mamba-2 in place of attention in all layers
// but those that attn_layer_indices names, whose heads rotate by half, and names.
#include <algorithm>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"
#include "models/mamba2_layers.h"

namespace lumen::models {
namespace bamba {

nn::Mamba2Shape mamba(const io::Json& json, const nn::DecoderConfig& config) {
  constexpr Mamba2Keys kKeys = {"mamba_n_heads", "mamba_d_head", "mamba_n_groups",
                                "mamba_d_state", "mamba_d_conv", "mamba_conv_bias",
                                "hidden_act"};
  nn::Mamba2Shape shape = mamba2_of(json, config, kKeys);
  shape.in_bias = shape.out_bias = io::get_bool(json, "mamba_proj_bias", false);
  const int64_t inner = io::get_int(json, "mamba_expand", 1, 64) * config.hidden_size;
  if (shape.inner() != inner) {
    fail(ErrorKind::kMalformed, "mamba_n_heads ", shape.heads, " of mamba_d_head ", shape.head_dim,
         " are not mamba_expand · hidden_size = ", inner, " numbers");
  }
  return shape;
}

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape attention = plain_layer(config);
  attention.norms.before_mlp = "pre_ff_layernorm";
  attention.mlp.name = "feed_forward";
  attention.mlp.bias = io::get_bool(json, "mlp_bias", false);
  nn::LayerShape recurrent = attention;
  recurrent.mamba = mamba(json, config);
  const auto layer = [=, attends = io::listed_layers(json, "attn_layer_indices")](int64_t i) {
    const bool found = std::ranges::find(attends, static_cast<size_t>(i)) != attends.end();
    return found ? attention : recurrent;
  };
  return std::make_unique<DecoderLm>(json, config, parameters,
                                     DecoderShape{.layer = layer, .norm = "final_layernorm"});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("bamba", {{"intermediate_size", 48},
                                               {"num_hidden_layers", 3},
                                               {"attn_layer_indices", {1}},
                                               {"partial_rotary_factor", 0.5},
                                               {"rope_theta", 10000.0},
                                               {"mamba_n_heads", 8},
                                               {"mamba_d_head", 8},
                                               {"mamba_n_groups", 1},
                                               {"mamba_d_state", 6},
                                               {"mamba_d_conv", 4},
                                               {"mamba_expand", 2},
                                               {"initializer_range", 0.3},
                                               {"tie_word_embeddings", false}});
  io::Json biased = base;
  biased.update({{"attn_layer_indices", {0, 1}},
                 {"mamba_n_groups", 2},
                 {"mamba_d_conv", 3},
                 {"mamba_conv_bias", false},
                 {"mamba_proj_bias", true},
                 {"attention_bias", true},
                 {"mlp_bias", true},
                 {"time_step_limit", {0.1, 1.5}},
                 {"tie_word_embeddings", true}});
  return {base, biased};
}

constexpr std::string_view kModelTypes[] = {"bamba"};

}  // namespace bamba

extern const ModelDef kBamba;
const ModelDef kBamba = {"bamba", bamba::kModelTypes, bamba::make, bamba::tiny_configs};

}  // namespace lumen::models
