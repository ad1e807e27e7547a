// Cross-entropy of logits with class indices or probabilities, and NLL.
#include "lib/kernels/cross_entropy.h"

#include <algorithm>
#include <limits>

#include "lib/base/error.h"
#include "lib/graph/cost.h"
#include "lib/ops/axes.h"
#include "lib/ops/cases.h"
#include "lib/ops/elementwise.h"
#include "lib/ops/loss.h"

namespace lumen::ops {

extern const graph::OpDef kCrossEntropy, kCrossEntropyBackward, kNll, kNllBackward;

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

}  // namespace lumen::ops
