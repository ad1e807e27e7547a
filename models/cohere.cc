// Command R (Cohere 2024) and Command R7B, Command A and Aya Expanse (Cohere 2025, "Command A: An
// Enterprise-Ready Large Language Model").
//
// Loads Command R, R+, R7B and A, Aya, Command A+ of 2026. Differs from plain Llama by attention
// and feed-forward layer side by side, after one LayerNorm without bias, logits that the config
// scales, and rotation in pairs of neighbours; R+ also by norms of queries and keys with weights of
// each head. The second generation has a sliding window in three of four layers, and no rotation in
// the fourth. Command A+ has mixtures of experts in all but the first layers, and may have norms of
// RMS.
#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace cohere {

// Experts have the size of feed-forward layers.
nn::SparseMlpShape experts(const io::Json& json, const nn::DecoderConfig& config) {
  nn::SparseMlpShape shape = experts_of(json, config, "num_experts");
  const auto known = [&](const char* key, const char* usual, const char* other) {
    const std::string found = io::get_string(json, key, usual);
    if (found == usual || found == other) return found == usual;
    fail(ErrorKind::kUnsupported, key, " ", quoted(found), " is not supported; known: ", usual,
         ", ", other);
  };
  shape.choice.sigmoid = !known("expert_selection_fn", "softmax", "sigmoid");
  shape.normalize = !shape.choice.sigmoid || io::get_bool(json, "norm_topk_prob", true);
  const int64_t shared = io::get_int(json, "num_shared_experts", 0, limits::kExperts, 0);
  const bool averages = known("shared_expert_combination_strategy", "average", "sum");
  if (shared == 0) return shape;
  add_shared_experts(shared, shape);
  if (averages) shape.choice.scale = shape.shared_scale = 0.5;
  return shape;
}

// Windows, and rotation where they are, and in the first layers, without experts, that see all.
void set_second(const io::Json& json, const nn::LayerShape& layer, DecoderShape& shape) {
  const std::vector<int64_t> windows = io::layer_windows(json);
  std::vector<bool> rotates;
  for (const int64_t window : windows) rotates.push_back(window > 0);
  if (io::get_int(json, "prefix_dense_sliding_window_pattern", 1, limits::kLayers, 2) == 1) {
    const std::vector<bool> sparse = io::sparse_layers(json);
    for (size_t i = 0; i < sparse.size(); ++i) rotates[i] = rotates[i] || !sparse[i];
  }
  shape.layer = with_windows(layer, windows);
  shape.rotation = [rotates](int64_t i) {
    return rotates[static_cast<size_t>(i)] ? Rotation::kGlobal : Rotation::kNone;
  };
}

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  nn::LayerShape layer = plain_layer(config);
  layer.parallel = true;
  layer.norms.before_mlp = "";
  const std::string type = io::get_string(json, "model_type");
  const bool is_mixture = type == "cohere2_moe";
  if (!is_mixture || io::get_bool(json, "has_layer_norms", false)) {
    layer.norm.kind = nn::NormKind::kLayerWithoutBias;
  }
  if (io::get_bool(json, "use_qk_norm", false)) layer.attention.qk_norm = nn::QkNorm::kEachHead;
  DecoderShape shape = {.layer = [layer](int64_t) { return layer; },
                        .logit_scale = io::get_number(json, "logit_scale", 1e-9, 1e9, 0.0625)};
  if (is_mixture) {
    layer.mlp.intermediate = io::get_int(json, "prefix_dense_intermediate_size", 1, limits::kDim,
                                         layer.mlp.intermediate);
  }
  if (type != "cohere") set_second(json, layer, shape);
  if (is_mixture) shape.layer = with_experts(json, shape.layer, experts(json, config));
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
  io::Json mixture = second;
  mixture.update({{"model_type", "cohere2_moe"},
                  {"intermediate_size", 16},
                  {"prefix_dense_intermediate_size", 40},
                  {"prefix_dense_sliding_window_pattern", 1},
                  {"num_hidden_layers", 3},
                  {"layer_types", {"full_attention", "sliding_attention", "full_attention"}},
                  {"head_dim", 8},
                  {"first_k_dense_replace", 1},
                  {"mlp_only_layers", {0}},
                  {"num_experts", 4},
                  {"num_experts_per_tok", 2},
                  {"num_shared_experts", 2},
                  {"expert_selection_fn", "sigmoid"}});
  io::Json summed = mixture;
  summed.update({{"has_layer_norms", true},
                 {"shared_expert_combination_strategy", "sum"},
                 {"expert_selection_fn", "softmax"},
                 {"num_experts_per_tok", 3},
                 {"prefix_dense_sliding_window_pattern", 2},
                 {"tie_word_embeddings", false}});
  return {base, normed, second, mixture, summed};
}

constexpr std::string_view kModelTypes[] = {"cohere", "cohere2", "cohere2_moe"};

}  // namespace cohere

extern const ModelDef kCohere;
const ModelDef kCohere = {"cohere", cohere::kModelTypes, cohere::make, cohere::tiny_configs};

}  // namespace lumen::models
