// Nemotron-H (NVIDIA 2025, "Nemotron-H: A Family of Accurate and Efficient Hybrid Mamba-Transformer
// Models"), Nemotron Nano 2 and Nemotron 3.
//
// Loads Nemotron-H, Nemotron Nano 9B and 12B v2, and Nemotron 3 Nano 30B-A3B. Differs from plain
// Llama in that each layer is one thing alone behind one norm: Mamba-2, attention without rotation,
// a feed-forward layer without a gate, whose activation is the square of ReLU, or a mixture of such
// experts, chosen by sigmoids with a correction, beside one that all tokens go through. Nemotron 3
// Super's experts see less numbers than a token has.
#include <algorithm>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"
#include "models/mamba2_layers.h"

namespace lumen::models {
namespace nemotron_h {

constexpr const char* kMixer = "mixer";

// Of time_step_min and time_step_max, by which weights are initialised, transformers 5 takes the
// former as the least step of a prompt's tokens, but not of those that follow; NVIDIA's own code,
// like all others, knows time_step_limit alone.
nn::Mamba2Shape mamba(const io::Json& json, const nn::DecoderConfig& config) {
  constexpr Mamba2Keys kKeys = {"mamba_num_heads", "mamba_head_dim", "n_groups",
                                "ssm_state_size",  "conv_kernel",    "use_conv_bias",
                                "mamba_hidden_act"};
  nn::Mamba2Shape shape = mamba2_of(json, config, kKeys);
  shape.name = kMixer;
  shape.out_takes_additions = false;
  shape.in_bias = shape.out_bias = io::get_bool(json, "use_bias", false);
  return shape;
}

nn::SparseMlpShape experts(const io::Json& json, const nn::DecoderConfig& config) {
  if (io::get_string(json, "mlp_hidden_act", "relu2") != "relu2") {
    fail(ErrorKind::kUnsupported, "mlp_hidden_act ", quoted(io::get_string(json, "mlp_hidden_act")),
         " is not supported in experts; known: relu2");
  }
  const int64_t count = io::get_int(json, "num_experts", 1, limits::kExperts);
  nn::SparseMlpShape shape = {
      .name = kMixer,
      .hidden = config.hidden_size,
      .intermediate = io::get_int(json, "moe_intermediate_size", 1, limits::kDim),
      .experts = count,
      .used = io::get_int(json, "num_experts_per_tok", 1, count),
      .normalize = io::get_bool(json, "norm_topk_prob", true),
      .gated = false,
      .latent = io::get_int(json, "moe_latent_size", 1, limits::kDim, 0),
      .shared = io::get_int(json, "moe_shared_expert_intermediate_size", 1, limits::kDim),
      .shared_name = "shared_experts",
      .shared_gate = false,
      .shared_bias = io::get_bool(json, "mlp_bias", false)};
  shape.choice = grouped_choice(json, shape);
  return shape;
}

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  const std::vector<io::SingleLayer> kinds = io::single_layers(json);
  const auto has = [&](io::SingleLayer kind) {
    return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
  };
  nn::LayerShape plain = plain_layer(config);
  plain.norms = {.before_attention = "norm", .before_mlp = "norm"};
  plain.attention.name = kMixer;
  nn::LayerShape attention = plain, mamba_layer = plain, mlp = plain, sparse = plain;
  attention.parts = mamba_layer.parts = nn::LayerParts::kMixer;
  mlp.parts = sparse.parts = nn::LayerParts::kMlp;
  if (has(io::SingleLayer::kMamba)) mamba_layer.mamba = mamba(json, config);
  mlp.plain_mlp = plain_mlp(config, io::get_bool(json, "mlp_bias", false));
  mlp.plain_mlp->name = kMixer;
  if (has(io::SingleLayer::kExperts)) sparse.experts = experts(json, config);
  const auto layer = [=](int64_t i) {
    switch (kinds[static_cast<size_t>(i)]) {
      case io::SingleLayer::kMamba:
        return mamba_layer;
      case io::SingleLayer::kAttention:
        return attention;
      case io::SingleLayer::kMlp:
        return mlp;
      case io::SingleLayer::kExperts:
        break;
    }
    return sparse;
  };
  return std::make_unique<DecoderLm>(
      json, config, parameters,
      DecoderShape{.layer = layer, .rotation = [](int64_t) { return Rotation::kNone; }});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base =
      small_config("nemotron_h", {{"intermediate_size", 48},
                                  {"num_hidden_layers", 4},
                                  {"layers_block_type", {"mamba", "mlp", "attention", "mlp"}},
                                  {"head_dim", 12},
                                  {"layer_norm_epsilon", 1e-5},
                                  {"rope_theta", 10000.0},
                                  {"mlp_hidden_act", "relu2"},
                                  {"hidden_act", "relu2"},
                                  {"mamba_num_heads", 4},
                                  {"mamba_head_dim", 6},
                                  {"n_groups", 2},
                                  {"ssm_state_size", 6},
                                  {"conv_kernel", 4},
                                  {"initializer_range", 0.3},
                                  {"tie_word_embeddings", false}});
  io::Json biased = base;
  biased.update({{"layers_block_type", {"attention", "mlp", "mamba", "mamba"}},
                 {"use_bias", true},
                 {"mlp_bias", true},
                 {"attention_bias", true},
                 {"use_conv_bias", false},
                 {"time_step_limit", {0.1, 1.5}},
                 {"tie_word_embeddings", true}});
  io::Json mixture = base;
  mixture.update({{"layers_block_type", {"mamba", "moe", "attention", "moe"}},
                  {"num_experts", 4},
                  {"n_routed_experts", 4},
                  {"num_experts_per_tok", 2},
                  {"moe_intermediate_size", 16},
                  {"moe_shared_expert_intermediate_size", 20},
                  {"n_group", 2},
                  {"topk_group", 1},
                  {"norm_topk_prob", true},
                  {"routed_scaling_factor", 2.5}});
  io::Json latent = mixture;
  latent.update({{"layers_block_type", {"moe", "mamba", "attention", "mlp"}},
                 {"moe_latent_size", 10},
                 {"n_group", 1},
                 {"norm_topk_prob", false},
                 {"mlp_bias", true}});
  return {base, biased, mixture, latent};
}

constexpr std::string_view kModelTypes[] = {"nemotron_h"};

}  // namespace nemotron_h

extern const ModelDef kNemotronh;
const ModelDef kNemotronh = {"nemotron_h", nemotron_h::kModelTypes, nemotron_h::make,
                             nemotron_h::tiny_configs};

}  // namespace lumen::models
