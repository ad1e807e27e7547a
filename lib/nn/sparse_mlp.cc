#include "lib/nn/sparse_mlp.h"

#include "lib/base/error.h"
#include "lib/base/strings.h"

namespace lumen::nn {
namespace {

// Additions to experts are worked into their weights, as PEFT does: ops::experts reads matrices.
Tensor worked_in(const Tensor& weight, const std::optional<LowRank>& addition) {
  if (!addition) return weight;
  const graph::AutocastScope precision(DType::kF32);
  const Tensor product = ops::matmul(addition->b, addition->a);
  return ops::add(graph::contiguous(weight, DType::kF32), ops::mul(product, addition->scale));
}

}  // namespace

SparseMlp::SparseMlp(const Parameters& parameters, const SparseMlpShape& shape)
    : router_(parameters / shape.router, shape.hidden, shape.experts, shape.biases),
      options_{.used = shape.used,
               .normalize = shape.normalize,
               .alpha = shape.alpha,
               .limit = shape.limit} {
  for (int64_t e = 0; e < shape.experts; ++e) {
    const Parameters expert = parameters / "experts" / str(e);
    const auto matrix = [&](const std::string& name, int64_t out, int64_t in) {
      const Parameters place = expert / name;
      const Tensor weight = place.get("weight", {out, in}, Init::fan_in_uniform());
      // PEFT has no place for such an addition to gpt-oss's, whose gates and ups are in turn, nor
      // for one to Qwen2-MoE's, where it means the shared expert by these names.
      const bool has_place = !shape.biases && shape.shared == 0;
      return has_place ? worked_in(weight, place.low_rank(in, out)) : weight;
    };
    gate_.push_back(matrix(shape.gate, shape.intermediate, shape.hidden));
    up_.push_back(matrix(shape.up, shape.intermediate, shape.hidden));
    down_.push_back(matrix(shape.down, shape.hidden, shape.intermediate));
  }
  if (shape.shared > 0) {
    shared_.emplace(parameters / "shared_expert",
                    GatedMlpShape{shape.hidden, shape.shared, Activation("silu")});
    shared_gate_.emplace(parameters / "shared_expert_gate", shape.hidden, 1, false);
  }
  if (!shape.biases) return;
  const auto bias = [&](const std::string& name, int64_t out) {
    const Parameters place = parameters / "experts" / name;
    return place.get_f32("bias", {shape.experts, out}, Init::zeros());
  };
  options_.gate_bias = bias(shape.gate, shape.intermediate);
  options_.up_bias = bias(shape.up, shape.intermediate);
  options_.down_bias = bias(shape.down, shape.hidden);
}

Tensor SparseMlp::operator()(const Tensor& x, Tensor* router_logits) const {
  const Tensor logits = router_(x);
  if (router_logits != nullptr) *router_logits = logits;
  const Tensor routed = ops::experts(x, logits, gate_, up_, down_, options_);
  if (!shared_) return routed;
  return ops::add(routed, ops::mul((*shared_)(x), ops::sigmoid((*shared_gate_)(x))));
}

Tensor load_balancing_loss(std::span<const Tensor> router_logits, int64_t used,
                           const Tensor& counts) {
  LUMEN_CHECK(!router_logits.empty());
  const graph::AutocastScope precision(DType::kF32);
  const int64_t experts = router_logits[0].dim(-1);
  const Tensor weights = graph::reshape(counts, {-1, 1});
  // Sums over the tokens of all layers.
  Tensor chosen, probabilities;
  for (const Tensor& logits : router_logits) {
    const Tensor rows = graph::reshape(logits, {-1, experts});
    const Tensor c = ops::sum(ops::mul(ops::chosen_experts(rows, used), weights), 0);
    const Tensor p = ops::sum(ops::mul(ops::softmax(rows), weights), 0);
    chosen = chosen.defined() ? ops::add(chosen, c) : c;
    probabilities = probabilities.defined() ? ops::add(probabilities, p) : p;
  }
  // Without a token that counts the loss is 0.
  const Tensor tokens = ops::mul(ops::maximum(ops::sum(counts, ops::kAllAxes, false), 1.0),
                                 static_cast<double>(router_logits.size()));
  const Tensor product = ops::sum(ops::mul(chosen, probabilities), ops::kAllAxes, false);
  return ops::mul(ops::div(product, ops::mul(tokens, tokens)), static_cast<double>(experts));
}

}  // namespace lumen::nn
