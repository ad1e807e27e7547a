// Laguna (poolside 2026).
//
// Loads Laguna XS.2 (33B-A3B) and M.1 (225B-A23B). Differs from plain Llama by norms of every query
// and key head, by a layer whose softplus gates what attention gives, head by head or number by
// number, by layers with a window, with a rotation and as many heads of their own, and, but for the
// first layers, by mixtures of experts beside one that all tokens go through, chosen by sigmoids
// with a correction each.
#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace laguna {

// Whether each head has one number of the gate, or each of its numbers.
bool gates_heads(const io::Json& json) {
  const io::Json* found = io::find_value(json, "gating");
  if (found == nullptr || *found == true || *found == "per-head") return true;
  if (*found == "per-element") return false;
  fail(ErrorKind::kUnsupported, "gating: found ", io::describe(found),
       ", expected true, per-head or per-element");
}

nn::SparseMlpShape experts(const io::Json& json, const nn::DecoderConfig& config) {
  if (io::get_bool(json, "moe_apply_router_weight_on_input", false)) {
    fail(ErrorKind::kUnsupported, "moe_apply_router_weight_on_input true is not supported");
  }
  nn::SparseMlpShape shape = shared_experts_of(json, config);
  shape.normalize = true;
  shape.shared_gate = false;
  shape.choice.sigmoid = true;
  shape.choice.correction = "experts.e_score_correction_bias";
  shape.choice.scale = io::get_number(json, "moe_routed_scaling_factor", 0, 1e6, 1);
  shape.choice.cap = io::get_number(json, "moe_router_logit_softcapping", 0, 1e6, 0);
  return shape;
}

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  const std::vector<int64_t> heads = io::heads_of_layers(json);
  nn::LayerShape plain = plain_layer(config);
  plain.attention.qk_norm = nn::QkNorm::kHeads;
  plain.attention.gate = "g_proj";
  plain.attention.gates_heads = gates_heads(json);
  plain.attention.softplus_gate = true;
  const std::vector<int64_t> windows = io::layer_windows(json);
  const auto layer = [heads, with_window = with_windows(plain, windows)](int64_t i) {
    nn::LayerShape own = with_window(i);
    own.attention.heads = heads[static_cast<size_t>(i)];
    return own;
  };
  const auto number = [&](const char* key, double least, double most, double usual) {
    return io::get_number(json, key, least, most, usual);
  };
  DecoderShape shape = {
      .layer = with_experts(json, layer, experts(json, config)),
      .rotation = local_if_windowed(windows),
      .local_rope = {{"rope_theta", number("rope_local_base_freq", 1e-3, 1e12, 10000)}}};
  shape.local_rotary_dim = static_cast<int64_t>(
      number("local_rotary_factor", 0, 1, 1) * static_cast<double>(config.head_dim) + 1e-6);
  if (shape.local_rotary_dim < 2 || shape.local_rotary_dim % 2 != 0) {
    fail(ErrorKind::kMalformed, "of head_dim ", config.head_dim, " numbers ",
         shape.local_rotary_dim,
         " rotate in layers with a window: expected a positive even number, as they rotate in "
         "pairs");
  }
  return std::make_unique<DecoderLm>(json, config, parameters, shape);
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config(
      "laguna", {{"intermediate_size", 48},
                 {"moe_intermediate_size", 16},
                 {"shared_expert_intermediate_size", 20},
                 {"num_hidden_layers", 3},
                 {"num_attention_heads_per_layer", {4, 6, 2}},
                 {"head_dim", 16},
                 {"num_experts", 4},
                 {"num_experts_per_tok", 2},
                 {"moe_routed_scaling_factor", 2.5},
                 {"mlp_only_layers", {0}},
                 {"sliding_window", 3},
                 {"layer_types", {"full_attention", "sliding_attention", "full_attention"}},
                 {"partial_rotary_factor", 0.5},
                 {"rope_theta", 1e6},
                 {"rope_local_base_freq", 1e4}});
  io::Json whole = base;
  whole.erase("num_attention_heads_per_layer");
  whole.update({{"gating", "per-element"},
                {"layer_types", {"full_attention", "full_attention", "full_attention"}},
                {"first_k_dense_replace", 2},
                {"mlp_only_layers", {0, 1}},
                {"moe_router_logit_softcapping", 1.5},
                {"attention_bias", true},
                {"tie_word_embeddings", true}});
  return {base, whole};
}

constexpr std::string_view kModelTypes[] = {"laguna"};

}  // namespace laguna

extern const ModelDef kLaguna;
const ModelDef kLaguna = {"laguna", laguna::kModelTypes, laguna::make, laguna::tiny_configs};

}  // namespace lumen::models
