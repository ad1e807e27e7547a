// Qwen3-Next (Qwen Team 2025).
//
// Loads Qwen3-Next-80B-A3B and Qwen3-Coder-Next. Differs from Qwen3.5-MoE in how the inputs of
// Gated DeltaNet are stored, in_proj_qkvz and in_proj_ba, and may have layers without experts, as
// Qwen2-MoE. Layers that guess further tokens (mtp) are left out.
#include "models/decoder_lm.h"

namespace lumen::models {
namespace qwen3next {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  const auto dense = delta_net_layers(json, config);
  return std::make_unique<DecoderLm>(
      json, config, parameters,
      DecoderShape{.layer = with_experts(json, dense, shared_experts_of(json, config))});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = {{"model_type", "qwen3_next"},
                         {"hidden_size", 24},
                         {"intermediate_size", 40},
                         {"moe_intermediate_size", 16},
                         {"shared_expert_intermediate_size", 20},
                         {"num_experts", 4},
                         {"num_experts_per_tok", 2},
                         {"norm_topk_prob", true},
                         {"num_hidden_layers", 2},
                         {"num_attention_heads", 4},
                         {"num_key_value_heads", 2},
                         {"head_dim", 16},
                         {"partial_rotary_factor", 0.25},
                         {"linear_conv_kernel_dim", 4},
                         {"linear_key_head_dim", 6},
                         {"linear_value_head_dim", 10},
                         {"linear_num_key_heads", 2},
                         {"linear_num_value_heads", 4},
                         {"layer_types", {"linear_attention", "full_attention"}},
                         {"vocab_size", 43},
                         {"max_position_embeddings", 64},
                         {"rms_norm_eps", 1e-6},
                         {"rms_norm_offset", 1},
                         {"rope_theta", 1e7}};
  io::Json mixed = base;
  mixed.update({{"linear_num_value_heads", 2},
                {"num_hidden_layers", 3},
                {"layer_types", {"linear_attention", "full_attention", "linear_attention"}},
                {"mlp_only_layers", {1}},
                {"norm_topk_prob", false},
                {"rms_norm_offset", 0},
                {"linear_inputs_apart", true},
                {"tie_word_embeddings", true}});
  return {base, mixed};
}

constexpr std::string_view kModelTypes[] = {"qwen3_next"};

}  // namespace qwen3next

extern const ModelDef kQwen3next;
const ModelDef kQwen3next = {"qwen3next", qwen3next::kModelTypes, qwen3next::make,
                             qwen3next::tiny_configs};

}  // namespace lumen::models
