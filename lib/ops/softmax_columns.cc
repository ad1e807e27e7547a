// Softmax along the middle axis of x [outer, n, inner], and its gradients: what softmax and
// log_softmax of any axis but the last are (norm.cc).
#include "lib/kernels/softmax_columns.h"

#include "lib/ops/cases.h"
#include "lib/ops/elementwise.h"

namespace lumen::ops {

using graph::KernelCall;
using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::record;

extern const OpDef kSoftmaxColumns, kLogSoftmaxColumns, kSoftmaxColumnsBackward,
    kLogSoftmaxColumnsBackward, kSoftmaxBackward, kLogSoftmaxBackward;

namespace {

void require_columns(const Node& node) {
  const Node& x = *node.inputs[0];
  if (!is_float32_or_narrower(x.dtype) || x.shape.rank() != 3) {
    shape_error(node, "x must be float32 or narrower floats [outer, n, inner]");
  }
}

graph::TypedShape infer(const Node& node) {
  require_columns(node);
  return {node.inputs[0]->dtype, node.inputs[0]->shape};
}

// Of y and dy.
graph::TypedShape infer_backward(const Node& node) {
  require_columns(node);
  const Node &y = *node.inputs[0], &dy = *node.inputs[1];
  if (!takes_gradient(y.dtype, dy.dtype) || !(dy.shape == y.shape)) {
    shape_error(node, "dy must be as y");
  }
  return {DType::kF32, y.shape};
}

size_t workspace(const Node& node, int threads) {
  return kernels::softmax_columns_workspace_bytes(node.shape[1], threads);
}

kernels::Columns columns_of(const graph::Operand& x) {
  return {x.shape[0], x.shape[1], x.shape[2], x.dtype};
}

template <auto kKernel>
void run(const KernelCall& call) {
  kKernel(*call.pool, columns_of(call.output), call.inputs[0].data, call.output.data,
          call.workspace);
}

template <auto kKernel>
void run_backward(const KernelCall& call) {
  const graph::Operand& dy = call.inputs[1];
  kKernel(*call.pool, columns_of(call.inputs[0]), call.inputs[0].data, dy.data, dy.dtype,
          call.output.as<float>(), call.workspace);
}

// As rows.
Tensor turned(const Tensor& x) {
  return graph::transpose(x, 1, 2);
}
template <const OpDef& kRows>
Tensor backward_meaning(const Node&, Inputs in) {
  return turned(record(kRows, {turned(in[0]), turned(in[1])}));
}

template <const OpDef& kBackward>
std::vector<Tensor> grad(const graph::GradCall& call) {
  return {record(kBackward, {call.output, as_stored(call.dy, call.output.dtype())})};
}

// Few and many, odd and even, none; longer than a strip of a line is narrow.
template <const OpDef& kOp, size_t kInputs>
std::vector<OpCase> cases() {
  std::vector<OpCase> cases;
  for (Shape shape : {Shape{1, 1, 1}, Shape{2, 7, 33}, Shape{3, 100, 5}, Shape{1, 10, 600},
                      Shape{1, 6000, 40}, Shape{0, 3, 4}, Shape{2, 3, 0}}) {
    const double range = shape[1] > 1000 ? 0.2 : 3;  // a sum of many cancels
    cases.push_back({to_string(shape),
                     std::vector<graph::TypedShape>(kInputs, {DType::kF32, shape}),
                     [](Inputs in) { return record(kOp, in); }, -range, range, 5e-5});
  }
  for (DType narrow : {DType::kF16, DType::kBF16}) {
    cases.push_back({str("narrow ", name(narrow)),
                     std::vector<graph::TypedShape>(kInputs, {narrow, {2, 7, 33}}),
                     [](Inputs in) { return record(kOp, in); }, -3, 3, kNarrowTolerance});
  }
  cases.push_back({"turned", std::vector<graph::TypedShape>(kInputs, f32({4, 6, 20})),
                   [](Inputs in) {
                     std::vector<Tensor> inputs;
                     for (const Tensor& x : in) inputs.push_back(turned(x));
                     return record(kOp, inputs);
                   },
                   -3, 3, 5e-5});
  return cases;
}

}  // namespace

const OpDef kSoftmaxColumns = {
    .name = "softmax_columns",
    .infer = infer,
    .kernel = run<kernels::softmax_columns>,
    .workspace = workspace,
    .meaning = [](const Node&, Inputs in) { return turned(softmax(turned(in[0]))); },
    .grad = grad<kSoftmaxColumnsBackward>,
    .autocast = graph::Autocast::kFull,
    .cases = cases<kSoftmaxColumns, 1>};
const OpDef kLogSoftmaxColumns = {
    .name = "log_softmax_columns",
    .infer = infer,
    .kernel = run<kernels::log_softmax_columns>,
    .workspace = workspace,
    .meaning = [](const Node&, Inputs in) { return turned(log_softmax(turned(in[0]))); },
    .grad = grad<kLogSoftmaxColumnsBackward>,
    .autocast = graph::Autocast::kFull,
    .cases = cases<kLogSoftmaxColumns, 1>};
// Inputs: the result of the softmax, dy.
const OpDef kSoftmaxColumnsBackward = {.name = "softmax_columns_backward",
                                       .infer = infer_backward,
                                       .kernel = run_backward<kernels::softmax_columns_backward>,
                                       .workspace = workspace,
                                       .meaning = backward_meaning<kSoftmaxBackward>,
                                       .cases = cases<kSoftmaxColumnsBackward, 2>};
const OpDef kLogSoftmaxColumnsBackward = {
    .name = "log_softmax_columns_backward",
    .infer = infer_backward,
    .kernel = run_backward<kernels::log_softmax_columns_backward>,
    .workspace = workspace,
    .meaning = backward_meaning<kLogSoftmaxBackward>,
    .cases = cases<kLogSoftmaxColumnsBackward, 2>};

}  // namespace lumen::ops
