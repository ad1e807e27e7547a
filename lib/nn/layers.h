// The small layers. Names of parameters are Hugging Face's.
#pragma once

#include <optional>
#include <variant>

#include "lib/nn/low_rank.h"
#include "lib/nn/parameters.h"
#include "lib/nn/training_scope.h"
#include "lib/ops/ops.h"

namespace lumen::nn {

// x · scale; for 1 x itself.
inline Tensor scaled(const Tensor& x, double scale) {
  return scale == 1 ? x : ops::mul(x, graph::scalar(static_cast<float>(scale)));
}

// y = x · weightᵀ + bias; weight [out, in] in its stored type, bias [out] or none. Both start
// uniform in ±1/√in, unless `bias_init` says otherwise. With a low-rank addition if the parameters
// have one for this place.
struct Linear {
  Linear(const Parameters& parameters, int64_t in, int64_t out, bool with_bias,
         const std::optional<Init>& bias_init = {})
      : weight(parameters.get("weight", {out, in}, Init::fan_in_uniform())),
        addition(parameters.low_rank(weight)) {
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
    const auto product = [&](const Tensor& given, const Tensor& offset) {
      return ops::linear(given, weight, offset);
    };
    return with_addition(product, bias, x, addition);
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

// The weight of a norm. Gemma's and Nemotron's are stored less 1, which is their offset.
struct NormWeight {
  NormWeight(const Parameters& parameters, int64_t dim, double offset)
      : weight(parameters.get_f32("weight", {dim}, Init::constant(1 - offset))),
        offset(static_cast<float>(offset)) {}
  Tensor whole() const { return offset == 0 ? weight : ops::add(weight, graph::scalar(offset)); }

  Tensor weight;  // as stored
  float offset;
};

// (x − mean) / √(var + eps) · (weight + offset) + bias over the last axis (Ba et al. 2016).
struct LayerNorm : NormWeight {
  LayerNorm(const Parameters& parameters, int64_t dim, double eps, bool with_bias = true,
            double offset = 0)
      : NormWeight(parameters, dim, offset), eps(eps) {
    if (with_bias) bias = parameters.get_f32("bias", {dim}, Init::zeros());
  }
  Tensor operator()(const Tensor& x) const { return ops::layer_norm(x, whole(), bias, eps); }

  Tensor bias;  // undefined: none
  double eps;
};

// x / rms(x) · (weight + offset) over the last axis (Zhang & Sennrich 2019).
struct RmsNorm : NormWeight {
  RmsNorm(const Parameters& parameters, int64_t dim, double eps, double offset = 0)
      : NormWeight(parameters, dim, offset), eps(eps) {}
  Tensor operator()(const Tensor& x) const { return ops::rms_norm(x, whole(), eps); }

  double eps;
};

// (x − mean) / √(var + eps) · weight over the last axis of x [..., heads, dim], with a weight for
// each head (Command R+).
struct HeadsLayerNorm {
  HeadsLayerNorm(const Parameters& parameters, int64_t heads, int64_t dim, double eps)
      : weight(parameters.get_f32("weight", {heads, dim}, Init::ones())), eps(eps) {}
  Tensor operator()(const Tensor& x) const {
    return ops::mul(ops::layer_norm(x, {}, {}, eps), weight);
  }

  Tensor weight;
  double eps;
};

// (x − mean) / √(var + eps) over the last axis, with nothing to learn (OLMo).
struct PlainLayerNorm {
  Tensor operator()(const Tensor& x) const { return ops::layer_norm(x, {}, {}, eps); }

  double eps;
};

// x / rms(x) over the last axis, likewise (Llama 4).
struct PlainRmsNorm {
  Tensor operator()(const Tensor& x) const { return ops::rms_norm(x, {}, eps); }

  double eps;
};

enum class NormKind { kRms, kLayer, kLayerWithoutBias, kPlainLayer, kPlainRms };

struct NormShape {
  NormKind kind = NormKind::kRms;
  double eps = 0, offset = 0;
};

// The norm of one of these kinds.
class Norm {
 public:
  Norm(const Parameters& parameters, int64_t dim, const NormShape& shape)
      : norm_(of(parameters, dim, shape)) {}
  Norm(HeadsLayerNorm norm) : norm_(std::move(norm)) {}
  Tensor operator()(const Tensor& x) const {
    return std::visit([&](const auto& norm) { return norm(x); }, norm_);
  }

 private:
  using Any = std::variant<RmsNorm, LayerNorm, PlainLayerNorm, PlainRmsNorm, HeadsLayerNorm>;
  static Any of(const Parameters& parameters, int64_t dim, const NormShape& shape) {
    if (shape.kind == NormKind::kRms) return RmsNorm(parameters, dim, shape.eps, shape.offset);
    if (shape.kind == NormKind::kPlainLayer) return PlainLayerNorm{shape.eps};
    if (shape.kind == NormKind::kPlainRms) return PlainRmsNorm{shape.eps};
    const bool with_bias = shape.kind == NormKind::kLayer;
    return LayerNorm(parameters, dim, shape.eps, with_bias, shape.offset);
  }

  Any norm_;
};

}  // namespace lumen::nn
