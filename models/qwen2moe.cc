// Qwen2-MoE (Yang et al. 2024, "Qwen2 Technical Report").
//
// Loads Qwen1.5-MoE-A2.7B and Qwen2-57B-A14B. Differs from Qwen2 by mixtures of experts in place of
// feed-forward layers, in the layers that Qwen3-MoE has them in too, with an expert that every
// token goes through besides, as far as a gate of its own lets it.
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace qwen2moe {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape dense = plain_layer(config);
  dense.attention.qkv_bias = io::get_bool(json, "qkv_bias", true);
  dense.attention.output_bias = false;
  const auto windowed = with_windows(dense, io::layer_windows(json));
  return std::make_unique<DecoderLm>(
      json, config, parameters,
      DecoderShape{.layer = with_experts(json, windowed, shared_experts_of(json, config))});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("qwen2_moe", {{"hidden_size", 24},
                                                   {"intermediate_size", 40},
                                                   {"moe_intermediate_size", 16},
                                                   {"num_experts", 3},
                                                   {"num_experts_per_tok", 2},
                                                   {"shared_expert_intermediate_size", 20},
                                                   {"vocab_size", 43},
                                                   {"rms_norm_eps", 1e-6},
                                                   {"rope_theta", 1e6}});
  io::Json mixed = base;
  mixed["norm_topk_prob"] = true;
  mixed["qkv_bias"] = false;
  mixed["mlp_only_layers"] = {0};
  mixed["sliding_window"] = 3;
  mixed["layer_types"] = {"sliding_attention", "full_attention"};
  return {base, mixed};
}

constexpr std::string_view kModelTypes[] = {"qwen2_moe"};

}  // namespace qwen2moe

extern const ModelDef kQwen2moe;
const ModelDef kQwen2moe = {"qwen2moe", qwen2moe::kModelTypes, qwen2moe::make,
                            qwen2moe::tiny_configs};

}  // namespace lumen::models
