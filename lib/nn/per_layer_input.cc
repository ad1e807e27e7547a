#include "lib/nn/per_layer_input.h"

#include <cmath>

namespace lumen::nn {

PerLayerEmbedding::PerLayerEmbedding(const Parameters& parameters,
                                     const PerLayerEmbeddingShape& shape)
    : shape_(shape),
      table_(parameters / "embed_tokens_per_layer", shape.vocab, shape.layers * shape.dim),
      projection_(parameters / "per_layer_model_projection", shape.hidden, shape.layers * shape.dim,
                  false),
      norm_(parameters / "per_layer_projection_norm", shape.dim, shape.norm) {}

Tensor PerLayerEmbedding::operator()(const Tensor& tokens, const Tensor& x) const {
  const Shape parts = {x.dim(0), x.dim(1), shape_.layers, shape_.dim};
  const double root = std::sqrt(static_cast<double>(shape_.hidden));
  const Tensor of_context = norm_(graph::reshape(ops::mul(projection_(x), 1 / root), parts));
  const bool has_all = shape_.vocab >= shape_.tokens;
  const Tensor ids =
      has_all ? tokens : ops::where(ops::lt(tokens, shape_.vocab), tokens, ops::Number(0));
  const Tensor of_token = ops::mul(graph::reshape(table_(ids), parts), shape_.scale);
  return ops::mul(ops::add(of_context, of_token), std::sqrt(0.5));
}

PerLayerInput::PerLayerInput(const Parameters& parameters, const PerLayerInputShape& shape)
    : activation_(shape.activation),
      gate_(parameters / "per_layer_input_gate", shape.hidden, shape.dim, false),
      projection_(parameters / "per_layer_projection", shape.dim, shape.hidden, false),
      norm_(parameters / "post_per_layer_input_norm", shape.hidden, shape.norm) {}

Tensor PerLayerInput::operator()(const Tensor& x, const Tensor& given) const {
  return norm_(projection_(ops::mul(activation_(gate_(x)), given)));
}

}  // namespace lumen::nn
