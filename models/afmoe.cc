// AFMoE (Arcee AI 2025, "The Trinity Manifesto").
//
// Loads Trinity Nano (6B-A1B), Mini (26B-A3B) and Large (400B-A13B). Differs from plain Llama by
// norms after each branch as well as before it and of every query and key head, by a layer whose
// sigmoid gates what attention gives, by three layers with a sliding window for each that sees all,
// which alone rotate, by an embedding that is scaled, and, but for the first layers, by mixtures of
// experts as DeepSeek-V3 has them.
#include <cmath>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace afmoe {

void require_usual_router(const io::Json& json) {
  if (const std::string scores = io::get_string(json, "score_func", "sigmoid");
      scores != "sigmoid") {
    fail(ErrorKind::kUnsupported, "score_func ", quoted(scores),
         " is not supported; known: sigmoid");
  }
  if (!io::get_bool(json, "route_norm", true)) {
    fail(ErrorKind::kUnsupported,
         "route_norm false is not supported: weights of the chosen experts add up to route_scale");
  }
  for (const char* key : {"n_group", "num_expert_groups"}) {
    const int64_t groups = io::get_int(json, key, 1, limits::kExperts, 1);
    if (groups == 1) continue;
    fail(ErrorKind::kUnsupported, key, " ", groups, " is not supported in AFMoE; expected 1");
  }
}

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  require_usual_router(json);
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.qk_norm = nn::QkNorm::kHeads;
  layer.attention.gate = "gate_proj";
  layer.norms = {.before_attention = "input_layernorm",
                 .after_attention = "post_attention_layernorm",
                 .before_mlp = "pre_mlp_layernorm",
                 .after_mlp = "post_mlp_layernorm"};
  nn::SparseMlpShape experts = grouped_experts_of(json, config);
  experts.router = "router.gate";
  experts.choice.correction = "expert_bias";
  const std::vector<int64_t> windows = io::layer_windows(json);
  const bool scales = io::get_bool(json, "mup_enabled", false);
  return std::make_unique<DecoderLm>(
      json, config, parameters,
      DecoderShape{
          .layer = with_experts(json, with_windows(layer, windows), experts),
          .rotation =
              [=](int64_t i) {
                const bool local = windows[static_cast<size_t>(i)] > 0;
                return local ? Rotation::kGlobal : Rotation::kNone;
              },
          .embedding_scale = scales ? std::sqrt(static_cast<double>(config.hidden_size)) : 1});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config(
      "afmoe", {{"intermediate_size", 48},
                {"moe_intermediate_size", 16},
                {"num_hidden_layers", 4},
                {"head_dim", 16},
                {"num_experts", 4},
                {"num_experts_per_tok", 2},
                {"num_shared_experts", 1},
                {"n_shared_experts", 1},
                {"route_scale", 2.5},
                {"routed_scaling_factor", 2.5},
                {"norm_topk_prob", true},
                {"num_dense_layers", 1},
                {"mlp_only_layers", {0}},
                {"sliding_window", 3},
                {"layer_types",
                 {"sliding_attention", "sliding_attention", "sliding_attention", "full_attention"}},
                {"mup_enabled", true},
                {"rope_theta", 10000.0}});
  io::Json other = base;
  other.update({{"num_hidden_layers", 2},
                {"layer_types", {"full_attention", "sliding_attention"}},
                {"num_dense_layers", 0},
                {"mlp_only_layers", io::Json::array()},
                {"num_shared_experts", 2},
                {"n_shared_experts", 2},
                {"mup_enabled", false},
                {"attention_bias", true},
                {"tie_word_embeddings", true}});
  return {base, other};
}

constexpr std::string_view kModelTypes[] = {"afmoe"};

}  // namespace afmoe

extern const ModelDef kAfmoe;
const ModelDef kAfmoe = {"afmoe", afmoe::kModelTypes, afmoe::make, afmoe::tiny_configs};

}  // namespace lumen::models
