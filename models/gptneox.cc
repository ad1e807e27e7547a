// GPT-NeoX (Black et al. 2022, "GPT-NeoX-20B: An Open-Source Autoregressive Language Model").
//
// Loads Pythia, GPT-NeoX-20B, Dolly and RedPajama-INCITE. Differs from plain Llama by attention and
// feed-forward layer side by side, each after a LayerNorm of its own; one product for q, k and v,
// whose rows are those of one head after the other; a GELU feed-forward layer without a gate;
// biases; and heads of which a quarter rotates.
#include "lib/nn/head_order.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace gptneox {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.name = "attention";
  layer.attention.kv_heads = config.num_attention_heads;
  layer.attention.fused = true;
  layer.attention.fused_name = "query_key_value";
  layer.attention.by_groups = !nn::has_tiled_heads(json);
  layer.attention.output = "dense";
  layer.norm.kind = nn::NormKind::kLayer;
  layer.parallel = io::get_bool(json, "use_parallel_residual", true);
  layer.plain_mlp = plain_mlp(config, /*bias=*/true);
  layer.plain_mlp->up = "dense_h_to_4h";
  layer.plain_mlp->down = "dense_4h_to_h";
  return std::make_unique<DecoderLm>(json, config, parameters,
                                     DecoderShape{.layer = [=](int64_t) { return layer; }});
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("gpt_neox", {{"intermediate_size", 48},
                                                  {"num_key_value_heads", 4},
                                                  {"layer_norm_eps", 1e-5},
                                                  {"rope_theta", 10000.0},
                                                  {"partial_rotary_factor", 0.5},
                                                  {"attention_bias", true},
                                                  {"hidden_act", "gelu"}});
  io::Json sequential = base;
  sequential.update({{"use_parallel_residual", false},
                     {"attention_bias", false},
                     {"tie_word_embeddings", true},
                     {"hidden_act", "gelu_fast"}});
  io::Json from_gguf = base;
  from_gguf["linear_heads_tiled"] = true;
  return {base, sequential, from_gguf};
}

constexpr std::string_view kModelTypes[] = {"gpt_neox"};

}  // namespace gptneox

extern const ModelDef kGptneox;
const ModelDef kGptneox = {"gptneox", gptneox::kModelTypes, gptneox::make, gptneox::tiny_configs};

}  // namespace lumen::models
