// The small layers. Names of parameters are Hugging Face's.
#pragma once

#include <optional>

#include "lib/nn/parameters.h"
#include "lib/nn/training_scope.h"
#include "lib/ops/ops.h"

namespace lumen::nn {

// y, a linear layer's value for x, with its low-rank addition: y + scale · B (A x).
inline Tensor with_addition(const Tensor& y, const Tensor& x,
                            const std::optional<LowRank>& addition) {
  if (!addition) return y;
  const Tensor low =
      ops::linear(ops::linear(dropout(x, addition->dropout), addition->a), addition->b);
  return ops::add(y, ops::mul(low, graph::scalar(static_cast<float>(addition->scale))));
}

// y = x · weightᵀ + bias; weight [out, in] in its stored type, bias [out] or none. Both start
// uniform in ±1/√in, unless `bias_init` says otherwise. With a low-rank addition if the parameters
// have one for this place.
struct Linear {
  Linear(const Parameters& parameters, int64_t in, int64_t out, bool with_bias,
         const std::optional<Init>& bias_init = {})
      : weight(parameters.get("weight", {out, in}, Init::fan_in_uniform())),
        addition(parameters.low_rank(in, out)) {
    const Init uniform = Init::within_root(static_cast<double>(in));
    if (with_bias) bias = parameters.get_f32("bias", {out}, bias_init.value_or(uniform));
  }
  // Shares the weight of another layer (a head tied to the embedding). A constant is shared as
  // memory only: its two uses may come to want it in different layouts.
  explicit Linear(const Tensor& shared) : weight(shared) {
    graph::check_defined(shared, "Linear", "shared");
    const graph::Node& node = *shared.node();
    if (graph::is_constant(node)) weight = graph::constant(node.value, node.name);
  }
  Tensor operator()(const Tensor& x) const {
    return with_addition(ops::linear(x, weight, bias), x, addition);
  }

  Tensor weight, bias;
  std::optional<LowRank> addition;
};

// Rows of weight [rows, dim] by int32 or int64 ids [...] → [..., dim]. Starts standard normal. The
// row `padding` (below 0: from the end) starts as zeros and gets no gradient. Throws
// Error(kMalformed) if there is no such row.
struct Embedding {
  Embedding(const Parameters& parameters, int64_t rows, int64_t dim,
            const std::optional<int64_t>& padding = {});
  Tensor operator()(const Tensor& ids) const;

  Tensor weight;
  std::optional<int64_t> padding;  // from the start
};

// (x − mean) / √(var + eps) · weight + bias over the last axis (Ba et al. 2016).
struct LayerNorm {
  LayerNorm(const Parameters& parameters, int64_t dim, double eps)
      : weight(parameters.get_f32("weight", {dim}, Init::ones())),
        bias(parameters.get_f32("bias", {dim}, Init::zeros())),
        eps(eps) {}
  Tensor operator()(const Tensor& x) const { return ops::layer_norm(x, weight, bias, eps); }

  Tensor weight, bias;
  double eps;
};

// x / rms(x) · (weight + offset) over the last axis (Zhang & Sennrich 2019); Gemma's weights are
// stored less 1, which is their offset.
struct RmsNorm {
  RmsNorm(const Parameters& parameters, int64_t dim, double eps, double offset = 0)
      : weight(parameters.get_f32("weight", {dim}, Init::constant(1 - offset))),
        eps(eps),
        offset(static_cast<float>(offset)) {}
  Tensor operator()(const Tensor& x) const {
    return ops::rms_norm(x, offset == 0 ? weight : ops::add(weight, graph::scalar(offset)), eps);
  }

  Tensor weight;
  double eps;
  float offset;
};

}  // namespace lumen::nn
