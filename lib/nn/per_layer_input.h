// What every layer is given of each token besides x: embeddings of its own (Gemma 3n and 4).
#pragma once

#include "lib/nn/activation.h"
#include "lib/nn/layers.h"

namespace lumen::nn {

struct PerLayerEmbeddingShape {
  int64_t vocab;   // rows of the table
  int64_t tokens;  // of the model; those beyond the table have its first row
  int64_t hidden, layers;
  int64_t dim;   // of a layer's embedding
  double scale;  // of the rows of the table: √dim, as the type of the table has it
  NormShape norm;
};

// Of token t with embedding x, for layer l: (norm(W x / √hidden)_l + scale · table[t]_l) / √2, the
// parts l of vectors of layers · dim numbers. Parameters: embed_tokens_per_layer,
// per_layer_model_projection (W), per_layer_projection_norm.
class PerLayerEmbedding {
 public:
  PerLayerEmbedding(const Parameters& parameters, const PerLayerEmbeddingShape& shape);
  // tokens [batch, count] and x [batch, count, hidden] → [batch, count, layers, dim].
  Tensor operator()(const Tensor& tokens, const Tensor& x) const;

 private:
  PerLayerEmbeddingShape shape_;
  Embedding table_;
  Linear projection_;
  Norm norm_;
};

struct PerLayerInputShape {
  int64_t hidden;
  int64_t dim;  // of what is given
  Activation activation;
  NormShape norm;
};

// What is added: norm(per_layer_projection(activation(per_layer_input_gate(x)) · given)), the norm
// being post_per_layer_input_norm.
class PerLayerInput {
 public:
  PerLayerInput(const Parameters& parameters, const PerLayerInputShape& shape);
  // x [batch, tokens, hidden], given [batch, tokens, dim] → as x.
  Tensor operator()(const Tensor& x, const Tensor& given) const;

 private:
  Activation activation_;
  Linear gate_, projection_;
  Norm norm_;
};

}  // namespace lumen::nn
