// MiniMax-M2 (MiniMax 2025, "MiniMax-M2").
//
// Loads MiniMax-M2, M2.1 and M2.5. Differs from plain Llama by heads of which half rotates, norms
// of all query and all key heads at once, and a mixture of experts in place of every feed-forward
// layer, named as Mixtral's, chosen by sigmoids with a correction each.
#include "lib/base/error.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace minimaxm2 {

// What published configs say and transformers disregards.
void require_usual(const io::Json& json) {
  const std::pair<const char*, io::Json> usual[] = {{"scoring_func", "sigmoid"},
                                                    {"use_qk_norm", true},
                                                    {"qk_norm_type", "per_layer"},
                                                    {"use_routing_bias", true},
                                                    {"shared_intermediate_size", 0}};
  for (const auto& [key, value] : usual) {
    const io::Json* found = io::find_value(json, key);
    if (found == nullptr || *found == value) continue;
    fail(ErrorKind::kUnsupported, key, " ", io::describe(found),
         " is not supported in minimax_m2; expected ", io::describe(&value));
  }
  const io::Json* types = io::find_value(json, "attn_type_list");
  if (types == nullptr) return;
  for (const io::Json& type : *types) {
    if (type == 1) continue;
    fail(ErrorKind::kUnsupported, "attn_type_list: ", io::describe(&type),
         " is not supported in minimax_m2; expected 1 (attention) for every layer");
  }
}

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  require_usual(json);
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.qkv_bias = layer.attention.output_bias = false;  // whatever the config says
  layer.attention.qk_norm = nn::QkNorm::kWhole;
  layer.experts = mixtral_experts_of(json, config);
  layer.experts->choice.sigmoid = true;
  layer.experts->choice.correction = "e_score_correction_bias";
  return std::make_unique<DecoderLm>(json, config, parameters,
                                     DecoderShape{.layer = [=](int64_t) { return layer; }});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("minimax_m2", {{"intermediate_size", 16},
                                                    {"num_local_experts", 4},
                                                    {"num_experts_per_tok", 2},
                                                    {"head_dim", 16},
                                                    {"partial_rotary_factor", 0.5},
                                                    {"rms_norm_eps", 1e-6},
                                                    {"rope_theta", 5e6}});
  io::Json whole = base;
  whole.update({{"partial_rotary_factor", 1.0}, {"num_experts_per_tok", 3}});
  return {base, whole};
}

constexpr std::string_view kModelTypes[] = {"minimax_m2"};

}  // namespace minimaxm2

extern const ModelDef kMinimaxm2;
const ModelDef kMinimaxm2 = {"minimaxm2", minimaxm2::kModelTypes, minimaxm2::make,
                             minimaxm2::tiny_configs};

}  // namespace lumen::models
