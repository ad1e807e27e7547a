// gpt-oss (OpenAI 2025, "gpt-oss-120b & gpt-oss-20b Model Card").
//
// Loads gpt-oss-20b and gpt-oss-120b. Differs from Llama by a sink per head, a learned score
// without a value that takes its share of the attention; windows in every other layer; biases; and
// a mixture of experts in place of every feed-forward layer, with biases and a clamped gate of its
// own (ops::experts). The router's softmax is over the chosen experts.
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace gptoss {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.attention.sinks = true;
  layer.experts = experts_of(json, config, "num_local_experts");
  layer.experts->router = "router";
  layer.experts->normalize = true;
  layer.experts->biases = true;
  layer.experts->alpha = io::get_number(json, "swiglu_alpha", 1e-3, 1e3, 1.702);
  layer.experts->limit = io::get_number(json, "swiglu_limit", 1e-3, 1e6, 7);
  const DecoderShape shape = {.layer = with_windows(layer, io::layer_windows(json))};
  return std::make_unique<DecoderLm>(json, config, parameters, shape);
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config(
      "gpt_oss", {{"intermediate_size", 48},
                  {"num_local_experts", 4},
                  {"num_experts_per_tok", 2},
                  {"num_hidden_layers", 3},
                  {"head_dim", 16},
                  {"vocab_size", 43},
                  {"rope_theta", 150000},
                  {"attention_bias", true},
                  {"swiglu_limit", 7},
                  {"sliding_window", 3},
                  {"layer_types", {"sliding_attention", "full_attention", "sliding_attention"}}});
  io::Json scaled = base;
  scaled["num_experts_per_tok"] = 3;
  scaled["swiglu_limit"] = 0.5;
  scaled["rope_scaling"] = {{"rope_type", "yarn"},
                            {"factor", 4},
                            {"original_max_position_embeddings", 16},
                            {"truncate", false}};
  return {base, scaled};
}

constexpr std::string_view kModelTypes[] = {"gpt_oss"};

}  // namespace gptoss

extern const ModelDef kGptoss;
const ModelDef kGptoss = {"gptoss", gptoss::kModelTypes, gptoss::make, gptoss::tiny_configs};

}  // namespace lumen::models
