// Kimi Linear (Kimi Team 2025, "Kimi Linear: An Expressive, Efficient Attention Architecture").
//
// Loads Kimi-Linear-48B-A3B. Differs from DeepSeek-V3 by Kimi Delta Attention in place of attention
// in most layers (layer_types), and by attention that does not rotate in the others.
#include "lib/base/limits.h"
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace kimi_linear {

nn::KimiDeltaAttentionShape delta_attention(const io::Json& json, const nn::DecoderConfig& config) {
  require_silu(json, "Kimi Delta Attention");
  return {.hidden = config.hidden_size,
          .heads = io::get_int(json, "linear_num_heads", 1, limits::kHeads),
          .head_dim = io::get_int(json, "linear_head_dim", 1, limits::kDim),
          .kernel = io::get_int(json, "linear_conv_kernel_dim", 2, io::kMostConvTaps),
          .eps = config.rms_norm_eps};
}

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape full = plain_layer(config);
  nn::LayerShape linear = full;
  full.latent = latent_attention_of(json, config);
  linear.kimi_delta = delta_attention(json, config);
  std::function<nn::LayerShape(int64_t)> layer =
      [full, linear, is_linear = io::linear_attention_layers(json)](int64_t i) {
        return is_linear[static_cast<size_t>(i)] ? linear : full;
      };
  nn::SparseMlpShape experts = grouped_experts_of(json, config);
  experts.name = "block_sparse_moe";
  experts.gate = "w1";
  experts.up = "w3";
  experts.down = "w2";
  return std::make_unique<DecoderLm>(
      json, config, parameters,
      DecoderShape{.layer = with_experts(json, layer, experts),
                   .rotation = [](int64_t) { return Rotation::kNone; }});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config(
      "kimi_linear", {{"hidden_size", 24},
                      {"intermediate_size", 40},
                      {"moe_intermediate_size", 16},
                      {"num_hidden_layers", 3},
                      {"layer_types", {"linear_attention", "full_attention", "linear_attention"}},
                      {"num_key_value_heads", 4},
                      {"head_dim", 4},
                      {"q_lora_rank", nullptr},
                      {"kv_lora_rank", 24},
                      {"qk_nope_head_dim", 8},
                      {"qk_rope_head_dim", 4},
                      {"v_head_dim", 10},
                      {"linear_num_heads", 4},
                      {"linear_head_dim", 6},
                      {"linear_conv_kernel_dim", 4},
                      {"num_experts", 3},
                      {"num_experts_per_tok", 2},
                      {"n_shared_experts", 1},
                      {"n_group", 1},
                      {"topk_group", 1},
                      {"routed_scaling_factor", 2.446},
                      {"norm_topk_prob", true},
                      {"mlp_only_layers", {0}}});
  io::Json other = base;
  other.update({{"num_hidden_layers", 2},
                {"layer_types", {"full_attention", "linear_attention"}},
                {"first_k_dense_replace", 0},
                {"mlp_only_layers", io::Json::array()},
                {"q_lora_rank", 12},
                {"linear_num_heads", 3},
                {"linear_conv_kernel_dim", 3},
                {"num_experts", 4},
                {"n_group", 2},
                {"n_shared_experts", 2},
                {"norm_topk_prob", false},
                {"attention_bias", true}});
  return {base, other};
}

constexpr std::string_view kModelTypes[] = {"kimi_linear"};

}  // namespace kimi_linear

extern const ModelDef kKimilinear;
const ModelDef kKimilinear = {"kimilinear", kimi_linear::kModelTypes, kimi_linear::make,
                              kimi_linear::tiny_configs};

}  // namespace lumen::models
