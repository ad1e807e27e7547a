// What single layers of a model do otherwise than the others: windows, rotation, widths, experts.
#pragma once

#include <string_view>
#include <vector>

#include "lib/io/json.h"

namespace lumen::io {

// The window of each layer in tokens; 0: all positions. `config` as ModelFiles::config, of a model
// whose layers need not be alike: a layer has the window sliding_window where layer_types calls it
// "sliding_attention", without such a list from max_window_layers on. Throws Error(kMalformed) for
// a list of another length than num_hidden_layers or with windows in a model that has none, as
// transformers does not run one, and Error(kUnsupported) for another type of layer.
std::vector<int64_t> layer_windows(const Json& config);

// The layer_types of a model whose layers are of type `most` but for every `period`-th, which is
// "full_attention".
Json periodic_layer_types(int64_t layers, int64_t period,
                          std::string_view most = "sliding_attention");

// Most taps of the convolution of a layer with linear attention, or of one with nothing else.
inline constexpr int64_t kMostConvTaps = 64;
// Whether each layer of a model with layer_types, "linear_attention" or "full_attention", has
// linear attention. Throws as layer_windows.
std::vector<bool> linear_attention_layers(const Json& config);
// Whether each layer of a model with layer_types, "conv" or "full_attention", has a convolution in
// place of attention (LFM2). Throws as layer_windows.
std::vector<bool> convolution_layers(const Json& config);

// Whether each layer of a model with layer_types, "mamba" or "attention" as files have them or
// "linear_attention" or "full_attention" as newer ones do, has Mamba-2 in place of attention
// (Granite 4.0). Throws as layer_windows.
std::vector<bool> mamba_layers(const Json& config);

// Whether each layer of a model with layer_types, "hybrid" or "mamba" as files have them or
// "linear_attention" as newer ones do, has a transformer block before Mamba-2 (Zamba2). Throws as
// layer_windows.
std::vector<bool> hybrid_layers(const Json& config);

// What a layer of Nemotron-H is: one thing alone.
enum class SingleLayer { kMamba, kAttention, kMlp, kExperts };
// Those of layers_block_type, "mamba", "attention", "mlp" and "moe" or as newer files have the
// first two. Throws as layer_windows.
std::vector<SingleLayer> single_layers(const Json& config);

// Whether each layer of a SmolLM3 rotates queries and keys: where no_rope_layers says 1; without
// such a list all but every no_rope_layer_interval-th, of 4. Throws Error(kMalformed) for a list of
// another length than num_hidden_layers.
std::vector<bool> rotating_layers(const Json& config);

// How wide the feed-forward layer of each layer is: the list `key`, or, without one, what
// intermediate_size says of all. Throws Error(kMalformed) for a list of another length than
// num_hidden_layers, and for what is no width.
std::vector<int64_t> intermediate_sizes(const Json& config, const char* key = "intermediate_sizes");
// How many heads of queries each layer has: the list num_attention_heads_per_layer, or, without
// one, num_attention_heads (Laguna). Throws likewise, and for what is no multiple of
// num_key_value_heads.
std::vector<int64_t> heads_of_layers(const Json& config);
// What part of the numbers of each layer's gate becomes 0, if they are normally distributed: the
// list activation_sparsity_pattern, of parts from 0 and below 1; 0 for all without one. Throws
// likewise.
std::vector<double> activation_sparsities(const Json& config);

// The layers that the list `key` of a config names, in its order; none without such a list. Throws
// Error(kMalformed) for what is no list of numbers below num_hidden_layers.
std::vector<size_t> listed_layers(const Json& config, const char* key);

// Whether each layer of a Qwen2-MoE or Qwen3-MoE has experts: every decoder_sparse_step-th, of 1,
// that mlp_only_layers does not name. Throws Error(kMalformed) for a name that is no layer's.
std::vector<bool> sparse_layers(const Json& config);

// How many experts those layers have, 0 without: what a config calls num_experts or, of Mixtral and
// gpt-oss, num_local_experts. Throws Error(kMalformed) for what is no such number.
int64_t expert_count(const Json& config);

}  // namespace lumen::io
