// DeepSeek-V2 (DeepSeek-AI 2024, "DeepSeek-V2"), DeepSeek-V3 and R1 (DeepSeek-AI 2024, "DeepSeek-V3
// Technical Report"), Moonlight, which is built like V3, GLM-4.7-Flash (Zhipu AI 2026), Mistral
// Small 4 (Mistral AI 2026), and, without experts, MiniCPM3 (Hu et al. 2024) and Youtu-LLM (Tencent
// 2025).
//
// Loads DeepSeek-V2, V2-Lite, Coder-V2, V3, V3.1 and R1, Moonlight-16B-A3B, Kimi K2, GLM-4.7-Flash,
// Mistral Small 4 (119B-A6B), MiniCPM3-4B, which has the three scales of MiniCPM, too, and
// Youtu-LLM-2B. Differs from plain
// Llama by multi-head latent attention and, but for the first layers, by mixtures of experts with
// some that every token goes through. The chosen experts are those of groups that are chosen first;
// V3's and GLM's scores are sigmoids, with a correction per expert. Mistral's queries are scaled by
// their position in long texts.
#include <cmath>

#include "lib/base/error.h"
#include "lib/io/layer_windows.h"
#include "models/decoder_lm.h"

namespace lumen::models {
namespace deepseek {

// Yarn with mscale_all_dim multiplies queries and keys by a factor each.
double score_factor(const io::Json& json) {
  const io::Json* scaling = io::find_value(json, "rope_scaling");
  if (scaling == nullptr) return 1;
  const double all = io::get_number(*scaling, "mscale_all_dim", 0, 1e6, 0);
  const double factor = all == 0 ? 1 : io::get_number(*scaling, "factor", 1e-6, 1e6);
  return std::pow(factor > 1 ? 0.1 * all * std::log(factor) + 1 : 1, 2);
}

nn::LatentAttentionShape latent_attention(const io::Json& json, const nn::DecoderConfig& config) {
  nn::LatentAttentionShape shape = latent_attention_of(json, config);
  shape.scale *= score_factor(json);
  if (shape.rotary_dim != config.rotary_dim) {
    fail(ErrorKind::kMalformed, "qk_rope_head_dim ", shape.rotary_dim, " is not the ",
         config.rotary_dim, " numbers of a head that rotate");
  }
  return shape;
}

std::unique_ptr<CausalLm> make(const io::Json& json, const nn::Parameters& parameters) {
  const nn::DecoderConfig config(json);
  if (io::get_bool(json, "mlp_bias", false)) {
    fail(ErrorKind::kUnsupported, "mlp_bias true is not supported");
  }
  nn::LayerShape dense = plain_layer(config);
  dense.latent = latent_attention(json, config);
  std::function<nn::LayerShape(int64_t)> layer = [dense](int64_t) { return dense; };
  if (io::expert_count(json) > 0) {
    layer = with_experts(json, layer, grouped_experts_of(json, config));
  }
  DecoderShape shape{.layer = layer};
  const std::string type = io::get_string(json, "model_type");
  if (type == "mistral4") {
    shape.scales_rotated = true;
    shape.temperature = nn::Rope(json, config.rotary_dim).temperature;
    io::Json unscaled = json;  // not by cos and sin, as all of a query is scaled
    if (shape.temperature.beta > 0) unscaled["rope_scaling"].erase("llama_4_scaling_beta");
    return std::make_unique<DecoderLm>(unscaled, config, parameters, shape);
  }
  if (type == "minicpm3") {
    const auto number = [&](const char* key) { return io::get_number(json, key, 1e-9, 1e9); };
    dense.residual_scale =
        number("scale_depth") / std::sqrt(static_cast<double>(config.num_hidden_layers));
    shape.layer = [dense](int64_t) { return dense; };
    shape.embedding_scale = number("scale_emb");
    shape.logit_scale = number("dim_model_base") / static_cast<double>(config.hidden_size);
  }
  return std::make_unique<DecoderLm>(json, config, parameters, shape);
}

std::vector<io::Json> tiny_configs() {
  const io::Json base = small_config(
      "deepseek_v2",
      {{"hidden_size", 24},        {"intermediate_size", 40}, {"moe_intermediate_size", 16},
       {"num_key_value_heads", 4}, {"head_dim", 4},           {"q_lora_rank", nullptr},
       {"kv_lora_rank", 24},       {"qk_nope_head_dim", 8},   {"qk_rope_head_dim", 4},
       {"v_head_dim", 10},         {"num_experts", 3},        {"n_routed_experts", 3},
       {"num_experts_per_tok", 2}, {"n_shared_experts", 1},   {"routed_scaling_factor", 1.0},
       {"norm_topk_prob", false},  {"topk_method", "greedy"}, {"first_k_dense_replace", 1},
       {"mlp_only_layers", {0}},   {"rms_norm_eps", 1e-6},    {"rope_theta", 1e4},
       {"rope_interleaved", true}});
  io::Json grouped = base;
  grouped.update({{"topk_method", "group_limited_greedy"},
                  {"n_group", 3},
                  {"topk_group", 2},
                  {"q_lora_rank", 12},
                  {"v_head_dim", 14},
                  {"attention_bias", true},
                  {"routed_scaling_factor", 3.0},
                  {"tie_word_embeddings", true}});
  io::Json v3 = grouped;
  v3.update({{"model_type", "deepseek_v3"},
             {"topk_method", "noaux_tc"},
             {"norm_topk_prob", true},
             {"num_experts", 4},
             {"n_routed_experts", 4},
             {"n_group", 2},
             {"topk_group", 1},
             {"attention_bias", false},
             {"n_shared_experts", 2},
             {"rope_scaling",
              {{"rope_type", "yarn"},
               {"factor", 4.0},
               {"mscale", 1.0},
               {"mscale_all_dim", 1.0},
               {"attention_factor", 1.0},
               {"original_max_position_embeddings", 16}}}});
  io::Json unweighted = v3;
  unweighted.update({{"norm_topk_prob", false}, {"n_shared_experts", 0}, {"q_lora_rank", nullptr}});
  io::Json glm = v3;
  glm.update({{"model_type", "glm4_moe_lite"},
              {"n_group", 1},
              {"topk_group", 1},
              {"rope_scaling", nullptr},
              {"rope_interleave", false},
              {"rope_interleaved", false}});
  io::Json mistral = v3;
  mistral.update({{"model_type", "mistral4"},
                  {"n_group", 1},
                  {"topk_group", 1},
                  {"first_k_dense_replace", 0},
                  {"mlp_only_layers", io::Json::array()}});
  mistral["rope_scaling"].update(
      {{"llama_4_scaling_beta", 0.3}, {"original_max_position_embeddings", 3}});
  io::Json youtu = base;
  for (const char* key :
       {"num_experts", "n_routed_experts", "num_experts_per_tok", "n_shared_experts",
        "routed_scaling_factor", "norm_topk_prob", "topk_method", "first_k_dense_replace",
        "mlp_only_layers", "moe_intermediate_size"}) {
    youtu.erase(key);
  }
  youtu.update({{"model_type", "youtu"}, {"q_lora_rank", 12}, {"tie_word_embeddings", true}});
  io::Json minicpm = youtu;
  minicpm.update({{"model_type", "minicpm3"},
                  {"v_head_dim", 6},
                  {"rope_interleaved", false},
                  {"scale_emb", 12},
                  {"scale_depth", 1.4},
                  {"dim_model_base", 256}});
  return {base, grouped, v3, unweighted, glm, youtu, minicpm, mistral};
}

constexpr std::string_view kModelTypes[] = {"deepseek_v2", "deepseek_v3", "glm4_moe_lite",
                                            "minicpm3",    "mistral4",    "youtu"};

}  // namespace deepseek

extern const ModelDef kDeepseek;
const ModelDef kDeepseek = {"deepseek", deepseek::kModelTypes, deepseek::make,
                            deepseek::tiny_configs};

}  // namespace lumen::models
