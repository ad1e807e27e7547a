// The configs of models with latent attention, most of them mixtures of experts.
#include <algorithm>
#include <cmath>

#include "lib/base/error.h"
#include "lib/base/limits.h"
#include "lib/io/family_completions.h"
#include "lib/io/layer_windows.h"

namespace lumen::io {
namespace {

// Rotation is of the part of a head that is called so.
void complete_any_deepseek(Json& config) {
  rename_key(config, "n_routed_experts", "num_experts");
  rename_key(config, "num_local_experts", "num_experts");
  config["head_dim"] = Json(config["qk_rope_head_dim"]);
  set_dense_layers(config);
}

}  // namespace

// As DeepseekV2Config has what a config leaves out.
void complete_deepseek_v2(Json& config) {
  set_defaults(config, {{"vocab_size", 102400},
                        {"kv_lora_rank", 512},
                        {"qk_nope_head_dim", 128},
                        {"qk_rope_head_dim", 64},
                        {"v_head_dim", 128},
                        {"n_routed_experts", 64},
                        {"n_shared_experts", 2},
                        {"moe_intermediate_size", 1407},
                        {"topk_method", "greedy"},
                        {"tie_word_embeddings", false}});
  set_absent(config, "q_lora_rank", 1536);  // null: none
  complete_any_deepseek(config);
}

// As DeepseekV3Config has it.
void complete_deepseek_v3(Json& config) {
  set_defaults(config, {{"vocab_size", 129280},
                        {"kv_lora_rank", 512},
                        {"qk_nope_head_dim", 128},
                        {"qk_rope_head_dim", 64},
                        {"v_head_dim", 128},
                        {"n_routed_experts", 256},
                        {"n_shared_experts", 1},
                        {"num_experts_per_tok", 8},
                        {"moe_intermediate_size", 2048},
                        {"routed_scaling_factor", 2.5},
                        {"n_group", 8},
                        {"topk_group", 4},
                        {"norm_topk_prob", true},
                        {"first_k_dense_replace", 3},
                        {"max_position_embeddings", 4096},
                        {"tie_word_embeddings", false}});
  set_absent(config, "q_lora_rank", 1536);
  config["rope_interleaved"] = get_bool(config, "rope_interleave", true);
  config["topk_method"] = "noaux_tc";  // whatever it says, as in transformers
  complete_any_deepseek(config);
}

// As MiniCPM3Config has it. Where a config says null there is no scale.
void complete_minicpm3(Json& config) {
  set_defaults(config, {{"vocab_size", 73448},
                        {"hidden_size", 2560},
                        {"intermediate_size", 6400},
                        {"num_hidden_layers", 62},
                        {"num_attention_heads", 40},
                        {"kv_lora_rank", 256},
                        {"qk_nope_head_dim", 64},
                        {"qk_rope_head_dim", 32},
                        {"max_position_embeddings", 32768},
                        {"rms_norm_eps", 1e-5},
                        {"initializer_range", 0.1},
                        {"scale_emb", 12},
                        {"tie_word_embeddings", true}});
  const int64_t dim = get_int(config, "hidden_size", 1, limits::kDim);
  const int64_t heads = get_int(config, "num_attention_heads", 1, limits::kHeads);
  const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
  set_default(config, "v_head_dim", std::max<int64_t>(1, dim / heads));
  set_absent(config, "q_lora_rank", 768);
  set_absent(config, "scale_depth", 1.4);
  set_absent(config, "dim_model_base", 256);
  set_default(config, "scale_depth", std::sqrt(static_cast<double>(layers)));
  set_default(config, "dim_model_base", dim);
  config["num_key_value_heads"] = heads;
  config["head_dim"] = Json(config["qk_rope_head_dim"]);
}

// As YoutuConfig has it.
void complete_youtu(Json& config) {
  set_defaults(config, {{"vocab_size", 128256},
                        {"hidden_size", 2048},
                        {"intermediate_size", 6144},
                        {"num_hidden_layers", 32},
                        {"num_attention_heads", 16},
                        {"kv_lora_rank", 512},
                        {"qk_nope_head_dim", 128},
                        {"qk_rope_head_dim", 64},
                        {"v_head_dim", 128},
                        {"max_position_embeddings", 131072},
                        {"tie_word_embeddings", true}});
  set_absent(config, "q_lora_rank", 1536);
  const auto dim = static_cast<double>(get_int(config, "hidden_size", 1, limits::kDim));
  set_default(config, "initializer_range", 2 / std::sqrt(5 * dim));
  config["num_key_value_heads"] = Json(config["num_attention_heads"]);
  config["head_dim"] = Json(config["qk_rope_head_dim"]);
  config["rope_interleaved"] = get_bool(config, "rope_interleave", true);
}

// As Glm4MoeLiteConfig has it.
void complete_glm4_moe_lite(Json& config) {
  set_defaults(config, {{"vocab_size", 154880},
                        {"kv_lora_rank", 512},
                        {"qk_nope_head_dim", 192},
                        {"qk_rope_head_dim", 64},
                        {"v_head_dim", 256},
                        {"n_routed_experts", 64},
                        {"num_experts_per_tok", 4},
                        {"moe_intermediate_size", 1536},
                        {"routed_scaling_factor", 1.8},
                        {"n_group", 1},
                        {"topk_group", 1},
                        {"first_k_dense_replace", 1},
                        {"max_position_embeddings", 202752},
                        {"rms_norm_eps", 1e-5}});
  set_absent(config, "q_lora_rank", 768);
  complete_deepseek_v3(config);
}

// As Mistral4Config has it. What it says of the part of a head that rotates is how large that is.
void complete_mistral4(Json& config) {
  set_defaults(config, {{"vocab_size", 131072},
                        {"hidden_size", 4096},
                        {"intermediate_size", 12288},
                        {"num_hidden_layers", 36},
                        {"num_attention_heads", 32},
                        {"kv_lora_rank", 256},
                        {"qk_nope_head_dim", 64},
                        {"qk_rope_head_dim", 64},
                        {"v_head_dim", 128},
                        {"n_routed_experts", 128},
                        {"n_shared_experts", 1},
                        {"num_experts_per_tok", 4},
                        {"moe_intermediate_size", 2048},
                        {"routed_scaling_factor", 1.0},
                        {"n_group", 1},
                        {"topk_group", 1},
                        {"norm_topk_prob", true},
                        {"first_k_dense_replace", 0},
                        {"max_position_embeddings", 1048576},
                        {"tie_word_embeddings", false}});
  set_absent(config, "q_lora_rank", 1024);  // null: none
  config.erase("partial_rotary_factor");
  config["rope_interleaved"] = get_bool(config, "rope_interleave", true);
  if (find_value(config, "rope_parameters") == nullptr) {
    set_default(config, "rope_scaling",
                {{"rope_type", "yarn"},
                 {"factor", 128.0},
                 {"original_max_position_embeddings", 8192},
                 {"beta_fast", 32.0},
                 {"beta_slow", 1.0},
                 {"mscale", 1.0},
                 {"mscale_all_dim", 1.0},
                 {"attention_factor", 1.0},
                 {"llama_4_scaling_beta", 0.1}});
  }
  complete_any_deepseek(config);
}

// As KimiLinearConfig has it, whose keys have other names in files; what only the code that was
// published with the model looks at must be as it is there.
void complete_kimi_linear(Json& config) {
  constexpr const char* kLinear = "linear_attn_config";
  for (const auto& [from, to] : {std::pair("model_max_length", "max_position_embeddings"),
                                 {"moe_renormalize", "norm_topk_prob"},
                                 {"num_expert_group", "n_group"},
                                 {"num_experts_per_token", "num_experts_per_tok"},
                                 {"num_shared_experts", "n_shared_experts"},
                                 {"num_local_experts", "num_experts"}}) {
    rename_key(config, from, to);
  }
  const Json* found = find_value(config, kLinear);
  const Json linear = found != nullptr && found->is_object() ? *found : Json::object();
  for (const auto& [from, to] : {std::pair("head_dim", "linear_head_dim"),
                                 {"num_heads", "linear_num_heads"},
                                 {"short_conv_kernel_size", "linear_conv_kernel_dim"}}) {
    if (const Json* value = find_value(linear, from)) config[to] = Json(*value);
  }
  set_defaults(config, {{"vocab_size", 163840},
                        {"hidden_size", 2304},
                        {"intermediate_size", 9216},
                        {"moe_intermediate_size", 1024},
                        {"num_hidden_layers", 27},
                        {"num_attention_heads", 32},
                        {"num_experts", 256},
                        {"num_experts_per_tok", 8},
                        {"n_shared_experts", 1},
                        {"n_group", 1},
                        {"topk_group", 1},
                        {"norm_topk_prob", true},
                        {"routed_scaling_factor", 2.446},
                        {"first_k_dense_replace", 1},
                        {"kv_lora_rank", 512},
                        {"qk_nope_head_dim", 128},
                        {"qk_rope_head_dim", 64},
                        {"v_head_dim", 128},
                        {"linear_head_dim", 128},
                        {"linear_num_heads", 32},
                        {"linear_conv_kernel_dim", 4},
                        {"max_position_embeddings", 1048576},
                        {"rms_norm_eps", 1e-5},
                        {"tie_word_embeddings", false}});
  config["num_key_value_heads"] = Json(config["num_attention_heads"]);
  config["head_dim"] = Json(config["qk_rope_head_dim"]);
  const bool as_published =
      get_bool(config, "mla_use_nope", true) &&
      get_string(config, "moe_router_activation_func", "sigmoid") == "sigmoid";
  if (!as_published) {
    fail(
        ErrorKind::kUnsupported,
        "mla_use_nope false or another moe_router_activation_func than sigmoid is not supported in "
        "kimi_linear");
  }
  if (find_value(config, "layer_types") == nullptr) {
    const int64_t layers = get_int(config, "num_hidden_layers", 1, limits::kLayers);
    Json types = Json::array();
    for (int64_t i = 0; i < layers; ++i) {
      types.push_back(i > 0 && i % 4 == 0 ? "full_attention" : "linear_attention");
    }
    if (find_value(linear, "full_attn_layers") != nullptr) {
      types = periodic_layer_types(layers, layers + 1, "linear_attention");
      for (const Json& number : linear["full_attn_layers"]) {  // from 1
        if (!number.is_number_integer() || number < 1 || number > layers) {
          fail(ErrorKind::kMalformed, kLinear, ".full_attn_layers: found ", describe(&number),
               ", expected layers from 1 to ", layers);
        }
        types[number.get<size_t>() - 1] = "full_attention";
      }
    }
    config["layer_types"] = std::move(types);
  }
  config.erase(kLinear);
  set_dense_layers(config);
}

}  // namespace lumen::io
