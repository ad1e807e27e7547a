// Qwen3-MoE (Yang et al. 2025, "Qwen3 Technical Report").
//
// Loads Qwen3-30B-A3B, Qwen3-235B-A22B and Qwen3-Coder, and the language models of Qwen3-VL with
// experts, whose three positions are equal in text. Differs from Qwen3 by mixtures of experts in
// place of feed-forward layers: in every `decoder_sparse_step`-th layer that `mlp_only_layers` does
// not name. The router's softmax is over all experts; `norm_topk_prob` makes the probabilities of
// the chosen add up to 1. A window, if there is one, is all layers', but in Mellum 2 (JetBrains
// 2026) those that layer_types says, which rotate with a base of their own.
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace qwen3moe {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape dense = plain_layer(config);
  dense.attention.qk_norm = nn::QkNorm::kHeads;
  const bool is_mellum = io::get_string(json, "model_type") == "mellum";
  if (is_mellum) {
    const std::vector<int64_t> windows = io::layer_windows(json);
    return std::make_unique<DecoderLm>(
        json, config, parameters,
        DecoderShape{.layer = with_experts(json, with_windows(dense, windows),
                                           qwen_experts_of(json, config)),
                     .rotation = local_if_windowed(windows),
                     .local_rope = {{"rope_theta", io::get_number(json, "rope_local_base_freq",
                                                                  1e-3, 1e12, 10000)}}});
  }
  const std::vector<int64_t> windows(static_cast<size_t>(config.num_hidden_layers),
                                     config.sliding_window);
  return std::make_unique<DecoderLm>(
      json, config, parameters,
      DecoderShape{.layer = with_experts(json, with_windows(dense, windows),
                                         qwen_experts_of(json, config))});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("qwen3_moe", {{"hidden_size", 24},
                                                   {"intermediate_size", 40},
                                                   {"moe_intermediate_size", 16},
                                                   {"num_experts", 3},
                                                   {"num_experts_per_tok", 2},
                                                   {"head_dim", 16},
                                                   {"vocab_size", 43},
                                                   {"rms_norm_eps", 1e-6},
                                                   {"rope_theta", 1e6}});
  io::Json mixed = base;
  mixed["norm_topk_prob"] = true;
  mixed["num_hidden_layers"] = 3;
  mixed["decoder_sparse_step"] = 2;
  io::Json listed = base;
  listed["mlp_only_layers"] = {0};
  listed["num_experts_per_tok"] = 3;
  io::Json seeing = base;
  seeing["model_type"] = "qwen3_vl_moe_text";
  seeing["norm_topk_prob"] = true;
  io::Json mellum = mixed;
  mellum.update(
      {{"model_type", "mellum"},
       {"decoder_sparse_step", 1},
       {"mlp_only_layers", {2}},
       {"mlp_layer_types", {"sparse", "sparse", "dense"}},
       {"sliding_window", 3},
       {"layer_types", {"full_attention", "sliding_attention", "sliding_attention"}},
       {"rope_local_base_freq", 1e4},
       {"rope_scaling",
        {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}}}});
  return {base, mixed, listed, seeing, mellum};
}

constexpr std::string_view kModelTypes[] = {"qwen3_moe", "qwen3_vl_moe_text", "mellum"};

}  // namespace qwen3moe

extern const ModelDef kQwen3moe;
const ModelDef kQwen3moe = {"qwen3moe", qwen3moe::kModelTypes, qwen3moe::make,
                            qwen3moe::tiny_configs};

}  // namespace lumen::models
