// Cross-entropy: of logits with class indices or probabilities, NLL, and the product with the
// vocabulary's weight and the loss in one operation.
#include "lib/kernels/cross_entropy.h"

#include <algorithm>
#include <array>
#include <limits>

#include "lib/base/error.h"
#include "lib/graph/cost.h"
#include "lib/graph/mixed_precision.h"
#include "lib/ops/axes.h"
#include "lib/ops/cases.h"
#include "lib/ops/elementwise.h"
#include "lib/ops/loss.h"

namespace lumen::ops {

extern const graph::OpDef kCrossEntropy, kCrossEntropyBackward, kNll, kNllBackward,
    kLinearCrossEntropy, kLinearCrossEntropyGradients;

namespace {

using graph::GradCall;
using graph::KernelCall;
using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::record;

// --- Rows of logits ----------------------------------------------------------------------------
// Inputs: logits or log-probabilities [rows, classes], targets int32 [rows], then what the
// operation needs, then the class weights [classes] if there are any.

graph::TypedShape infer_rows(const Node& node, size_t extra, bool backward, int64_t parts) {
  const Node &x = *node.inputs[0], &targets = *node.inputs[1];
  if (!is_float32_or_narrower(x.dtype) || x.shape.rank() != 2) {
    shape_error(node, "the logits must be float32 or narrower floats [rows, classes]");
  }
  if (targets.dtype != DType::kI32 || !(targets.shape == Shape({x.shape[0]}))) {
    shape_error(node, "the targets must be int32 or int64 [rows]");
  }
  if (node.inputs.size() > 2 + extra) {
    const Node& w = *node.inputs[2 + extra];
    if (w.dtype != DType::kF32 || !(w.shape == Shape({x.shape[1]}))) {
      shape_error(node, "the class weights must be float32 [classes]");
    }
  }
  return {DType::kF32, backward ? x.shape : Shape({parts * x.shape[0]})};
}

kernels::CrossEntropy arguments(const KernelCall& call, size_t extra) {
  const graph::Operand& x = call.inputs[0];
  kernels::CrossEntropy args{.logits = {x.data, x.shape[0], x.shape[1],
                                        x.shape[0] == 1 ? x.shape[1] : x.strides[0], x.dtype},
                             .targets = call.inputs[1].as<const int32_t>(),
                             .ignore_index = call.node->attrs.integer("ignore_index"),
                             .smoothing = static_cast<float>(call.node->attrs.real("smoothing"))};
  if (call.inputs.size() > 2 + extra) {
    args.class_weight = call.inputs[2 + extra].as<const float>();
  }
  return args;
}

// Per row: 1 where it counts.
Tensor counted_rows(const Node& node, const Tensor& targets) {
  const auto ignored = static_cast<float>(node.attrs.integer("ignore_index"));
  const Tensor rows = graph::contiguous(targets, DType::kF32);
  return sub(graph::expand(graph::scalar(1), rows.shape()), equal(rows, graph::scalar(ignored)));
}

// [rows, classes]: what each class's −ln p counts in the loss without smoothing: w_y at the target.
Tensor hits(const Node& node, Inputs in, size_t extra) {
  const int64_t rows = in[0].dim(0);
  const Tensor column = graph::reshape(graph::contiguous(in[1], DType::kF32), {rows, 1});
  Tensor hit = equal(column, graph::iota(in[0].dim(1)));
  if (in.size() > 2 + extra) hit = mul(hit, in[2 + extra]);
  return mul(hit, graph::reshape(counted_rows(node, in[1]), {rows, 1}));
}

// The same with smoothing.
Tensor shares(const Node& node, Inputs in, size_t extra) {
  const double smoothing = node.attrs.real("smoothing");
  const Tensor hit = hits(node, in, extra);
  if (smoothing == 0) return hit;
  const int64_t rows = in[0].dim(0);
  Tensor even = graph::scalar(static_cast<float>(smoothing) / static_cast<float>(in[0].dim(1)));
  if (in.size() > 2 + extra) even = mul(in[2 + extra], even);
  const Tensor spread = mul(graph::reshape(counted_rows(node, in[1]), {rows, 1}), even);
  return add(mul(hit, graph::scalar(1 - static_cast<float>(smoothing))), spread);
}

Tensor joined(std::initializer_list<Tensor> parts, int64_t rows) {
  std::vector<Tensor> flat;
  for (const Tensor& part : parts) flat.push_back(graph::reshape(part, {rows}));
  return concat(flat, 0);
}

// Flat: loss, weight, max x, 1 / Σ exp(x − max), each [rows].
void run_cross_entropy(const KernelCall& call) {
  const kernels::CrossEntropy args = arguments(call, 0);
  auto* out = call.output.as<float>();
  const int64_t rows = args.logits.rows;
  kernels::cross_entropy(*call.pool, args, {out, out + rows, out + 2 * rows, out + 3 * rows});
}

Tensor cross_entropy_meaning(const Node& node, Inputs in) {
  const int64_t rows = in[0].dim(0);
  const Tensor counted = graph::reshape(counted_rows(node, in[1]), {rows, 1});
  const Tensor maximum = max(in[0], -1);
  const Tensor total = sum(exp(sub(in[0], maximum)), -1);
  return joined({neg(sum(mul(shares(node, in, 0), log_softmax(in[0])), -1)),
                 sum(hits(node, in, 0), -1), mul(maximum, counted), mul(recip(total), counted)},
                rows);
}

std::vector<Tensor> grad_cross_entropy(const GradCall& call) {
  const int64_t rows = call.inputs[0].dim(0);
  std::vector<Tensor> inputs = {call.inputs[0], call.inputs[1], call.output,
                                graph::slice(call.dy, 0, 0, rows)};
  inputs.insert(inputs.end(), call.inputs.begin() + 2, call.inputs.end());
  std::vector<Tensor> gradients(call.inputs.size());
  gradients[0] = record(kCrossEntropyBackward, inputs, call.node.attrs);
  return gradients;
}

// Extra inputs: the result of cross_entropy, the gradient of its losses [rows].
void run_cross_entropy_backward(const KernelCall& call) {
  const kernels::CrossEntropy args = arguments(call, 2);
  const auto* known = call.inputs[2].as<const float>();
  const int64_t rows = args.logits.rows;
  kernels::cross_entropy_backward(*call.pool, args, known + 2 * rows, known + 3 * rows,
                                  call.inputs[3].as<const float>(), call.output.as<float>());
}

// Does not read what the forward operation knew: it follows from the logits, and so does the
// gradient of this.
Tensor cross_entropy_backward_meaning(const Node& node, Inputs in) {
  const Tensor share = shares(node, in, 2);
  const Tensor pull = sub(mul(softmax(in[0]), sum(share, -1)), share);
  return mul(pull, graph::reshape(in[3], {in[0].dim(0), 1}));
}

void run_nll(const KernelCall& call) {
  const kernels::CrossEntropy args = arguments(call, 0);
  auto* out = call.output.as<float>();
  kernels::nll(*call.pool, args, out, out + args.logits.rows);
}

// Of each input one number for each row is read.
graph::Cost nll_cost(const Node& node) {
  const auto rows = static_cast<double>(node.inputs[0]->shape[0]);
  graph::Cost cost = {0, graph::stored_bytes(node)};
  for (const graph::NodePtr& input : node.inputs) {
    cost.bytes += std::min(graph::stored_bytes(*input), rows * sizeof(int64_t));
  }
  return cost;
}

Tensor nll_meaning(const Node& node, Inputs in) {
  const Tensor hit = hits(node, in, 0);
  return joined({neg(sum(mul(hit, in[0]), -1)), sum(hit, -1)}, in[0].dim(0));
}

std::vector<Tensor> grad_nll(const GradCall& call) {
  const int64_t rows = call.inputs[0].dim(0);
  std::vector<Tensor> inputs = {call.inputs[0], call.inputs[1], graph::slice(call.dy, 0, 0, rows)};
  inputs.insert(inputs.end(), call.inputs.begin() + 2, call.inputs.end());
  std::vector<Tensor> gradients(call.inputs.size());
  gradients[0] = record(kNllBackward, inputs, call.node.attrs);
  return gradients;
}

void run_nll_backward(const KernelCall& call) {
  kernels::nll_backward(*call.pool, arguments(call, 1), call.inputs[2].as<const float>(),
                        call.output.as<float>());
}

Tensor nll_backward_meaning(const Node& node, Inputs in) {
  return neg(mul(hits(node, in, 1), graph::reshape(in[2], {in[0].dim(0), 1})));
}

// Cases for logits and targets, with and without class weights; `forward` and `backward` are
// recorded on them. Targets are 0 … 3.
std::vector<OpCase> row_cases(const OpDef& forward, const OpDef* backward, bool keeps) {
  std::vector<OpCase> cases;
  auto add_case = [&](Shape shape, bool weighted, int64_t ignore_index, double smoothing,
                      DType dtype = DType::kF32) {
    const graph::Attrs attrs{{"ignore_index", ignore_index}, {"smoothing", smoothing}};
    std::vector<graph::TypedShape> inputs = {{dtype, shape}, i32({shape[0]})};
    if (backward) inputs.push_back(f32({shape[0]}));
    if (weighted) inputs.push_back(f32({shape[1]}));
    auto build = [&forward, backward, keeps, attrs](Inputs in) {
      std::vector<Tensor> given = {in[0], in[1]};
      const size_t weights = backward ? 3 : 2;
      if (in.size() > weights) given.push_back(in[weights]);
      if (!backward) return record(forward, given, attrs);
      const Tensor known = record(forward, given, attrs);
      given.insert(given.begin() + 2, in[2]);
      if (keeps) given.insert(given.begin() + 2, known);
      return record(*backward, given, attrs);
    };
    cases.push_back({str(name(dtype), " ", to_string(shape), " ignore ", ignore_index,
                         " smoothing ", smoothing, weighted ? " weighted" : ""),
                     std::move(inputs), build, 0, 3, 5e-6});
  };
  for (bool weighted : {false, true}) {
    add_case({1, 4}, weighted, -100, 0);
    add_case({5, 37}, weighted, 2, 0);
    add_case({7, 300}, weighted, 1, 0.25);
    add_case({0, 5}, weighted, -100, 0);
    add_case({5, 37}, weighted, 2, 0, DType::kF16);
    add_case({7, 300}, weighted, 1, 0.25, DType::kBF16);
  }
  return cases;
}

// --- Product and loss in one -------------------------------------------------------------------
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

const OpDef kCrossEntropy = {
    .name = "cross_entropy",
    .infer = [](const Node& node) { return infer_rows(node, 0, false, 4); },
    .kernel = run_cross_entropy,
    .layout = graph::InputLayout::kRows,
    .meaning = widened_meaning<cross_entropy_meaning>,
    .grad = grad_cross_entropy,
    .autocast = graph::Autocast::kFull,
    .cases = [] { return row_cases(kCrossEntropy, nullptr, false); }};
const OpDef kCrossEntropyBackward = {
    .name = "cross_entropy_backward",
    .infer = [](const Node& node) { return infer_rows(node, 2, true, 0); },
    .kernel = run_cross_entropy_backward,
    .layout = graph::InputLayout::kRows,
    .meaning = widened_meaning<cross_entropy_backward_meaning>,
    .cases = [] { return row_cases(kCrossEntropy, &kCrossEntropyBackward, true); }};
const OpDef kNll = {.name = "nll",
                    .infer = [](const Node& node) { return infer_rows(node, 0, false, 2); },
                    .kernel = run_nll,
                    .layout = graph::InputLayout::kRows,
                    .meaning = widened_meaning<nll_meaning>,
                    .grad = grad_nll,
                    .autocast = graph::Autocast::kFull,
                    .cost = nll_cost,
                    .cases = [] { return row_cases(kNll, nullptr, false); }};
const OpDef kNllBackward = {.name = "nll_backward",
                            .infer = [](const Node& node) { return infer_rows(node, 1, true, 0); },
                            .kernel = run_nll_backward,
                            .layout = graph::InputLayout::kRows,
                            .meaning = widened_meaning<nll_backward_meaning>,
                            .cost = nll_cost,
                            .cases = [] { return row_cases(kNll, &kNllBackward, false); }};
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

// Losses of rows [rows], and what each counts in a mean.
struct RowLosses {
  Tensor losses, weights;
};

Tensor reduce_rows(const RowLosses& rows, Reduction reduction) {
  if (reduction != Reduction::kMean) return reduce(rows.losses, reduction);
  return div(reduce(rows.losses, Reduction::kSum), reduce(rows.weights, Reduction::kSum));
}

RowLosses record_rows(const OpDef& op, const Tensor& x, const Tensor& targets,
                      const CrossEntropyOptions& options) {
  std::vector<Tensor> inputs = {x, targets};
  if (options.class_weight.defined()) inputs.push_back(options.class_weight);
  const Tensor rows = record(
      op, inputs, {{"ignore_index", options.ignore_index}, {"smoothing", options.label_smoothing}});
  const int64_t n = x.dim(0);
  return {graph::slice(rows, 0, 0, n), graph::slice(rows, 0, n, 2 * n)};
}

// The same of log-probabilities in float64, row by row from other operations:
// −(1 − ε) w_y x[y] − ε/classes · Σ_c w_c x[c], 0 where ignored and NaN where y is no class.
RowLosses exact_rows(const Tensor& x, const Tensor& targets, const CrossEntropyOptions& options) {
  if (x.rank() != 2 || !(targets.shape() == Shape{x.dim(0)})) {
    fail(ErrorKind::kMalformed, "a loss of ", to_string(x.shape()), " with classes ",
         to_string(targets.shape()), ": needs [rows, classes] and [rows]");
  }
  const int64_t rows = x.dim(0), classes = x.dim(1);
  const Tensor& class_weight = options.class_weight;
  if (class_weight.defined() && !(class_weight.shape() == Shape{classes})) {
    fail(ErrorKind::kMalformed, "class weights ", to_string(class_weight.shape()),
         " do not fit logits ", to_string(x.shape()), ": expected [classes]");
  }
  Tensor row_of_weights;  // without a gradient
  if (class_weight.defined()) {
    const graph::NoGradScope no_grad;
    row_of_weights = graph::reshape(class_weight, {1, classes});
  }
  const Tensor ignored = eq(targets, options.ignore_index);
  const Tensor valid = logical_and(ge(targets, 0), lt(targets, classes));
  Tensor weights = graph::expand(full({}, 1.0, DType::kF64), {rows});
  Tensor picked = weights;
  if (classes > 0) {
    const Tensor safe = where(valid, targets, 0);
    picked = graph::reshape(take_along(x, graph::reshape(safe, {rows, 1}), 1), {rows});
    if (class_weight.defined()) {
      weights = graph::reshape(index_select(row_of_weights, 1, safe), {rows});
    }
  }
  const double nan = std::numeric_limits<double>::quiet_NaN();
  weights = where(ignored, 0.0, where(valid, weights, nan));
  Tensor losses = mul(mul(picked, weights), options.label_smoothing - 1);
  if (options.label_smoothing != 0) {
    const Tensor weighed = class_weight.defined() ? mul(x, row_of_weights) : x;
    const Tensor all = graph::reshape(sum(weighed, 1), {rows});
    losses = sub(losses, mul(all, options.label_smoothing / static_cast<double>(classes)));
  }
  return {where(ignored, 0.0, losses), weights};
}

// A loss of rows with class indices, of floats of any type. x and targets are [rows, classes] and
// [rows], [batch, classes, …] and [batch, …], or [classes] and [].
template <class Rows>
Tensor row_loss(std::string_view op, const Tensor& x, const Tensor& targets,
                const CrossEntropyOptions& options, const Rows& rows) {
  graph::check_defined(x, op, "input 0");
  graph::check_defined(targets, op, "input 1");
  if (x.rank() != 2 && x.rank() > 0) {
    const Tensor last = x.rank() == 1 ? x : movedim(x, 1, -1);
    Shape places;
    for (int i = 0; i + 1 < last.rank(); ++i) places.push_back(last.dim(i));
    if (!(targets.shape() == places)) {
      fail(ErrorKind::kMalformed, op, " of ", to_string(x.shape()), ": the targets are ",
           to_string(targets.shape()), ", expected ", to_string(places));
    }
    const int64_t n = places.elements();
    const Tensor y = row_loss(op, graph::reshape(last, {n, last.dim(-1)}),
                              graph::reshape(targets, {n}), options, rows);
    return options.reduction == Reduction::kNone ? graph::reshape(y, places) : y;
  }
  const Tensor classes = in_int32(targets, op.data());
  const DType dtype = float_type_of(op, {x});
  CrossEntropyOptions given = options;
  given.ignore_index = std::clamp<int64_t>(options.ignore_index, INT32_MIN, INT32_MAX);
  given.class_weight = in_type(options.class_weight, computed_type(dtype));
  return in_type(reduce_rows(rows(x, classes, given), options.reduction), dtype);
}

// −Σ_c w_c ((1 − ε) t_c + ε/classes) ln p_c.
Tensor probability_loss(const Tensor& logits, const Tensor& targets,
                        const CrossEntropyOptions& options) {
  if (!(logits.shape() == targets.shape())) {
    fail(ErrorKind::kMalformed, "cross_entropy: probabilities of shape ",
         to_string(targets.shape()), " do not fit logits of shape ", to_string(logits.shape()));
  }
  Tensor share = targets;
  if (options.label_smoothing != 0) {
    double rest = 1 - options.label_smoothing;
    double even = options.label_smoothing / static_cast<double>(logits.dim(-1));
    if (logits.dtype() == DType::kF32) {
      const auto smoothing = static_cast<float>(options.label_smoothing);
      rest = 1 - smoothing;
      even = smoothing / static_cast<float>(logits.dim(-1));
    }
    share = add(mul(share, rest), even);
  }
  if (options.class_weight.defined()) share = mul(share, options.class_weight);
  const Tensor losses = neg(sum(mul(share, log_softmax(logits)), -1));
  Shape rows;
  for (int i = 0; i + 1 < logits.rank(); ++i) rows.push_back(logits.dim(i));
  return graph::reshape(losses, rows);
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& targets,
                     const CrossEntropyOptions& options) {
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1)) {
    fail(ErrorKind::kMalformed, "cross_entropy: label smoothing is ", options.label_smoothing,
         ", expected 0 to 1");
  }
  if (is_float(targets.dtype())) {
    return in_common_float(
        "cross_entropy",
        [&](const Tensor& x, const Tensor& t) {
          return reduce(probability_loss(x, t, options), options.reduction);
        },
        logits, targets);
  }
  return row_loss(kCrossEntropy.name, logits, targets, options,
                  [](const Tensor& x, const Tensor& classes, const CrossEntropyOptions& given) {
                    return x.dtype() == DType::kF64 ? exact_rows(log_softmax(x), classes, given)
                                                    : record_rows(kCrossEntropy, x, classes, given);
                  });
}

Tensor nll(const Tensor& log_probabilities, const Tensor& targets,
           const CrossEntropyOptions& options) {
  if (options.label_smoothing != 0) {
    fail(ErrorKind::kMalformed, "nll: label smoothing needs logits; use cross_entropy");
  }
  return row_loss(kNll.name, log_probabilities, targets, options,
                  [](const Tensor& x, const Tensor& classes, const CrossEntropyOptions& given) {
                    return x.dtype() == DType::kF64 ? exact_rows(x, classes, given)
                                                    : record_rows(kNll, x, classes, given);
                  });
}

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
