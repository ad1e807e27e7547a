// What single architectures say in keys of their own, by groups of them, for the table in
// gguf_families.cc; and what several have in common. For the files of this room that are called so.
#pragma once

#include <string_view>
#include <vector>

#include "lib/io/gguf_keys.h"
#include "lib/io/json.h"

namespace lumen::io {

// Each completes or writes a config, as read_family_keys and write_family_keys do.
using ReadFamily = void(const ArchitectureKeys& keys, Json& config);
using WriteFamily = void(const Json& config, const KeyWriter& keys);

// Mixtures of experts of Qwen2 and Qwen3, OLMoE, GLM-4.5, Ling 2.0, LFM2, ERNIE 4.5, MiniMax-M2,
// dots.llm1, Hunyuan, Phi-3.5-MoE, Llama 4 and AFMoE (gguf_experts.cc).
ReadFamily read_afmoe, read_qwen2moe, read_qwen3moe, read_olmoe, read_glm4moe, read_lfm2moe,
    read_ernie4_5_moe, read_minimax_m2, read_dots1, read_bailingmoe2, read_hunyuan_moe, read_phimoe,
    read_llama4;
WriteFamily write_afmoe, write_qwen2moe, write_qwen3moe, write_olmoe, write_glm4moe, write_lfm2moe,
    write_ernie4_5_moe, write_minimax_m2, write_dots1, write_bailingmoe2, write_hunyuan_moe,
    write_phimoe, write_llama4;
// Qwen2-VL, Qwen2.5-VL and Qwen3-VL (gguf_qwen_vl.cc).
ReadFamily read_qwen3vl, read_qwen3vlmoe;
WriteFamily write_qwen2vl, write_qwen3vl, write_qwen3vlmoe;
// Gated DeltaNets: Qwen3-Next and Qwen3.5 (gguf_delta_net.cc).
ReadFamily read_qwen35, read_qwen35moe, read_qwen3next;
WriteFamily write_qwen35, write_qwen35moe, write_qwen3next;
// Granite, with experts or Mamba-2 (gguf_granite.cc).
ReadFamily read_granite, read_granitemoe, read_granitehybrid, read_granite_swa;
WriteFamily write_granite, write_granitemoe, write_granitehybrid, write_granite_swa;
// Mixtures of experts of 2026: Command A+, Hy3, Laguna and Mellum 2 (gguf_layered_experts.cc).
ReadFamily read_cohere2moe, read_hy_v3, read_laguna, read_mellum;
WriteFamily write_cohere2moe, write_hy_v3, write_laguna, write_mellum;
// Nemotron-H, Falcon-H1 and Mamba-2 alone (gguf_mamba.cc).
ReadFamily read_nemotron_h, read_nemotron_h_moe, read_falcon_h1, read_mamba2;
WriteFamily write_nemotron_h, write_nemotron_h_moe, write_falcon_h1, write_mamba2;
// The first Mamba, alone and in Jamba (gguf_mamba1.cc).
ReadFamily read_mamba, read_jamba;
WriteFamily write_mamba, write_jamba;
// Latent attention: DeepSeek-V2 and V3, what is built like them, MiniCPM3 and Kimi Linear
// (gguf_deepseek.cc).
ReadFamily read_deepseek2, read_minicpm3, read_mistral4, read_kimi_linear;
WriteFamily write_deepseek2, write_minicpm3, write_mistral4, write_kimi_linear;
// Gemma (gguf_gemma.cc; 3n and 4 gguf_gemma4.cc).
ReadFamily read_gemma, read_gemma2, read_gemma3, read_gemma3n, read_gemma4;
WriteFamily write_gemma2, write_gemma3, write_gemma3n, write_gemma4;
// Families with layer norms: GPT-2, StarCoder and StarCoder2, Command R and R7B, Nemotron,
// GPT-NeoX, StableLM, Phi-2, Falcon, OLMo, BLOOM, MPT and Jais 2 (gguf_layer_norms.cc).
ReadFamily read_gpt2, read_starcoder, read_starcoder2, read_cohere, read_cohere2, read_nemotron,
    read_gptneox, read_stablelm, read_phi2, read_falcon, read_olmo, read_bloom, read_mpt,
    read_jais2;
WriteFamily write_gpt2, write_starcoder, write_starcoder2, write_cohere, write_cohere2,
    write_nemotron, write_gptneox, write_stablelm, write_falcon, write_olmo, write_mpt, write_jais2;

// --- Experts (gguf_experts.cc) -----------------------------------------------------------------

inline constexpr const char* kSharedLength = "expert_shared_feed_forward_length";
inline constexpr const char* kSharedCount = "expert_shared_count";

// How many experts, how many of them a token goes through, their inner size; `count` and `length`
// are what the config calls the first and the last.
void read_experts(const ArchitectureKeys& keys, const char* count, Json& config);
void write_experts(const Json& config, const char* count, const char* length,
                   const KeyWriter& keys);
// Those of Qwen's mixtures, with the expert that all tokens go through. `normalized`: the
// probabilities of the chosen experts add up to 1 in all files of the architecture, or in none.
void read_shared_experts(const ArchitectureKeys& keys, bool normalized, Json& config);
void write_shared_experts(const Json& config, bool normalized, const KeyWriter& keys);

// DeepSeek's, GLM-4.5's and dots.llm1's: how many experts all tokens go through, by which scores
// and of which groups experts are chosen, what their weights are multiplied by. Returns whether
// scores are sigmoids, as they are in all files of the architecture if `only_sigmoid`.
bool read_grouped_experts(const ArchitectureKeys& keys, bool only_sigmoid, Json& config);
void write_grouped_experts(const Json& config, bool sigmoid, const KeyWriter& keys);
// What experts' weights are multiplied by, and whether they add up to 1 before; by which scores
// experts are chosen.
inline constexpr const char *kExpertScale = "expert_weights_scale",
                            *kNormalized = "expert_weights_norm", *kGating = "expert_gating_func";
inline constexpr int64_t kSoftmax = 1, kSigmoid = 2;
// Whether scores are sigmoids. `only`: of all models of the architecture, also if a file does not
// say so; otherwise such a file means probabilities.
bool read_gating(const ArchitectureKeys& keys, bool only, const Json& config);
// How many of the first layers have no experts, all of a file without any; names them in
// mlp_only_layers. Writing throws Error(kUnsupported) for others without.
int64_t read_dense_layers(const ArchitectureKeys& keys, Json& config);
void write_dense_layers(const Json& config, const KeyWriter& keys);

// --- Positions of what is seen (gguf_qwen_vl.cc) -------------------------------------------------

// mrope_section: how many of the pairs that rotate do so by time, height and width. Reading throws
// Error(kMalformed) for other than four numbers, and Error(kUnsupported) for a fourth, by which
// pairs of text would not rotate. Writing throws Error(kMalformed) for sections that are not as
// many as the pairs; where a config does not say them, those of time are `time` of the pairs, and
// those of height, with one more if need be, and width halves of the others.
ReadFamily read_sections;
void write_sections(const Json& config, double time, const KeyWriter& keys);

// --- State space models (gguf_delta_net.cc, gguf_mamba.cc) ---------------------------------------

inline constexpr const char* kConvKernel = "ssm.conv_kernel";
inline constexpr const char* kStateSize = "ssm.state_size";
inline constexpr const char* kGroupCount = "ssm.group_count";
inline constexpr const char* kTimeStepRank = "ssm.time_step_rank";
inline constexpr const char* kInnerSize = "ssm.inner_size";
inline constexpr const char* kConvBias = "ssm_conv1d.bias";  // a tensor of a layer

// Of kInnerSize numbers the part of each of kTimeStepRank heads. Throws Error(kMalformed) for what
// is no multiple.
int64_t inner_head_dim(const ArchitectureKeys& keys, const Json& config);

// What a family calls the sizes of its Mamba-2.
struct MambaSizes {
  const char *heads, *head_dim, *groups, *state, *conv;
};
void read_mamba_sizes(const ArchitectureKeys& keys, const MambaSizes& sizes, Json& config);
void write_mamba_sizes(const Json& config, const MambaSizes& sizes, const KeyWriter& keys);
// Sets the key `name` to how many times wider than the model Mamba-2 is.
void set_expansion(const ArchitectureKeys& keys, const char* name, Json& config);
// Throws Error(kUnsupported) for time steps with limits, which no reader knows.
void require_no_step_limit(const Json& config);

// --- What several have in common (gguf_families.cc) --------------------------------------------

inline constexpr const char* kQueryHeads = "attention.head_count";
inline constexpr const char* kKvHeads = "attention.head_count_kv";
inline constexpr const char* kLength = "feed_forward_length";
inline constexpr const char* kNormEpsilon = "attention.layer_norm_epsilon";
inline constexpr const char* kRotates = "rope.scaling.finetuned";  // true if a file does not say it
inline constexpr const char* kWindow = "attention.sliding_window";
// Which layers have it, or that all but every n-th have.
inline constexpr const char* kWindowPattern = "attention.sliding_window_pattern";
// The base of rotation of layers with a window, in a file and in a config.
inline constexpr const char *kLocalTheta = "rope.freq_base_swa",
                            *kLocalBase = "rope_local_base_freq";
// How queries of long texts are scaled: the factor, and what a config calls it.
inline constexpr const char *kQueryScale = "attention.temperature_scale",
                            *kQueryBeta = "llama_4_scaling_beta";
// … and from how many positions on.
inline constexpr const char* kQueryScaleLength = "attention.temperature_length";
// 0.1 · mscale_all_dim of yarn; mscale is the same, so that cos and sin are not multiplied.
inline constexpr const char* kYarnMultiplier = "rope.scaling.yarn_log_multiplier";

// What a config of GPT-2 calls hidden_act.
inline constexpr const char* kGpt2Activation = "activation_function";

// A number that is called the same in both, and what files without the key mean.
struct Usual {
  const char* key;
  double usual;
};

// The window that a file names, or `unsaid`; 0: none, which some files say so.
int64_t read_window(const ArchitectureKeys& keys, int64_t unsaid = 0);
// Which layers have it: as the file says, or all but every `period`-th.
Json read_layer_types(const ArchitectureKeys& keys, int64_t layers, int64_t period);
// The window and the layers of a model that may have one; whether there is one.
bool read_windows(const ArchitectureKeys& keys, int64_t period, Json& config, int64_t unsaid = 0);
// The window that a config names, if any; of layers that have it but every n-th, and n where it is
// not the `usual` one, or of none at all; of none. The last two throw Error(kUnsupported) for other
// layers, as require_windows.
void write_window(const Json& config, const KeyWriter& keys);
void write_windows(const Json& config, const KeyWriter& keys, int64_t usual);
WriteFamily write_no_windows;
// Throws Error(kUnsupported) unless all layers rotate but every 4th.
void require_usual_rotation(const Json& config, std::string_view architecture);

// Writes how many heads of keys each layer has: none, where it is one of `without` (of LayerKeys::
// kSome and kSingle).
void write_kv_heads(const Json& config, const std::vector<bool>& without, const KeyWriter& keys);
// Which layers have a window, and the layer_types of layers of which these have one.
std::vector<bool> windowed_layers(const Json& config);
Json layer_types_of(const std::vector<bool>& windowed);
// Which layers have a convolution in place of attention, those without heads of keys, and how long
// it is (LFM2).
ReadFamily read_convolutions;
WriteFamily write_convolutions;
// Takes layers that guess further tokens, which come last and are not used, off num_hidden_layers
// and notes them as mtp_num_hidden_layers.
void leave_out_guessing_layers(const ArchitectureKeys& keys, Json& config);
// Says partial_rotary_factor 1 where all of a head rotates: what a config does not say is one half
// in Hugging Face.
void say_rotary_factor(Json& config);

// These throw Error(kUnsupported) for what readers of the architecture would not see: `what` would
// be lost, as they do `why`; `key` is true, of biases that they do not add; the output is the
// embedding.
[[noreturn]] void cannot_write(std::string_view architecture, std::string_view what,
                               std::string_view why);
void require_no_bias(const Json& config, const char* key);
// The layers have no other windows than `expected`, layer_types, or, where that is null, none.
void require_windows(const Json& config, std::string_view architecture, const Json& expected);
void require_own_output(const Json& config);

}  // namespace lumen::io
