// Llama 4, the part that reads and writes text (Meta 2025, "The Llama 4 herd").
//
// Loads Llama 4 Scout (109B-A17B) and Maverick (400B-A17B). Differs from plain Llama by layers,
// every fourth, that do not rotate queries and keys but scale the queries of long texts; in the
// others by queries and keys of unit size after rotation (Scout), in pairs of neighbours, and by
// attention to no more than the chunk of attention_chunk_size tokens that a token is in (iRoPE);
// and by mixtures of experts in all or every other layer, of which a token goes through one, given
// what the sigmoid of its router's logit scales, and through one that is there for all.
#include "lib/base/limits.h"
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace llama4 {

nn::SparseMlpShape scaled_experts(const io::Json& json, const nn::DecoderConfig& config) {
  nn::SparseMlpShape experts = experts_of(json, config, "num_local_experts");
  experts.name = "feed_forward";
  experts.router = "router";
  experts.scales_input = true;
  experts.shared = experts.intermediate;
  experts.shared_gate = false;
  return experts;
}

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  const auto number = [&](const char* key, int64_t usual) {
    return io::get_int(json, key, 1, limits::kContext, usual);
  };
  nn::LayerShape rotating = plain_layer(config);
  rotating.mlp.name = "feed_forward";
  rotating.mlp.intermediate =
      io::get_int(json, "intermediate_size_mlp", 1, limits::kDim, config.intermediate_size);
  const nn::LayerShape still = rotating;
  if (io::find_value(json, "attention_chunk_size") != nullptr) {
    rotating.attention.chunk = number("attention_chunk_size", 0);
  }
  if (io::get_bool(json, "use_qk_norm", true)) {
    rotating.attention.qk_norm = nn::QkNorm::kHeads;
    rotating.attention.rotates_first = true;
    rotating.attention.norm.kind = nn::NormKind::kPlainRms;
  }
  const std::vector<bool> rotates = io::rotating_layers(json);
  const auto dense = [=](int64_t i) { return rotates[static_cast<size_t>(i)] ? rotating : still; };
  DecoderShape shape{.layer = dense, .rotation = [=](int64_t i) {
                       return rotates[static_cast<size_t>(i)] ? Rotation::kGlobal : Rotation::kNone;
                     }};
  if (io::expert_count(json) > 0) {
    shape.layer = with_experts(json, dense, scaled_experts(json, config));
  }
  if (io::get_bool(json, "attn_temperature_tuning", true)) {
    shape.temperature = {.beta = io::get_number(json, "attn_scale", 0, 1e6, 0.1),
                         .length = number("floor_scale", 8192),
                         .from_one = true};
  }
  return std::make_unique<DecoderLm>(json, config, parameters, shape);
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("llama4_text", {{"hidden_size", 24},
                                                     {"intermediate_size", 16},
                                                     {"intermediate_size_mlp", 48},
                                                     {"head_dim", 8},
                                                     {"num_local_experts", 2},
                                                     {"num_experts_per_tok", 1},
                                                     {"rope_theta", 5e5},
                                                     {"rope_interleaved", true},
                                                     {"no_rope_layers", {1, 0}},
                                                     {"floor_scale", 3},
                                                     {"attn_scale", 0.4},
                                                     {"attention_chunk_size", 5}});
  io::Json other = base;
  other.update({{"num_hidden_layers", 4},
                {"hidden_size", 32},
                {"head_dim", 16},
                {"interleave_moe_layer_step", 2},
                {"mlp_only_layers", {0, 2}},
                {"use_qk_norm", false},
                {"num_local_experts", 5},
                {"num_experts_per_tok", 3},
                {"attention_chunk_size", nullptr},
                {"no_rope_layers", {0, 1, 1, 0}}});
  return {base, other};
}

constexpr std::string_view kModelTypes[] = {"llama4_text"};

}  // namespace llama4

extern const ModelDef kLlama4;
const ModelDef kLlama4 = {"llama4", llama4::kModelTypes, llama4::make, llama4::tiny_configs};

}  // namespace lumen::models
