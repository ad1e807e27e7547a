// Qwen3.5 (Qwen Team 2026), the part that reads and writes text.
//
// Loads the dense sizes, 0.8B to 27B, of those that also see images the language model. Three of
// four layers have Gated DeltaNet in place of attention (layer_types); the others differ from
// Qwen3's by a gate of the output, which q_proj gives beside the queries, and rotation of a quarter
// of each head. The weights of norms, but that of the DeltaNet, are stored less 1. The parts of
// mrope_section rotate alike where there is only text.
#include "models/decoder_lm.h"

namespace lumen::models {
namespace qwen35 {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  return std::make_unique<DecoderLm>(json, config, parameters,
                                     DecoderShape{.layer = delta_net_layers(json, config)});
}

std::vector<io::Json> tiny_configs() {
  io::Json base = tiny_delta_net_config();
  base.update({{"model_type", "qwen3_5_text"}, {"tie_word_embeddings", true}});
  io::Json single = base;
  single.update({{"linear_num_value_heads", 2},
                 {"linear_conv_kernel_dim", 3},
                 {"num_hidden_layers", 3},
                 {"layer_types", {"linear_attention", "full_attention", "linear_attention"}},
                 {"rms_norm_offset", 0},
                 {"tie_word_embeddings", false}});
  io::Json linear = base;
  linear["layer_types"] = {"linear_attention", "linear_attention"};
  linear["linear_heads_tiled"] = true;
  return {base, single, linear};
}

constexpr std::string_view kModelTypes[] = {"qwen3_5_text"};

}  // namespace qwen35

extern const ModelDef kQwen35;
const ModelDef kQwen35 = {"qwen35", qwen35::kModelTypes, qwen35::make, qwen35::tiny_configs};

}  // namespace lumen::models
