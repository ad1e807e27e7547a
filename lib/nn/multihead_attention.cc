#include "lib/nn/multihead_attention.h"

#include <cmath>
#include <limits>

#include "lib/base/error.h"

namespace lumen::nn {
namespace {

// 0 where a query may look, −inf where it may not: [queries, keys].
Tensor causal_mask(int64_t queries, int64_t keys) {
  std::vector<float> mask(queries * keys, 0.0f);
  for (int64_t i = 0; i < queries; ++i) {
    for (int64_t j = i + 1; j < keys; ++j) {
      mask[i * keys + j] = -std::numeric_limits<float>::infinity();
    }
  }
  return graph::constant(mask, {queries, keys});
}

Tensor masked(const Tensor& scores, const Tensor& mask) {
  const bool is_bool = mask.dtype() == DType::kBool;
  if (!is_bool && !is_float(mask.dtype())) {
    fail(ErrorKind::kMalformed, "a mask of attention cannot be of type ", name(mask.dtype()),
         ": expected bool or floats");
  }
  const Tensor all = graph::expand(mask, scores.shape());
  if (is_bool) return ops::masked_fill(scores, all, -std::numeric_limits<double>::infinity());
  return ops::add(scores, all);
}

int64_t checked_heads(int64_t dim, int64_t heads) {
  if (heads < 1 || dim % heads != 0) {
    fail(ErrorKind::kMalformed, "attention of width ", dim, " cannot have ", heads, " heads");
  }
  return heads;
}

}  // namespace

MultiheadAttention::MultiheadAttention(const Parameters& parameters, int64_t dim, int64_t heads,
                                       bool bias, double dropout)
    : dim_(dim),
      heads_(checked_heads(dim, heads)),
      in_weight_(parameters.get("in_proj_weight", {3 * dim, dim}, Init::xavier_uniform())),
      out_proj_(parameters / "out_proj", dim, dim, bias, Init::zeros()),
      dropout_(dropout) {
  if (bias) in_bias_ = parameters.get_f32("in_proj_bias", {3 * dim}, Init::zeros());
}

Tensor MultiheadAttention::attend(const Tensor& query, const Tensor& key, const Tensor& value,
                                  const Options& options) const {
  for (const Tensor& x : {query, key, value}) {
    if (x.rank() == 3 && x.dim(2) == dim_) continue;
    fail(ErrorKind::kMalformed, "attention of width ", dim_, " cannot take ", to_string(x.shape()),
         ": expected [batch, positions, ", dim_, "]");
  }
  if (query.dim(0) != key.dim(0) || !(key.shape() == value.shape())) {
    fail(ErrorKind::kMalformed, "attention of queries ", to_string(query.shape()), ", keys ",
         to_string(key.shape()), " and values ", to_string(value.shape()),
         ": expected one batch, and as many values as keys");
  }
  auto heads = [&](const Tensor& x, int64_t part) {
    const Tensor weight = graph::slice(in_weight_, 0, part * dim_, (part + 1) * dim_);
    const Tensor bias =
        in_bias_.defined() ? graph::slice(in_bias_, 0, part * dim_, (part + 1) * dim_) : Tensor();
    const Tensor projected = ops::linear(x, weight, bias);
    return graph::permute(graph::reshape(projected, {x.dim(0), x.dim(1), heads_, dim_ / heads_}),
                          {0, 2, 1, 3});
  };
  const Tensor q = heads(query, 0), k = heads(key, 1), v = heads(value, 2);
  const double scale = 1 / std::sqrt(static_cast<double>(dim_ / heads_));
  Tensor joined;
  if (options.mask.defined()) {
    Tensor scores = ops::mul(ops::matmul(q, graph::transpose(k, -1, -2)),
                             graph::scalar(static_cast<float>(scale)));
    if (options.causal) scores = ops::add(scores, causal_mask(query.dim(1), key.dim(1)));
    const Tensor weights = dropout_(ops::softmax(masked(scores, options.mask)));
    joined = graph::permute(ops::matmul(weights, v), {0, 2, 1, 3});
  } else {
    const Tensor first = graph::constant(Array::zeros(DType::kI32, {1}));
    joined = ops::attention(
        graph::permute(q, {0, 2, 1, 3}), k, v, first,
        {.scale = scale, .causal = options.causal, .dropout = dropout_.of_attention()});
  }
  return out_proj_(graph::reshape(joined, {query.dim(0), query.dim(1), dim_}));
}

}  // namespace lumen::nn
