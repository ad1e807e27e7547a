// Multi-head latent attention (DeepSeek-AI 2024, "DeepSeek-V2", section 2.1): the keys and values
// of all heads are linear functions of one short vector per position, its latent, which is all that
// a cache holds of it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lib/nn/layers.h"

namespace lumen::nn {

struct Pass;

struct LatentAttentionShape {
  int64_t hidden, heads;
  int64_t query_rank;  // of the latents of queries; 0: there are none
  int64_t rank;        // of the latents of keys and values
  int64_t key_dim;     // of a head's key, what is a function of the latent and does not rotate
  int64_t rotary_dim;  // the rest of it, which rotates and is the same for all heads
  int64_t value_dim;
  bool bias = false;   // of q_a_proj, kv_a_proj_with_mqa and o_proj
  double scale = 1;    // of q · k
  double eps = 1e-6;   // of the norms of latents
  double dropout = 0;  // of the weights, while training

  // What a cache holds of a position.
  int64_t cached() const { return rotary_dim + rank; }
  int64_t query_dim() const { return rotary_dim + key_dim; }
};

// With [c, r] = kv_a_proj_with_mqa(x), c' = kv_a_layernorm(c) and, for each head, [k, v] =
// kv_b_proj(c'), causal attention of [k, rope(r)] and v; queries are those of q_proj, or
// q_b_proj(q_a_layernorm(q_a_proj(x))), of which the last rotary_dim of each head rotate; o_proj of
// what it gives. With a cache, of rows [rope(r), c'] for keys and values alike, heads meet c'
// itself: q · (K c') is (Kᵀ q) · c', and Σ w V c' is V Σ w c', with K and V a head's rows of
// kv_b_proj. A checkpoint may have them in its place, as GGUF does: k_b_proj.weight [heads, rank,
// key_dim] and v_b_proj.weight [heads, value_dim, rank].
class LatentAttention {
 public:
  LatentAttention(const Parameters& parameters, const LatentAttentionShape& shape);
  // x [batch, tokens, hidden] → the same. `pass` rotates, or nothing does; its cache has such rows
  // as k and no v.
  Tensor operator()(const Tensor& x, const Pass& pass, int64_t layer) const;

 private:
  // Of each head, the part that rotates first: [batch, tokens, heads, rotary_dim + key_dim].
  Tensor queries(const Tensor& x) const;
  // Σ w v of the positions that are in the cache, [batch, tokens, heads, value_dim], and of those
  // of the given tokens: of queries as above, before rotation, and of r and c'.
  Tensor attend_to_cache(const Tensor& q, const Tensor& r, const Tensor& latents, const Pass& pass,
                         int64_t layer) const;
  Tensor attend(const Tensor& q, const Tensor& r, const Tensor& latents, const Pass& pass) const;
  Tensor weighed(const Tensor& q, const Tensor& k, const Tensor& v, const Pass& pass) const;

  LatentAttentionShape shape_;
  std::optional<Linear> q_a_;
  std::optional<RmsNorm> q_norm_;
  Linear q_;  // q_proj or q_b_proj
  Linear kv_a_;
  RmsNorm kv_norm_;
  std::optional<Linear> kv_b_;
  Tensor keys_, values_;  // K and V of all heads [heads, key_dim or value_dim, rank], not quantised
  Linear o_proj_;
};

// The name that a tensor k_b_proj.weight has of kv_b_proj or of v_b_proj; "" of other tensors.
std::string joined_rows_name(std::string_view key_rows);
std::string value_rows_name(std::string_view key_rows);
// kv_b_proj.weight of such tensors of any types, as float32.
Array joined_rows(const Array& key_rows, const Array& value_rows);
// In place of all such tensors puts what they are joined.
void join_latent_rows(NamedArrays& tensors);

}  // namespace lumen::nn
