// Granite 3 (Granite Team 2024, "Granite 3.0 Language Models") and Granite 4.0 (IBM 2025).
//
// Loads the dense Granite 3 models, 1B-A400M and 3B-A800M, and Granite 4.0, 350M to 32B-A9B.
// Differs from plain Llama by four multipliers that the config names: of the embedding, of what
// each branch adds, of attention's products, and, a divisor, of the logits. The smaller of Granite
// 3 have a mixture of experts in place of every feed-forward layer, weighted by a softmax over
// those that a token goes through, and some beside it a feed-forward layer that all tokens go
// through, which in Granite 4.0 may be alone. Granite 4.0 H has Mamba-2 in place of attention in
// most layers, and no rotation in the others. HyperCLOVA X SEED Think (Naver 2025) has norms behind
// the branches, too, and multiplies logits by what is a divisor of Granite's. Granite with sliding
// windows (IBM 2026), dense or a mixture of experts, has them in most layers, sinks of every head,
// and layers with a base of rotation of their own or without rotation.
#include <algorithm>
#include <cmath>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/layer_windows.h"
#include "lib/nn/fused_layers.h"
#include "models/decoder_lm.h"
#include "models/mamba2_layers.h"

namespace lumen::models {
namespace granite {

bool is_hybrid(const io::Json& json) {
  return io::get_string(json, "model_type") == "granitemoehybrid";
}

bool has_windows(const io::Json& json) {
  const std::string type = io::get_string(json, "model_type");
  return type == "granite_swa" || type == "granitemoe_swa";
}

// Files have all experts of a layer in one tensor, and gate and up of the shared layer, which those
// with windows have in GGUF, too.
void set_experts(const io::Json& json, const nn::DecoderConfig& config, nn::LayerShape& layer) {
  layer.experts = experts_of(json, config, "num_local_experts");
  layer.experts->name = "block_sparse_moe";
  layer.experts->router = has_windows(json) ? "router" : "router.layer";
  layer.experts->normalize = true;
  layer.experts->named_alone = false;
  if (io::get_string(json, "model_type") == "granitemoe") return;
  const int64_t shared = io::get_int(json, "shared_intermediate_size", 0, limits::kDim, 0);
  if (shared == 0) return;
  layer.shared_mlp = {config.hidden_size, shared, config.hidden_act};
  if (!has_windows(json)) return;
  layer.shared_mlp->fused = true;
  layer.shared_mlp->gate_up = "input_linear";
  layer.shared_mlp->down = "output_linear";
}

// The shared layer is all that models of this kind without experts have; gate and up are one layer
// in their directories.
void set_dense(const io::Json& json, nn::LayerShape& layer) {
  layer.mlp.intermediate = io::get_int(json, "shared_intermediate_size", 1, limits::kDim);
  layer.mlp.fused = !nn::has_inputs_apart(json);
  layer.mlp.name = "shared_mlp";
  layer.mlp.gate = "gate_linear";
  layer.mlp.up = "up_linear";
  layer.mlp.gate_up = "input_linear";
  layer.mlp.down = "output_linear";
}

nn::Mamba2Shape mamba_of(const io::Json& json, const nn::DecoderConfig& config) {
  constexpr Mamba2Keys kKeys = {"mamba_n_heads", "mamba_d_head", "mamba_n_groups",
                                "mamba_d_state", "mamba_d_conv", "mamba_conv_bias",
                                "hidden_act"};
  nn::Mamba2Shape shape = mamba2_of(json, config, kKeys);
  shape.in_bias = shape.out_bias = io::get_bool(json, "mamba_proj_bias", false);
  const int64_t inner = std::llround(io::get_number(json, "mamba_expand", 0, 64, 2) *
                                     static_cast<double>(config.hidden_size));
  if (shape.inner() != inner) {
    fail(ErrorKind::kMalformed, "mamba_n_heads ", shape.heads, " of mamba_d_head ", shape.head_dim,
         " are not mamba_expand · hidden_size = ", inner, " numbers");
  }
  return shape;
}

// Whether the attention of these models rotates.
bool rotates(const io::Json& json) {
  return !is_hybrid(json) || io::get_string(json, "position_embedding_type", "") == "rope";
}

// The bases by which layers rotate, 0 where they do not.
std::vector<double> layer_thetas(const io::Json& json, const nn::DecoderConfig& config) {
  const double usual = io::get_number(json, "rope_theta", 1e-3, 1e12, 10000);
  const io::Json* list = io::find_value(json, "layer_rope_theta");
  const auto layers = static_cast<size_t>(config.num_hidden_layers);
  if (list == nullptr) return std::vector<double>(layers, usual);
  std::vector<double> thetas;
  for (const io::Json& theta : list->is_array() ? *list : io::Json::array()) {
    const double number = theta.is_number() ? theta.get<double>() : -1;
    if (number == 0 || (number >= 1e-3 && number <= 1e12)) thetas.push_back(number);
  }
  if (thetas.size() != layers || list->size() != layers) {
    fail(ErrorKind::kMalformed, "layer_rope_theta: found ", io::describe(list),
         ", expected an array of ", layers, " numbers, one per layer: bases of rotation, or 0");
  }
  return thetas;
}

// Two bases at most, of which the first is the model's.
void set_windows(io::Json& json, const nn::DecoderConfig& config, DecoderShape& shape) {
  const std::vector<double> thetas = layer_thetas(json, config);
  double first = 0, second = 0;
  for (const double theta : thetas) {
    if (first == 0) first = theta;
    if (theta != 0 && theta != first && second == 0) second = theta;
    if (theta != 0 && theta != first && theta != second) {
      fail(ErrorKind::kUnsupported, "layer_rope_theta: ", first, ", ", second, " and ", theta,
           ": more than two bases of rotation are not supported");
    }
  }
  if (first != 0) json["rope_theta"] = first;
  if (second != 0) {
    shape.local_rope = json;
    shape.local_rope["rope_theta"] = second;
  }
  shape.rotation = [thetas, first](int64_t i) {
    const double theta = thetas[static_cast<size_t>(i)];
    return theta == 0 ? Rotation::kNone : theta == first ? Rotation::kGlobal : Rotation::kLocal;
  };
  nn::LayerShape layer = shape.layer(0);
  layer.attention.sinks = true;
  shape.layer = with_windows(layer, io::layer_windows(json));
}

std::unique_ptr<CausalLm> make(const io::Json& given, const nn::Parameters& parameters) {
  io::Json json = given;
  const nn::DecoderConfig config(json);
  auto multiplier = [&](const char* key) { return io::get_number(json, key, 1e-9, 1e9, 1); };
  nn::LayerShape layer = plain_layer(config);
  layer.attention.scale = multiplier("attention_multiplier");
  layer.mlp.bias = io::get_bool(json, "mlp_bias", false);
  layer.residual_scale = multiplier("residual_multiplier");
  const std::string type = io::get_string(json, "model_type");
  const bool is_clova = type == "hyperclovax";
  if (is_clova && io::get_bool(json, "use_post_norm", true)) {
    layer.norms.after_attention = "post_norm1";
    layer.norms.after_mlp = "post_norm2";
  }
  const bool hybrid = is_hybrid(json);
  if (hybrid && io::expert_count(json) == 0) {
    set_dense(json, layer);
  } else if (type.starts_with("granitemoe")) {
    set_experts(json, config, layer);
  }
  std::vector<bool> has_mamba(static_cast<size_t>(config.num_hidden_layers), false);
  if (hybrid) has_mamba = io::mamba_layers(json);
  nn::LayerShape mamba = layer;
  if (std::ranges::find(has_mamba, true) != has_mamba.end()) mamba.mamba = mamba_of(json, config);
  const Rotation rotation = rotates(json) ? Rotation::kGlobal : Rotation::kNone;
  DecoderShape shape = {
      .layer = [=](int64_t i) { return has_mamba[static_cast<size_t>(i)] ? mamba : layer; },
      .rotation = [=](int64_t) { return rotation; },
      .embedding_scale = multiplier("embedding_multiplier"),
      .logit_scale = is_clova ? multiplier("logits_scaling") : 1 / multiplier("logits_scaling")};
  if (has_windows(json)) set_windows(json, config, shape);
  return std::make_unique<DecoderLm>(json, config, parameters, shape);
}

// Of Granite 4.0: experts, and dense; of all layers attention.
std::vector<io::Json> tiny_hybrids(const io::Json& mixture) {
  io::Json experts = mixture;
  experts.update({{"model_type", "granitemoehybrid"},
                  {"num_experts_per_tok", 3},
                  {"shared_intermediate_size", 20},
                  {"layer_types", {"mamba", "attention"}},
                  {"position_embedding_type", "nope"},
                  {"mamba_n_heads", 4},
                  {"mamba_d_head", 16},
                  {"mamba_n_groups", 1},
                  {"mamba_d_state", 6},
                  {"mamba_d_conv", 4},
                  {"mamba_expand", 2}});
  io::Json dense = experts;
  dense.update({{"num_local_experts", 0},
                {"num_hidden_layers", 3},
                {"layer_types", {"mamba", "attention", "mamba"}},
                {"position_embedding_type", "rope"},
                {"mamba_n_groups", 2},
                {"mamba_d_conv", 3},
                {"mamba_conv_bias", false},
                {"mamba_proj_bias", true},
                {"time_step_limit", {0.1, 1.5}},
                {"tie_word_embeddings", false}});
  io::Json from_gguf = experts;
  from_gguf.update({{"num_local_experts", 0},
                    {"linear_inputs_apart", true},
                    {"mamba_n_heads", 32},  // of which some forget slowly
                    {"mamba_d_head", 2}});
  io::Json attention = dense;
  attention["layer_types"] = {"attention", "attention", "attention"};
  return {experts, dense, from_gguf, attention};
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config("granite", {{"intermediate_size", 48},
                                                 {"rope_theta", 1e4},
                                                 {"embedding_multiplier", 12.0},
                                                 {"residual_multiplier", 0.22},
                                                 {"attention_multiplier", 0.25},
                                                 {"logits_scaling", 8.0},
                                                 {"tie_word_embeddings", true}});
  io::Json biased = base;
  biased["rope_interleaved"] = true;
  biased["attention_bias"] = true;
  biased["mlp_bias"] = true;
  io::Json mixture = base;
  mixture.update({{"model_type", "granitemoe"},
                  {"intermediate_size", 16},
                  {"num_local_experts", 3},
                  {"num_experts_per_tok", 2}});
  io::Json shared = mixture;
  shared.update({{"model_type", "granitemoeshared"},
                 {"shared_intermediate_size", 20},
                 {"num_experts_per_tok", 3},
                 {"attention_bias", true},
                 {"tie_word_embeddings", false}});
  io::Json clova = biased;
  clova["model_type"] = "hyperclovax";
  clova["rope_interleaved"] = false;
  io::Json windowed = base;
  windowed.update({{"model_type", "granite_swa"},
                   {"num_hidden_layers", 3},
                   {"sliding_window", 3},
                   {"layer_types", {"full_attention", "sliding_attention", "sliding_attention"}},
                   {"layer_rope_theta", {0, 1e4, 5e5}}});
  io::Json windowed_mixture = windowed;
  windowed_mixture.update({{"model_type", "granitemoe_swa"},
                           {"intermediate_size", 16},
                           {"num_local_experts", 4},
                           {"num_experts_per_tok", 2},
                           {"shared_intermediate_size", 20}});
  std::vector<io::Json> all = {base, biased, mixture, shared};
  for (io::Json& hybrid : tiny_hybrids(mixture)) all.push_back(std::move(hybrid));
  all.push_back(std::move(clova));
  all.push_back(std::move(windowed));
  all.push_back(std::move(windowed_mixture));
  return all;
}

constexpr std::string_view kModelTypes[] = {"granite",          "granitemoe",  "granitemoeshared",
                                            "granitemoehybrid", "hyperclovax", "granite_swa",
                                            "granitemoe_swa"};

}  // namespace granite

extern const ModelDef kGranite;
const ModelDef kGranite = {"granite", granite::kModelTypes, granite::make, granite::tiny_configs};

}  // namespace lumen::models
