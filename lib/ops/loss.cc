// Element-wise losses, made of element-wise operations (which are fused) and a reduction.
#include "lib/ops/loss.h"

#include "lib/base/error.h"
#include "lib/kernels/loss.h"
#include "lib/ops/cases.h"

namespace lumen::ops {

extern const graph::OpDef kLogSigmoid, kBinaryCrossEntropy;

namespace {

using graph::GradCall;
using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::record;
using graph::scalar;
using Inputs = std::span<const Tensor>;

graph::TypedShape infer_from_logits(const Node& node) {
  for (const graph::NodePtr& input : node.inputs) {
    if (!(input->shape == node.inputs[0]->shape)) shape_error(node, "shapes differ");
    if (is_quantized(input->dtype)) shape_error(node, "quantised values have no arithmetic");
  }
  return {DType::kF32, node.inputs[0]->shape};
}

Tensor constant_like(float value, const Tensor& x) {
  return graph::expand(scalar(value), x.shape());
}

// Broadcasts both to one shape.
struct Broadcast {
  Tensor first, second;
};
Broadcast broadcast(std::string_view op, const Tensor& a, const Tensor& b) {
  const Shape shape = graph::broadcast(op, a.shape(), b.shape());
  return {graph::expand(a, shape), graph::expand(b, shape)};
}

Tensor log_sigmoid_meaning(const Node&, Inputs in) {
  const Tensor rest = log(add(exp(neg(abs(in[0]))), scalar(1)));
  return sub(minimum(in[0], constant_like(0, in[0])), rest);
}

Tensor binary_cross_entropy_meaning(const Node&, Inputs in) {
  const Tensor &p = in[0], &t = in[1], least = scalar(-100), one = scalar(1);
  const Tensor yes = maximum(log(p), least), no = maximum(log(sub(one, p)), least);
  return neg(add(mul(t, yes), mul(sub(one, t), no)));
}

std::vector<Tensor> grad_log_sigmoid(const GradCall& call) {
  return {mul(call.dy, sigmoid(neg(call.inputs[0])))};
}

// dp = dy (p − t) / max(p (1 − p), 1e-12), finite for p of 0 and 1; dt from the limited logarithms.
std::vector<Tensor> grad_binary_cross_entropy(const GradCall& call) {
  const Tensor &p = call.inputs[0], &t = call.inputs[1];
  const Tensor other = sub(scalar(1), p), least = scalar(-100);
  const Tensor slope = div(sub(p, t), maximum(mul(p, other), scalar(1e-12f)));
  std::vector<Tensor> gradients = {mul(call.dy, slope), {}};
  if (t.requires_grad()) {
    const Tensor difference = sub(maximum(log(other), least), maximum(log(p), least));
    gradients[1] = mul(call.dy, difference);
  }
  return gradients;
}

}  // namespace

const OpDef kLogSigmoid = {.name = "log_sigmoid",
                           .kind = graph::OpKind::kElementwise,
                           .infer = infer_from_logits,
                           .block = kernels::block::log_sigmoid,
                           .layout = graph::InputLayout::kAny,
                           .meaning = log_sigmoid_meaning,
                           .grad = grad_log_sigmoid,
                           .cases = [] { return elementwise_cases(kLogSigmoid, 1, -20, 20); }};
const OpDef kBinaryCrossEntropy = {
    .name = "binary_cross_entropy",
    .kind = graph::OpKind::kElementwise,
    .infer = infer_from_logits,
    .block = kernels::block::binary_cross_entropy,
    .layout = graph::InputLayout::kAny,
    .meaning = binary_cross_entropy_meaning,
    .grad = grad_binary_cross_entropy,
    .autocast = graph::Autocast::kFull,
    .cases = [] { return elementwise_cases(kBinaryCrossEntropy, 2, 0.2, 0.8); }};

Tensor reduce(const Tensor& losses, Reduction reduction) {
  if (reduction == Reduction::kNone) return losses;
  const int64_t n = losses.shape().elements();
  const Tensor total = graph::reshape(sum(graph::reshape(losses, {n}), 0), {});
  if (reduction == Reduction::kSum) return total;
  if (reduction == Reduction::kBatchMean && losses.rank() == 0) return total;
  const int64_t count = reduction == Reduction::kMean ? n : losses.dim(0);
  return div(total, scalar(static_cast<float>(count)));  // 0 / 0 is NaN
}

Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  const Tensor difference = sub(input, target);
  return reduce(mul(difference, difference), reduction);
}

Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  return reduce(abs(sub(input, target)), reduction);
}

// With c = min(d, delta): c (d − c/2) is d²/2 below delta and delta (d − delta/2) beyond.
Tensor huber_loss(const Tensor& input, const Tensor& target, Reduction reduction, double delta) {
  if (!(delta > 0)) fail(ErrorKind::kMalformed, "huber_loss: delta must be positive, not ", delta);
  const Tensor distance = abs(sub(input, target));
  const Tensor near = minimum(distance, scalar(static_cast<float>(delta)));
  return reduce(mul(near, sub(distance, mul(near, scalar(0.5)))), reduction);
}

Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, Reduction reduction, double beta) {
  if (beta == 0) return l1_loss(input, target, reduction);
  if (!(beta > 0)) {
    fail(ErrorKind::kMalformed, "smooth_l1_loss: beta must not be negative, as ", beta);
  }
  const Tensor losses = huber_loss(input, target, Reduction::kNone, beta);
  return reduce(div(losses, scalar(static_cast<float>(beta))), reduction);
}

Tensor binary_cross_entropy(const Tensor& input, const Tensor& target, const Tensor& weight,
                            Reduction reduction) {
  const Broadcast pair = broadcast(kBinaryCrossEntropy.name, input, target);
  Tensor losses = record(kBinaryCrossEntropy, {pair.first, pair.second});
  if (weight.defined()) losses = mul(losses, weight);
  return reduce(losses, reduction);
}

// (1 − t) x − (1 + (w − 1) t) ln sigmoid(x).
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                        const Tensor& weight, const Tensor& positive_weight,
                                        Reduction reduction) {
  const Tensor no = mul(sub(scalar(1), target), input);
  Tensor yes = log_sigmoid(input);
  if (positive_weight.defined()) {
    yes = mul(yes, add(mul(sub(positive_weight, scalar(1)), target), scalar(1)));
  }
  Tensor losses = sub(no, yes);
  if (weight.defined()) losses = mul(losses, weight);
  return reduce(losses, reduction);
}

Tensor kl_div(const Tensor& input, const Tensor& target, Reduction reduction, bool log_target) {
  if (log_target) return reduce(mul(exp(target), sub(target, input)), reduction);
  // ln 1 in place of ln 0: the term is 0 and its gradient finite.
  const Tensor positive = where(equal(target, scalar(0)), scalar(1), target);
  return reduce(sub(mul(target, log(positive)), mul(target, input)), reduction);
}

Tensor log_sigmoid(const Tensor& x) {
  return record(kLogSigmoid, {x});
}

}  // namespace lumen::ops
