// Qwen3-Next (Qwen Team 2025) and Qwen3.5-MoE (Qwen Team 2026), the part that reads and writes
// text.
//
// Loads Qwen3-Next-80B-A3B, Qwen3-Coder-Next, and Qwen3.5-35B-A3B, 122B-A10B and 397B-A17B, of
// those that also see images the language model. Differs from Qwen3.5 by mixtures of experts in
// place of feed-forward layers, each with an expert that every token goes through, as in Qwen2-MoE;
// in Qwen3-Next, whose inputs of Gated DeltaNet are stored otherwise, layers may have none.
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
  io::Json base = tiny_delta_net_config();
  base.update({{"model_type", "qwen3_next"},
               {"moe_intermediate_size", 16},
               {"shared_expert_intermediate_size", 20},
               {"num_experts", 3},
               {"num_experts_per_tok", 2},
               {"norm_topk_prob", true}});
  io::Json mixed = base;
  mixed.update({{"linear_num_value_heads", 2},
                {"num_hidden_layers", 3},
                {"layer_types", {"linear_attention", "full_attention", "linear_attention"}},
                {"mlp_only_layers", {1}},
                {"norm_topk_prob", false},
                {"rms_norm_offset", 0},
                {"linear_inputs_apart", true},
                {"tie_word_embeddings", true}});
  io::Json newer = base;
  newer["model_type"] = "qwen3_5_moe_text";
  io::Json from_gguf = newer;
  newer["num_experts_per_tok"] = 3;  // of 3
  from_gguf["rms_norm_offset"] = 0;
  from_gguf["linear_heads_tiled"] = true;
  return {base, mixed, newer, from_gguf};
}

constexpr std::string_view kModelTypes[] = {"qwen3_next", "qwen3_5_moe_text"};

}  // namespace qwen3next

extern const ModelDef kQwen3next;
const ModelDef kQwen3next = {"qwen3next", qwen3next::kModelTypes, qwen3next::make,
                             qwen3next::tiny_configs};

}  // namespace lumen::models
