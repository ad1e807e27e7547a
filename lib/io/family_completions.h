// What completes the configs of single families, and what these functions share. For this room
// only.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "lib/io/family_defaults.h"
#include "lib/io/json.h"

namespace lumen::io {

// The width of a layer, and, where layers differ, the widths, of which it is the first.
inline constexpr const char *kWidth = "intermediate_size", *kWidths = "intermediate_sizes";

// set_default of all of these.
void set_defaults(Json& config, std::initializer_list<std::pair<const char*, Json>> defaults);
// As set_default where null means something else than an absent key.
void set_absent(Json& config, const char* key, Json value);
// Layers of type `most` and, every `period`-th, with full attention, if the config has no list.
void set_layer_types(Json& config, int64_t period, std::string_view most = "sliding_attention");

// Of experts that a family calls `from`: checks it by that name and says it as `to`, too; without
// it `to` is `unsaid`, unless the config has it.
void rename_count(Json& config, const char* from, const char* to, int64_t unsaid);
// The first layers, first_k_dense_replace, have no experts, and of the others every
// moe_layer_freq-th has; newer configs have a list, mlp_layer_types.
void set_dense_layers(Json& config);
// Says that only layers from `first` to `last` may have experts.
void set_range_of_experts(Json& config, int64_t first, int64_t last);

// What complete_family does for one family. Throws as it does.
using CompleteFamily = void(Json& config);
// Dense models that mixtures are like (family_defaults.cc).
CompleteFamily complete_any_cohere, complete_exaone4, complete_hunyuan;
// Llamas and what is nearly one (family_defaults_llama.cc).
CompleteFamily complete_bitnet, complete_cwm, complete_granite_moe_swa, complete_granite_swa,
    complete_helium, complete_iquestcoder, complete_jais2, complete_ministral, complete_nanochat;
// Families whose configs have other names (family_defaults_renamed.cc).
CompleteFamily complete_bloom, complete_exaone, complete_falcon, complete_mpt, complete_gpt2,
    complete_gpt_bigcode, complete_gpt_neox, complete_gptj, complete_internlm3, complete_opt;
// Mixtures of experts (family_defaults_experts.cc).
CompleteFamily complete_afmoe, complete_bailing_moe_v2, complete_cohere2_moe, complete_dots1,
    complete_ernie4_5_moe, complete_exaone_moe, complete_glm4_moe, complete_gpt_oss,
    complete_granite_moe, complete_hunyuan_moe, complete_hy_v3, complete_laguna, complete_llama4,
    complete_mellum, complete_minimax_m2, complete_olmoe, complete_phimoe, complete_qwen2_moe,
    complete_qwen3_moe, complete_qwen3_vl_moe, complete_solar_open;
// Latent attention (family_defaults_latent.cc).
CompleteFamily complete_deepseek_v2, complete_deepseek_v3, complete_glm4_moe_lite,
    complete_kimi_linear, complete_minicpm3, complete_mistral4, complete_youtu;
// Layers with states (family_defaults_states.cc).
CompleteFamily complete_bamba, complete_falcon_h1, complete_granite_moe_hybrid, complete_jamba,
    complete_lfm2, complete_lfm2_moe, complete_lfm3, complete_mamba, complete_mamba2,
    complete_nemotron_h, complete_olmo_hybrid, complete_qwen3_5, complete_qwen3_5_moe,
    complete_qwen3_next, complete_recurrent_gemma, complete_zamba2;

}  // namespace lumen::io
