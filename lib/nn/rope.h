// Rotary position frequencies, from a config's rope_theta and rope_scaling.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/io/json.h"
#include "lib/nn/parameters.h"

namespace lumen::nn {

// What queries of long texts are multiplied by: at position p 1 + β ln(1 + ⌊p / length⌋), p counted
// from 1 if `from_one` (Llama 4).
struct QueryTemperature {
  double beta = 0;  // 0: they are not
  int64_t length = 1;
  bool from_one = false;

  // Of `tokens` positions from `first` (int32 [1] or [batch]) on, or of each token's `own`
  // (integers [batch, tokens]): float32 [1 or batch, tokens]. All are below `positions`. Undefined
  // where it is 1 for all.
  Tensor of(const Tensor& first, int64_t tokens, const Tensor& own, int64_t positions) const;
};

// θ_i = rope_theta^(−2i/dim), changed as rope_scaling asks: "linear" (θ/factor), "llama3" (long
// wavelengths divided by factor, short ones kept, a ramp between; Llama 3.1 model card), "yarn"
// (Peng et al. 2023), "longrope" (θ_i/factor_i, with factors for contexts up to the original length
// and others beyond; Ding et al. 2024), "proportional" (the first partial_rotary_factor of them,
// θ/factor, the others 0; Gemma 4). "default" and null change nothing; "dynamic" changes
// nothing up to the original length, which the context is then limited to, but with an "alpha" the
// base at every length (io::rope_base). With "rope_backward" all turn the other way, by −θ
// (nanochat).
struct Rope {
  // `config`: Hugging Face keys (io/model_files.h). Throws Error(kUnsupported) for another
  // rope_type and Error(kMalformed) for bad numbers.
  Rope(const io::Json& config, int64_t head_dim);

  // Divides θ_i by divisors[i] [head_dim/2] (GGUF's rope_freqs.weight).
  void divide(const Tensor& divisors);
  // The factors of "longrope", which GGUF has as tensors [head_dim/2]: rope_factors_short.weight,
  // rope_factors_long.weight.
  void set_factors(const Tensor& short_factors, const Tensor& long_factors);
  // Positions go up to `context`, at first to the original length at most: decides between the
  // factors of "longrope". Whether those for long contexts hold now.
  bool set_context(int64_t context);

  // cos and sin for `tokens` positions from position[0]: shared by all layers.
  Tensor table(const Tensor& position, int64_t tokens) const;
  // The same for queries, from `table`, or, with `own` positions (integers [batch, tokens]) for
  // their scale, [batch · tokens, …]. All positions are below `positions`.
  Tensor query_table(const Tensor& table, const Tensor& position, const Tensor& own,
                     int64_t positions) const;

  Tensor frequencies;           // float32 [head_dim / 2]
  double attention_factor = 1;  // scales cos and sin (yarn, longrope)
  bool interleaved = false;     // pairs (2i, 2i+1) instead of (i, i + head_dim/2)
  // Of queries: a rope_scaling's "llama_4_scaling_beta" and "original_max_position_embeddings"
  // (Ministral 3).
  QueryTemperature temperature{};

 private:
  Tensor short_frequencies_, long_frequencies_;  // longrope
  int64_t original_ = 0;                         // the longest context of the former
};

// What rope_scaling "llama3" divides θ_i by [head_dim / 2]: GGUF's rope_freqs.weight; and
// "proportional", of heads of the config's global_head_dim, by 1e30 where it makes them 0. Empty
// for any other scaling. Throws as Rope.
std::vector<float> rope_divisors(const io::Json& config, int64_t head_dim);

// The rope_scaling "llama3" that has these rope_divisors, with the low_freq_factor 1 and the
// high_freq_factor 4 of all published models; null if there is none.
io::Json llama3_scaling(const io::Json& config, std::span<const float> divisors);

// GGUF has the scalings of Llama 3 and longrope as tensors of divisors [head_dim / 2]. Whether one
// with this name is such, and those of a config by name; `head_dim`: what of it rotates.
bool is_rope_tensor(std::string_view name);
std::map<std::string, std::vector<float>> rope_tensors(const io::Json& config, int64_t head_dim);
// Sets the rope_scaling that says what such tensors do, if there are some among `tensors`. False,
// having changed nothing, if they have no name in a config.json.
bool set_rope_scaling(const NamedArrays& tensors, io::Json& config);

// Whether the rows of the tensor with this name rotate: weights, biases and LoRA B matrices of
// q_proj and k_proj.
bool has_rotary_rows(std::string_view name);

// Whether such rows of a model with this config (ModelFiles::config) are in the order of
// interleaved pairs, while those of its Hugging Face directory are not.
bool has_reordered_rows(const io::Json& config);

// Rows of a q or k weight or bias [heads · head_dim, …], of any type, brought from the order of
// halves (Hugging Face: row i rotates with row i + head_dim/2) into that of interleaved pairs
// (GGUF's llama: 2i with 2i + 1), or back.
Array reorder_rotary_rows(const Array& weight, int64_t head_dim, bool to_interleaved);

}  // namespace lumen::nn
