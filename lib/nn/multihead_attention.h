// Attention with as many heads for keys and values as for queries, as torch.nn.MultiheadAttention.
// Grouped-query attention with rotary positions, of language models, is in decoder.h.
#pragma once

#include "lib/nn/dropout.h"
#include "lib/nn/layers.h"
#include "lib/nn/module.h"

namespace lumen::nn {

// softmax(q kᵀ / √head_dim + mask) v per head (Vaswani et al. 2017), between projections.
// Parameters: in_proj_weight [3 · dim, dim] (q, k, v), starting Xavier-uniform, in_proj_bias,
// out_proj.weight, out_proj.bias; biases start at zero.
class MultiheadAttention : public Module {
 public:
  // `dropout` is of the attention weights, while training.
  MultiheadAttention(const Parameters& parameters, int64_t dim, int64_t heads, bool bias = true,
                     double dropout = 0);

  struct Options {
    bool causal = false;  // position t sees positions ≤ t
    // Broadcasts to [batch, heads, queries, keys]: added to the scores, or, if bool, true where a
    // query may not look; the row of one that may look nowhere is NaN. Keys that are padding: bool
    // [batch, 1, 1, keys].
    Tensor mask = {};
  };
  // query [batch, queries, dim], key and value [batch, keys, dim] → [batch, queries, dim]. Throws
  // Error(kMalformed) for other shapes and for a mask of integers.
  Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value,
                const Options& options) const;
  Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value) const {
    return attend(query, key, value, Options());
  }
  // Self-attention without a mask.
  Tensor forward(const Tensor& x) const override { return attend(x, x, x); }

  void visit_children(Visitor visit) override { visit("dropout", dropout_); }

 private:
  int64_t dim_, heads_;
  Tensor in_weight_, in_bias_;
  Linear out_proj_;
  Dropout dropout_;
};

}  // namespace lumen::nn
