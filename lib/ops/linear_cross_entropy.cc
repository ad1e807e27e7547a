// Cross-entropy of a product with the vocabulary's weight in one operation, which never stores the
// logits whole.
#include <array>

#include "lib/base/error.h"
#include "lib/graph/cost.h"
#include "lib/graph/mixed_precision.h"
#include "lib/kernels/cross_entropy.h"
#include "lib/ops/axes.h"
#include "lib/ops/cases.h"
#include "lib/ops/elementwise.h"
#include "lib/ops/loss.h"

namespace lumen::ops {

extern const graph::OpDef kLinearCrossEntropy, kLinearCrossEntropyGradients;

namespace {

using graph::GradCall;
using graph::KernelCall;
using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::record;

// Inputs: hidden [rows, dim], weight [classes, dim], targets int32 [rows], token weights [rows].

graph::TypedShape infer_linear_loss(const Node& node, bool gradients) {
  const Node &hidden = *node.inputs[0], &weight = *node.inputs[1];
  if (hidden.dtype != DType::kF32 || weight.dtype != DType::kF32 || hidden.shape.rank() != 2 ||
      weight.shape.rank() != 2 || hidden.shape[1] != weight.shape[1]) {
    shape_error(node, "needs float32 hidden [rows, dim] and weight [classes, dim]");
  }
  const Shape rows = {hidden.shape[0]};
  const Node &targets = *node.inputs[2], &token_weights = *node.inputs[3];
  if (targets.dtype != DType::kI32 || !(targets.shape == rows)) {
    shape_error(node, "the targets must be int32 or int64 [rows]");
  }
  if (token_weights.dtype != DType::kF32 || !(token_weights.shape == rows)) {
    shape_error(node, "the token weights must be float32 [rows]");
  }
  require_cap(node, node.attrs.real("logit_cap"));
  if (!gradients) return {DType::kF32, {}};
  const int64_t of_weight = node.attrs.integer("of_weight") ? weight.shape.elements() : 0;
  return {DType::kF32, {hidden.shape.elements() + of_weight + 1}};
}

kernels::LinearCrossEntropy linear_arguments(const KernelCall& call) {
  const graph::Operand &hidden = call.inputs[0], &weight = call.inputs[1];
  return {.rows = hidden.shape[0],
          .dim = hidden.shape[1],
          .classes = weight.shape[0],
          .hidden = hidden.as<const float>(),
          .weight = weight.as<const float>(),
          .targets = call.inputs[2].as<const int32_t>(),
          .token_weights = call.inputs[3].as<const float>(),
          .loss = call.output.as<float>(),
          .workspace = call.workspace,
          .bf16 = graph::in_bf16(*call.node),
          .logit_cap = static_cast<float>(call.node->attrs.real("logit_cap"))};
}

void run_linear_loss(const KernelCall& call) {
  kernels::linear_cross_entropy(*call.pool, linear_arguments(call));
}

// Flat: dhidden, dweight if attr "of_weight" is 1, the loss (last, so that the others are aligned).
void run_linear_gradients(const KernelCall& call) {
  kernels::LinearCrossEntropy args = linear_arguments(call);
  args.dhidden = call.output.as<float>();
  if (call.node->attrs.integer("of_weight")) args.dweight = args.dhidden + args.rows * args.dim;
  args.loss = call.output.as<float>() + call.output.shape[0] - 1;
  kernels::linear_cross_entropy(*call.pool, args);
}

size_t linear_loss_workspace(const Node& node, int threads) {
  const Shape &hidden = node.inputs[0]->shape, &weight = node.inputs[1]->shape;
  return kernels::linear_cross_entropy_workspace_bytes(hidden[0], hidden[1], weight[0], threads,
                                                       graph::in_bf16(node));
}

graph::Cost linear_loss_cost(const Node& node) {
  const Shape &hidden = node.inputs[0]->shape, &weight = node.inputs[1]->shape;
  const double products = node.shape.rank() == 0 ? 1 : node.attrs.integer("of_weight") ? 3 : 2;
  return {products * 2 * static_cast<double>(hidden[0] * weight.elements()),
          4 * static_cast<double>(hidden.elements() + weight.elements() + node.shape.elements())};
}

Tensor capped_logits(const Node& node, Inputs in) {
  return soft_cap(matmul(in[0], graph::transpose(in[1], 0, 1)), node.attrs.real("logit_cap"));
}

// The target's row of one-hots, and nothing for a row of token weight 0.
Tensor linear_loss_meaning(const Node& node, Inputs in) {
  const graph::AutocastScope precision = graph::precision_in(node);
  const int64_t rows = in[0].dim(0);
  const Tensor log_p = log_softmax(capped_logits(node, in));
  const Tensor column = graph::reshape(graph::contiguous(in[2], DType::kF32), {rows, 1});
  const Tensor hit = equal(column, graph::iota(in[1].dim(0)));
  const Tensor losses = graph::reshape(neg(sum(mul(hit, log_p), -1)), {rows});
  return graph::reshape(sum(mul(in[3], losses), 0), {});
}

Tensor linear_gradients_meaning(const Node& node, Inputs in) {
  const graph::AutocastScope precision = graph::precision_in(node);
  const int64_t rows = in[0].dim(0);
  const Tensor logits = capped_logits(node, in), p = softmax(logits);
  const Tensor column = graph::reshape(graph::contiguous(in[2], DType::kF32), {rows, 1});
  Tensor dlogits =
      mul(sub(p, equal(column, graph::iota(in[1].dim(0)))), graph::reshape(in[3], {rows, 1}));
  if (const double cap = node.attrs.real("logit_cap"); cap != 0) {
    const Tensor part = mul(logits, 1 / cap);
    dlogits = mul(dlogits, sub(1.0, mul(part, part)));
  }
  std::vector<Tensor> parts = {flatten(matmul(dlogits, in[1]))};
  if (node.attrs.integer("of_weight")) {
    parts.push_back(flatten(matmul(graph::transpose(dlogits, 0, 1), in[0])));
  }
  parts.push_back(flatten(linear_loss_meaning(node, in)));
  return concat(parts, 0);
}

// A gradient that is known as a number only: differentiating it again is refused.
graph::TypedShape infer_first(const Node& node) {
  return {node.inputs[0]->dtype, node.inputs[0]->shape};
}
bool view_first(const Node&, const Shape&, const Strides& in, Strides& out, int64_t& offset) {
  out = in;
  offset = 0;
  return true;
}
const OpDef kOnce = {.name = "linear_cross_entropy_gradient",
                     .kind = graph::OpKind::kView,
                     .infer = infer_first,
                     .view = view_first};

std::vector<Shape> linear_parts(const Node& node) {
  std::vector<Shape> parts = {node.inputs[0]->shape};
  if (node.attrs.integer("of_weight")) parts.push_back(node.inputs[1]->shape);
  parts.push_back({});
  return parts;
}

std::vector<Tensor> grad_linear_loss(const GradCall& call) {
  const std::vector<Shape> shapes = linear_parts(call.node);
  const Tensor dloss = graph::unpack(call.dy, shapes).back();
  const std::vector<Tensor> parts = graph::unpack(record(kOnce, {call.output}), shapes);
  std::vector<Tensor> gradients(call.inputs.size());
  for (size_t i = 0; i + 1 < parts.size(); ++i) gradients[i] = mul(parts[i], dloss);
  return gradients;
}

std::vector<OpCase> linear_loss_cases(const OpDef& op, graph::Attrs attrs) {
  std::vector<OpCase> cases;
  for (auto [rows, dim, classes, cap] : {std::array<int64_t, 4>{1, 1, 4, 0},
                                         {6, 20, 37, 0},
                                         {600, 5, 9, 0},
                                         {0, 3, 4, 0},
                                         {6, 20, 37, 2}}) {
    graph::Attrs own = attrs;
    own.add("logit_cap", static_cast<double>(cap));
    cases.push_back({str(rows, " rows, ", classes, " classes", cap > 0 ? ", capped" : ""),
                     {f32({rows, dim}), f32({classes, dim}), i32({rows}), f32({rows})},
                     [&op, own](Inputs in) { return record(op, in, own); },
                     -1,
                     1,
                     1e-5});
  }
  return cases;
}

}  // namespace

const OpDef kLinearCrossEntropy = {
    .name = "linear_cross_entropy",
    .kind = graph::OpKind::kContraction,
    .infer = [](const Node& node) { return infer_linear_loss(node, false); },
    .kernel = run_linear_loss,
    .workspace = linear_loss_workspace,
    .meaning = linear_loss_meaning,
    .autocast = graph::Autocast::kInside,
    .cost = linear_loss_cost,
    .cases = [] { return linear_loss_cases(kLinearCrossEntropy, {}); }};
const OpDef kLinearCrossEntropyGradients = {
    .name = "linear_cross_entropy_gradients",
    .kind = graph::OpKind::kContraction,
    .infer = [](const Node& node) { return infer_linear_loss(node, true); },
    .kernel = run_linear_gradients,
    .workspace = linear_loss_workspace,
    .meaning = linear_gradients_meaning,
    .grad = grad_linear_loss,
    .autocast = graph::Autocast::kInside,
    .cost = linear_loss_cost,
    .cases =
        [] {
          auto cases = linear_loss_cases(kLinearCrossEntropyGradients, {{"of_weight", int64_t{1}}});
          auto without =
              linear_loss_cases(kLinearCrossEntropyGradients, {{"of_weight", int64_t{0}}});
          cases.insert(cases.end(), without.begin(), without.end());
          return cases;
        }};

namespace {

// In float64, from the losses of the rows that count.
Tensor exact_linear_loss(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                         const Tensor& token_weights, double cap) {
  const CrossEntropyOptions options{.reduction = Reduction::kNone};
  const Tensor counted = where(eq(token_weights, 0.0), options.ignore_index, targets);
  const Tensor logits = soft_cap(matmul(hidden, graph::transpose(weight, 0, 1)), cap);
  return reduce(mul(cross_entropy(logits, counted, options), token_weights), Reduction::kSum);
}

Tensor joined_linear_loss(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                          const Tensor& token_weights, double cap) {
  const std::initializer_list<Tensor> inputs = {hidden, weight, targets, token_weights};
  if (!graph::needs_grad({hidden, weight})) {
    return record(kLinearCrossEntropy, inputs, {{"logit_cap", cap}});
  }
  const Tensor flat = record(kLinearCrossEntropyGradients, inputs,
                             {{"of_weight", int64_t{weight.requires_grad()}}, {"logit_cap", cap}});
  return graph::unpack(flat, linear_parts(*flat.node())).back();
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                            const Tensor& token_weights, double logit_cap) {
  const Tensor classes = in_int32(targets);
  graph::check_defined(token_weights, kLinearCrossEntropy.name, "input 3");
  return in_common_float(
      kLinearCrossEntropy.name,
      [&](const Tensor& h, const Tensor& w) {
        const Tensor weights = token_weights.dtype() == h.dtype()
                                   ? token_weights
                                   : graph::contiguous(token_weights, h.dtype());
        return h.dtype() == DType::kF64 ? exact_linear_loss(h, w, classes, weights, logit_cap)
                                        : joined_linear_loss(h, w, classes, weights, logit_cap);
      },
      hidden, weight);
}

}  // namespace lumen::ops
