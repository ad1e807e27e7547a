// Falcon-H1 (Zuo et al. 2025, "Falcon-H1: A Family of Hybrid-Head Language Models").
//
// Loads Falcon-H1, 0.5B to 34B. Differs from plain Llama by Mamba-2 beside the attention of every
// layer, whose outputs are added, names, and multipliers that the config has for what layers are
// given and give; in GGUF these are in the weights.
#include <algorithm>
#include <cmath>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/nn/multipliers.h"
#include "models/decoder_lm.h"
#include "models/mamba2_layers.h"

namespace lumen::models {
namespace falcon_h1 {

nn::Mamba2Shape mamba(const io::Json& json, const nn::DecoderConfig& config) {
  constexpr Mamba2Keys kKeys = {"mamba_n_heads", "mamba_d_head", "mamba_n_groups",
                                "mamba_d_state", "mamba_d_conv", "mamba_conv_bias",
                                "hidden_act"};
  nn::Mamba2Shape shape = mamba2_of(json, config, kKeys);
  shape.out_takes_additions = false;
  const int64_t inner = io::get_int(json, "mamba_d_ssm", 1, limits::kDim);
  if (shape.inner() != inner) {
    fail(ErrorKind::kMalformed, "mamba_n_heads ", shape.heads, " of mamba_d_head ", shape.head_dim,
         " are not mamba_d_ssm ", inner, " numbers");
  }
  if (!io::get_bool(json, "mamba_rms_norm", false)) {
    shape.norm = nn::Mamba2Norm::kNone;
  } else if (io::get_bool(json, "mamba_norm_before_gate", true)) {
    shape.norm = nn::Mamba2Norm::kBeforeGate;
  }
  shape.in_bias = io::get_bool(json, "mamba_proj_bias", false);
  shape.out_bias = io::get_bool(json, "projectors_bias", false);
  shape.in_scale = nn::multiplier(json, "ssm_in_multiplier");
  shape.out_scale = nn::multiplier(json, "ssm_out_multiplier");
  const std::vector<double> parts =
      nn::multipliers(json, "ssm_multipliers", shape.part_scales.size());
  std::copy(parts.begin(), parts.end(), shape.part_scales.begin());
  return shape;
}

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.norms.before_mlp = "pre_ff_layernorm";
  layer.attention.in_scale = nn::multiplier(json, "attention_in_multiplier");
  layer.attention.out_scale = nn::multiplier(json, "attention_out_multiplier");
  layer.attention.scale = nn::multiplier(json, "key_multiplier") /
                          std::sqrt(static_cast<double>(layer.attention.head_dim));
  layer.mamba = mamba(json, config);
  layer.mamba_beside = true;
  const std::vector<double> of_mlp = nn::multipliers(json, "mlp_multipliers", 2);
  layer.mlp.name = "feed_forward";
  layer.mlp.bias = io::get_bool(json, "mlp_bias", false);
  layer.mlp.gate_scale = of_mlp[0];
  layer.mlp.down_scale = of_mlp[1];
  return std::make_unique<DecoderLm>(
      json, config, parameters,
      DecoderShape{.layer = [=](int64_t) { return layer; },
                   .embedding_scale = nn::multiplier(json, "embedding_multiplier"),
                   .logit_scale = nn::multiplier(json, "lm_head_multiplier"),
                   .norm = "final_layernorm"});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("falcon_h1", {{"intermediate_size", 48},
                                                   {"head_dim", 12},
                                                   {"rope_theta", 1e6},
                                                   {"mamba_d_ssm", 24},
                                                   {"mamba_n_heads", 4},
                                                   {"mamba_d_head", 6},
                                                   {"mamba_n_groups", 1},
                                                   {"mamba_d_state", 6},
                                                   {"mamba_d_conv", 4},
                                                   {"embedding_multiplier", 5.6},
                                                   {"lm_head_multiplier", 0.2},
                                                   {"key_multiplier", 0.6},
                                                   {"attention_in_multiplier", 1.2},
                                                   {"attention_out_multiplier", 0.9},
                                                   {"ssm_in_multiplier", 1.3},
                                                   {"ssm_out_multiplier", 0.7},
                                                   {"ssm_multipliers", {0.7, 0.8, 0.9, 1.1, 1.2}},
                                                   {"mlp_multipliers", {0.8, 0.6}},
                                                   {"initializer_range", 0.3},
                                                   {"tie_word_embeddings", false}});
  io::Json normed = base;
  normed.update({{"mamba_rms_norm", true},
                 {"mamba_norm_before_gate", false},
                 {"mamba_n_groups", 2},
                 {"mamba_conv_bias", false},
                 {"attention_bias", true},
                 {"mlp_bias", true},
                 {"tie_word_embeddings", true}});
  io::Json before = normed;
  before.update({{"mamba_norm_before_gate", true},
                 {"mamba_proj_bias", true},
                 {"projectors_bias", true},
                 {"time_step_limit", {0.1, 1.5}}});
  return {base, normed, before};
}

constexpr std::string_view kModelTypes[] = {"falcon_h1"};

}  // namespace falcon_h1

extern const ModelDef kFalconh1;
const ModelDef kFalconh1 = {"falcon_h1", falcon_h1::kModelTypes, falcon_h1::make,
                            falcon_h1::tiny_configs};

}  // namespace lumen::models
