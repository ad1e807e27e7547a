// Command R (Cohere 2024) and Command R7B, Command A and Aya Expanse (Cohere 2025, "Command A: An
// Enterprise-Ready Large Language Model").
//
// Loads Command R, R+, R7B and A, Aya. Differs from plain Llama by attention and feed-forward layer
// side by side, after one LayerNorm without bias, logits that the config scales, and rotation in
// pairs of neighbours; R+ also by norms of queries and keys with weights of each head. The second
// generation has a sliding window in three of four layers, and no rotation in the fourth.
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace cohere {

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.parallel = true;
  layer.norms.before_mlp = "";
  layer.norm.kind = nn::NormKind::kLayerWithoutBias;
  if (io::get_bool(json, "use_qk_norm", false)) layer.attention.qk_norm = nn::QkNorm::kEachHead;
  DecoderShape shape = {.layer = [layer](int64_t) { return layer; },
                        .logit_scale = io::get_number(json, "logit_scale", 1e-9, 1e9, 0.0625)};
  if (io::get_string(json, "model_type") == "cohere2") {
    const std::vector<int64_t> windows = io::layer_windows(json);
    shape.layer = with_windows(layer, windows);
    shape.rotation = [windows](int64_t i) {
      return windows[static_cast<size_t>(i)] > 0 ? Rotation::kGlobal : Rotation::kNone;
    };
  }
  return std::make_unique<DecoderLm>(json, config, parameters, shape);
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("cohere", {{"intermediate_size", 48},
                                                {"layer_norm_eps", 1e-5},
                                                {"rope_theta", 10000.0},
                                                {"rope_interleaved", true},
                                                {"logit_scale", 0.25},
                                                {"tie_word_embeddings", true}});
  io::Json normed = base;
  normed["use_qk_norm"] = true;
  normed["attention_bias"] = true;
  normed["tie_word_embeddings"] = false;
  io::Json second = base;
  second["model_type"] = "cohere2";
  second["sliding_window"] = 3;
  second["layer_types"] = {"sliding_attention", "full_attention"};
  return {base, normed, second};
}

constexpr std::string_view kModelTypes[] = {"cohere", "cohere2"};

}  // namespace cohere

extern const ModelDef kCohere;
const ModelDef kCohere = {"cohere", cohere::kModelTypes, cohere::make, cohere::tiny_configs};

}  // namespace lumen::models
