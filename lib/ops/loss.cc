// Element-wise losses, made of element-wise operations (which are fused) and a reduction.
#include "lib/ops/loss.h"

#include <optional>

#include "lib/base/error.h"
#include "lib/kernels/loss.h"
#include "lib/ops/elementwise.h"

namespace lumen::ops {

extern const graph::OpDef kLogSigmoid, kBinaryCrossEntropy, kHuber, kClamp;

namespace {

using graph::GradCall;
using graph::Node;
using graph::OpDef;

Tensor log_sigmoid_meaning(const Node&, Inputs in) {
  return sub(minimum(in[0], 0.0), log(add(exp(neg(abs(in[0]))), 1.0)));
}

Tensor binary_cross_entropy_meaning(const Node&, Inputs in) {
  const Tensor &p = in[0], &t = in[1];
  const Tensor yes = maximum(log(p), -100.0), no = maximum(log(sub(1.0, p)), -100.0);
  return neg(add(mul(t, yes), mul(sub(1.0, t), no)));
}

std::vector<Tensor> grad_log_sigmoid(const GradCall& call) {
  return {mul(call.dy, sigmoid(neg(call.inputs[0])))};
}

// dp = dy (p − t) / max(p (1 − p), 1e-12), finite for p of 0 and 1; dt from the limited logarithms.
std::vector<Tensor> grad_binary_cross_entropy(const GradCall& call) {
  const Tensor &p = call.inputs[0], &t = call.inputs[1];
  const Tensor other = sub(1.0, p);
  const Tensor slope = div(sub(p, t), maximum(mul(p, other), 1e-12));
  std::vector<Tensor> gradients = {mul(call.dy, slope), {}};
  if (t.requires_grad()) {
    const Tensor difference = sub(maximum(log(other), -100.0), maximum(log(p), -100.0));
    gradients[1] = mul(call.dy, difference);
  }
  return gradients;
}

// c (d − c/2) with c = clamp(d, low, high): for −δ and δ, d²/2 up to δ and δ (|d| − δ/2) beyond.
Tensor huber_meaning(const Node&, Inputs in) {
  const Tensor near = clamp(in[0], in[1], in[2]);
  return mul(near, sub(in[0], mul(near, 0.5)));
}

// c, which has the right slope at d = 0, too; the bounds have none.
std::vector<Tensor> grad_huber(const GradCall& call) {
  return {mul(call.dy, compute(kClamp, call.inputs, call.node.dtype)), {}, {}};
}

}  // namespace

const OpDef kLogSigmoid =
    elementwise({.name = "log_sigmoid",
                 .block = kernels::block::log_sigmoid,
                 .block_f64 = kernels::block_f64::log_sigmoid,
                 .meaning = log_sigmoid_meaning,
                 .grad = grad_log_sigmoid,
                 .cases = [] { return elementwise_cases(kLogSigmoid, 1, -20, 20); }});
const OpDef kBinaryCrossEntropy =
    elementwise({.name = "binary_cross_entropy",
                 .block = kernels::block::binary_cross_entropy,
                 .block_f64 = kernels::block_f64::binary_cross_entropy,
                 .meaning = binary_cross_entropy_meaning,
                 .grad = grad_binary_cross_entropy,
                 .autocast = graph::Autocast::kFull,
                 .cases = [] { return elementwise_cases(kBinaryCrossEntropy, 2, 0.2, 0.8); }});

const OpDef kHuber = elementwise({.name = "huber",
                                  .block = kernels::block::huber,
                                  .block_f64 = kernels::block_f64::huber,
                                  .meaning = huber_meaning,
                                  .grad = grad_huber,
                                  .autocast = graph::Autocast::kFull,
                                  .cases = [] { return elementwise_cases(kHuber, 3, -1, 1); }});

Tensor reduce(const Tensor& losses, Reduction reduction) {
  if (reduction == Reduction::kNone) return losses;
  if (is_narrow(losses.dtype())) {
    // A mean may fit the type where the sum does not.
    return graph::contiguous(reduce(graph::contiguous(losses, DType::kF32), reduction),
                             losses.dtype());
  }
  const int64_t n = losses.shape().elements();
  const Tensor total = graph::reshape(sum(graph::reshape(losses, {n}), 0), {});
  if (reduction == Reduction::kSum) return total;
  if (reduction == Reduction::kBatchMean && losses.rank() == 0) return total;
  const int64_t count = reduction == Reduction::kMean ? n : losses.dim(0);
  return div(total, count);  // 0 / 0 is NaN
}

namespace {

// body(inputs…), of which some may be undefined; where their common type is narrow, in float32 and
// rounded once, at the end.
template <typename Body, typename... Tensors>
Tensor rounded_once(const Body& body, const Tensors&... inputs) {
  std::optional<DType> common;
  for (const Tensor& x : {inputs...}) {
    if (x.defined()) common = common ? promote(*common, x.dtype()) : x.dtype();
  }
  if (!common || !is_narrow(*common)) return body(inputs...);
  return graph::contiguous(body(widened(inputs)...), *common);
}

}  // namespace

Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  return rounded_once(
      [&](const Tensor& x, const Tensor& t) {
        const Tensor difference = sub(x, t);
        return reduce(mul(difference, difference), reduction);
      },
      input, target);
}

Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  return rounded_once(
      [&](const Tensor& x, const Tensor& t) { return reduce(abs(sub(x, t)), reduction); }, input,
      target);
}

Tensor huber_loss(const Tensor& input, const Tensor& target, Reduction reduction, double delta) {
  if (!(delta > 0)) fail(ErrorKind::kMalformed, "huber_loss: delta must be positive, not ", delta);
  return rounded_once(
      [&](const Tensor& x, const Tensor& t) {
        const Tensor difference = sub(x, t);
        const DType dtype = is_float(difference.dtype()) ? difference.dtype() : DType::kF32;
        const auto bound = [&](double value) {
          return graph::expand(element(value, dtype), difference.shape());
        };
        const Tensor inputs[] = {as_operand(difference, dtype), bound(-delta), bound(delta)};
        return reduce(compute(kHuber, inputs, dtype), reduction);
      },
      input, target);
}

Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, Reduction reduction, double beta) {
  if (beta == 0) return l1_loss(input, target, reduction);
  if (!(beta > 0)) {
    fail(ErrorKind::kMalformed, "smooth_l1_loss: beta must not be negative, as ", beta);
  }
  return rounded_once(
      [&](const Tensor& x, const Tensor& t) {
        return reduce(div(huber_loss(x, t, Reduction::kNone, beta), beta), reduction);
      },
      input, target);
}

Tensor binary_cross_entropy(const Tensor& input, const Tensor& target, const Tensor& weight,
                            Reduction reduction) {
  return rounded_once(
      [&](const Tensor& p, const Tensor& t, const Tensor& w) {
        const DType dtype = result_type(p, t);
        Tensor losses = binary(kBinaryCrossEntropy, p, t, is_float(dtype) ? dtype : DType::kF32);
        if (w.defined()) losses = mul(losses, w);
        return reduce(losses, reduction);
      },
      input, target, weight);
}

// (1 − t) x − (1 + (w − 1) t) ln sigmoid(x).
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target,
                                        const Tensor& weight, const Tensor& positive_weight,
                                        Reduction reduction) {
  return rounded_once(
      [&](const Tensor& x, const Tensor& t, const Tensor& w, const Tensor& positive) {
        const Tensor no = mul(sub(1.0, t), x);
        Tensor yes = log_sigmoid(x);
        if (positive.defined()) yes = mul(yes, add(mul(sub(positive, 1.0), t), 1.0));
        Tensor losses = sub(no, yes);
        if (w.defined()) losses = mul(losses, w);
        return reduce(losses, reduction);
      },
      input, target, weight, positive_weight);
}

Tensor kl_div(const Tensor& input, const Tensor& target, Reduction reduction, bool log_target) {
  return rounded_once(
      [&](const Tensor& x, const Tensor& t) {
        const auto reduced = [&](const Tensor& losses) {
          if (reduction != Reduction::kBatchMean) return reduce(losses, reduction);
          const Tensor total = reduce(losses, Reduction::kSum);
          return x.rank() == 0 ? total : div(total, x.dim(0));
        };
        if (log_target) return reduced(mul(exp(t), sub(t, x)));
        // ln 1 in place of ln 0: the term is 0 and its gradient finite.
        const Tensor positive = where(eq(t, 0.0), 1.0, t);
        return reduced(sub(mul(t, log(positive)), mul(t, x)));
      },
      input, target);
}

Tensor log_sigmoid(const Tensor& x) {
  return real_unary(kLogSigmoid, x);
}

}  // namespace lumen::ops
