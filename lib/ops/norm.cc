// Operations over rows (the last axis): softmax and the normalisations, and their gradients.
#include "lib/kernels/norm.h"

#include <algorithm>

#include "lib/base/error.h"
#include "lib/graph/mixed_precision.h"
#include "lib/kernels/norm_backward.h"
#include "lib/kernels/norm_f64.h"
#include "lib/ops/cases.h"
#include "lib/ops/elementwise.h"

namespace lumen::ops {
namespace {

using graph::KernelCall;
using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::record;

void require_rows(const Node& node) {
  const Node& x = *node.inputs[0];
  if (!(is_float32_or_narrower(x.dtype) || x.dtype == DType::kF64) || x.shape.rank() == 0) {
    shape_error(node, "x must be rows of floats");
  }
}

// A weight [dim] of the type of x.
void require_weight(const Node& node, const Node& w) {
  const Node& x = *node.inputs[0];
  if (w.dtype != x.dtype || !(w.shape == Shape({x.shape[-1]}))) {
    shape_error(node, "weights must be [dim], of the type of x");
  }
}

graph::TypedShape infer_norm(const Node& node) {
  require_rows(node);
  for (size_t i = 1; i < node.inputs.size(); ++i) require_weight(node, *node.inputs[i]);
  const Node& x = *node.inputs[0];
  return {x.dtype == DType::kF32 ? graph::stored_type(node) : x.dtype, x.shape};
}

bool norm_gives_bf16(const Node& node) {
  return node.inputs[0]->dtype == DType::kF32;
}

// x and dy of one shape, perhaps a weight [dim]. Results, float32 or, of float64, that: dx, of the
// weight and `extra` of its like.
graph::TypedShape infer_backward(const Node& node, int64_t extra) {
  require_rows(node);
  const Node &x = *node.inputs[0], &dy = *node.inputs[1];
  if (!takes_gradient(x.dtype, dy.dtype) || !(dy.shape == x.shape)) {
    shape_error(node, "dy must be as x");
  }
  const DType result = computed_type(x.dtype);
  if (dy.dtype == DType::kF32 && result == DType::kF64) shape_error(node, "dy must be float64 too");
  if (node.inputs.size() == 2) return {result, x.shape};
  require_weight(node, *node.inputs[2]);
  return {result, {x.shape.elements() + extra * x.shape[-1]}};
}

kernels::Rows norm_rows(const graph::Operand& x) {
  kernels::Rows rows{x.data, 1, x.shape[-1], x.shape[-1], x.dtype};
  for (int axis = x.shape.rank() - 2; axis >= 0; --axis) {
    if (x.shape[axis] != 1 && rows.rows == 1) rows.stride = x.strides[axis];
    rows.rows *= x.shape[axis];
  }
  return rows;
}

kernels::RowsF64 f64_rows(const graph::Operand& x) {
  const kernels::Rows rows = norm_rows(x);
  return {x.as<const double>(), rows.rows, rows.dim, rows.stride};
}

bool is_f64(const KernelCall& call) {
  return call.inputs[0].dtype == DType::kF64;
}

double exact_eps_of(const KernelCall& call) {
  return call.node->attrs.real("eps");
}
float eps_of(const KernelCall& call) {
  return static_cast<float>(exact_eps_of(call));
}

void run_softmax(const KernelCall& call) {
  if (is_f64(call)) {
    return kernels::softmax(*call.pool, f64_rows(call.inputs[0]), call.output.as<double>());
  }
  const kernels::Rows x = norm_rows(call.inputs[0]);
  kernels::softmax(*call.pool, x, call.output.data, x.dim, call.workspace);
}

size_t softmax_workspace(const Node& node, int threads) {
  if (node.dtype == DType::kF64) return 0;
  return kernels::softmax_workspace_bytes(node.dtype, node.shape[-1], threads);
}

void run_rms_norm(const KernelCall& call) {
  if (is_f64(call)) {
    return kernels::rms_norm(*call.pool, f64_rows(call.inputs[0]),
                             call.inputs[1].as<const double>(), exact_eps_of(call),
                             call.output.as<double>());
  }
  const kernels::Rows x = norm_rows(call.inputs[0]);
  kernels::rms_norm(*call.pool, x, call.inputs[1].data, eps_of(call), call.output.data, x.dim,
                    call.output.dtype != x.dtype);
}

void run_layer_norm(const KernelCall& call) {
  if (is_f64(call)) {
    return kernels::layer_norm(*call.pool, f64_rows(call.inputs[0]),
                               call.inputs[1].as<const double>(), call.inputs[2].as<const double>(),
                               exact_eps_of(call), call.output.as<double>());
  }
  const kernels::Rows x = norm_rows(call.inputs[0]);
  kernels::layer_norm(*call.pool, x, call.inputs[1].data, call.inputs[2].data, eps_of(call),
                      call.output.data, x.dim, call.output.dtype != x.dtype);
}

void run_log_softmax(const KernelCall& call) {
  if (is_f64(call)) {
    return kernels::log_softmax(*call.pool, f64_rows(call.inputs[0]), call.output.as<double>());
  }
  const kernels::Rows x = norm_rows(call.inputs[0]);
  kernels::log_softmax(*call.pool, x, call.output.data, x.dim);
}

void run_softmax_backward(const KernelCall& call) {
  if (is_f64(call)) {
    return kernels::softmax_backward(*call.pool, f64_rows(call.inputs[0]), f64_rows(call.inputs[1]),
                                     call.output.as<double>());
  }
  kernels::softmax_backward(*call.pool, norm_rows(call.inputs[0]), norm_rows(call.inputs[1]),
                            call.output.as<float>());
}

void run_log_softmax_backward(const KernelCall& call) {
  if (is_f64(call)) {
    return kernels::log_softmax_backward(*call.pool, f64_rows(call.inputs[0]),
                                         f64_rows(call.inputs[1]), call.output.as<double>());
  }
  kernels::log_softmax_backward(*call.pool, norm_rows(call.inputs[0]), norm_rows(call.inputs[1]),
                                call.output.as<float>());
}

void run_rms_norm_backward(const KernelCall& call) {
  if (is_f64(call)) {
    const kernels::RowsF64 x = f64_rows(call.inputs[0]);
    auto* const dx = call.output.as<double>();
    return kernels::rms_norm_backward(*call.pool, x, call.inputs[2].as<const double>(),
                                      f64_rows(call.inputs[1]), exact_eps_of(call), dx,
                                      dx + x.rows * x.dim, call.workspace);
  }
  const kernels::Rows x = norm_rows(call.inputs[0]);
  auto* dx = call.output.as<float>();
  kernels::rms_norm_backward(*call.pool, x, call.inputs[2].data, norm_rows(call.inputs[1]),
                             eps_of(call), dx, dx + x.rows * x.dim, call.workspace);
}

void run_layer_norm_backward(const KernelCall& call) {
  if (is_f64(call)) {
    const kernels::RowsF64 x = f64_rows(call.inputs[0]);
    auto* const dx = call.output.as<double>();
    double* const dw = dx + x.rows * x.dim;
    return kernels::layer_norm_backward(*call.pool, x, call.inputs[2].as<const double>(),
                                        f64_rows(call.inputs[1]), exact_eps_of(call), dx, dw,
                                        dw + x.dim, call.workspace);
  }
  const kernels::Rows x = norm_rows(call.inputs[0]);
  auto* dx = call.output.as<float>();
  float* dw = dx + x.rows * x.dim;
  kernels::layer_norm_backward(*call.pool, x, call.inputs[2].data, norm_rows(call.inputs[1]),
                               eps_of(call), dx, dw, dw + x.dim, call.workspace);
}

size_t backward_workspace(const Node& node, int) {
  const Shape& x = node.inputs[0]->shape;
  const int64_t rows = x[-1] > 0 ? x.elements() / x[-1] : 0;
  return node.dtype == DType::kF64 ? kernels::norm_backward_f64_workspace_bytes(rows, x[-1])
                                   : kernels::norm_backward_workspace_bytes(rows, x[-1]);
}

// The largest of each row, as a constant to the gradient: in softmax it cancels. Of no elements 0.
Tensor largest(const Tensor& x) {
  const graph::NoGradScope no_grad;
  if (x.dim(-1) == 0) return sum(x, -1);
  return max(x, -1);
}

Tensor softmax_meaning(const Node&, Inputs in) {
  const Tensor e = exp(sub(in[0], largest(in[0])));
  return div(e, sum(e, -1));
}

// As the kernels read it.
Tensor eps_for(const Node& node, const Tensor& x) {
  const double eps = node.attrs.real("eps");
  return x.dtype() == DType::kF64 ? number(eps, DType::kF64)
                                  : graph::scalar(static_cast<float>(eps));
}

Tensor rms_norm_meaning(const Node& node, Inputs in) {
  const Tensor variance = mean(mul(in[0], in[0]), -1);
  const Tensor eps = eps_for(node, in[0]);
  return mul(mul(in[0], rsqrt(add(variance, eps))), in[1]);
}

Tensor layer_norm_meaning(const Node& node, Inputs in) {
  const Tensor centered = sub(in[0], mean(in[0], -1));
  const Tensor variance = mean(mul(centered, centered), -1);
  const Tensor eps = eps_for(node, in[0]);
  return add(mul(mul(centered, rsqrt(add(variance, eps))), in[1]), in[2]);
}

Tensor log_softmax_meaning(const Node&, Inputs in) {
  const Tensor shifted = sub(in[0], largest(in[0]));
  return sub(shifted, log(sum(exp(shifted), -1)));
}

Tensor softmax_backward_meaning(const Node&, Inputs in) {
  return mul(in[0], sub(in[1], sum(mul(in[0], in[1]), -1)));
}

Tensor log_softmax_backward_meaning(const Node&, Inputs in) {
  return sub(in[1], mul(exp(in[0]), sum(in[1], -1)));
}

// Σ over all axes but the last → [dim].
Tensor sum_rows(const Tensor& x) {
  const int64_t dim = x.dim(-1), rows = dim > 0 ? x.shape().elements() / dim : 0;
  return graph::reshape(sum(graph::reshape(x, {rows, dim}), 0), {dim});
}

Tensor rms_norm_backward_meaning(const Node& node, Inputs in) {
  const Tensor &x = in[0], &dy = in[1];
  const Tensor eps = eps_for(node, x);
  const Tensor r = rsqrt(add(mean(mul(x, x), -1), eps)), g = mul(dy, in[2]);
  const Tensor pull = mul(mul(r, mul(r, r)), mean(mul(g, x), -1));
  const Tensor parts[] = {flatten(sub(mul(r, g), mul(x, pull))), sum_rows(mul(dy, mul(x, r)))};
  return concat(parts, 0);
}

Tensor layer_norm_backward_meaning(const Node& node, Inputs in) {
  const Tensor &x = in[0], &dy = in[1];
  const Tensor eps = eps_for(node, x);
  const Tensor centered = sub(x, mean(x, -1));
  const Tensor r = rsqrt(add(mean(mul(centered, centered), -1), eps));
  const Tensor normal = mul(centered, r), g = mul(dy, in[2]);
  const Tensor pull = mul(normal, mean(mul(g, normal), -1));
  const Tensor parts[] = {flatten(mul(r, sub(sub(g, mean(g, -1)), pull))),
                          sum_rows(mul(dy, normal)), sum_rows(dy)};
  return concat(parts, 0);
}

// The same in float64, a strided view among them: `rows` inputs of one shape, then `weights` [dim].
// Results are compared as float32.
constexpr double kRoundedTolerance = 1e-6;
void add_f64_cases(std::vector<OpCase>& cases, size_t rows, int weights,
                   const std::function<Tensor(Inputs)>& build) {
  const auto add_case = [&](std::string label, const Shape& shape, int64_t dim,
                            std::function<Tensor(Inputs)> of) {
    std::vector<graph::TypedShape> inputs(rows, {DType::kF64, shape});
    inputs.insert(inputs.end(), static_cast<size_t>(weights), {DType::kF64, {dim}});
    cases.push_back(
        {str("f64 ", label), std::move(inputs), std::move(of), -3, 3, kRoundedTolerance});
  };
  for (Shape shape : {Shape{1}, Shape{0, 4}, Shape{3, 64}, Shape{2, 3, 33}, Shape{300, 17}}) {
    add_case(to_string(shape), shape, shape[-1], build);
  }
  add_case("strided rows", {4, 48}, 20, [rows, build](Inputs in) {
    std::vector<Tensor> sliced(in.begin(), in.end());
    for (size_t i = 0; i < rows; ++i) sliced[i] = graph::slice(in[i], 1, 8, 28);
    return build(sliced);
  });
}

// One, few and many rows, odd widths, a strided view; `build` takes x and the weights.
std::vector<OpCase> norm_cases(int weights, std::function<Tensor(Inputs)> build) {
  std::vector<OpCase> cases;
  for (Shape shape :
       {Shape{1}, Shape{5}, Shape{3, 64}, Shape{2, 3, 33}, Shape{1, 4096}, Shape{70, 17}}) {
    std::vector<graph::TypedShape> inputs = {{DType::kF32, shape}};
    for (int i = 0; i < weights; ++i) inputs.push_back(f32({shape[-1]}));
    cases.push_back({to_string(shape), std::move(inputs), build, -3, 3, 5e-6});
  }
  for (DType narrow : {DType::kF16, DType::kBF16}) {
    std::vector<graph::TypedShape> inputs = {{narrow, {5, 77}}};
    inputs.insert(inputs.end(), static_cast<size_t>(weights), {narrow, {77}});
    cases.push_back(
        {str("narrow ", name(narrow)), std::move(inputs), build, -3, 3, kNarrowTolerance});
  }
  std::vector<graph::TypedShape> inputs = {f32({4, 48})};
  for (int i = 0; i < weights; ++i) inputs.push_back(f32({20}));
  cases.push_back({"strided rows", std::move(inputs),
                   [build](Inputs in) {
                     std::vector<Tensor> sliced(in.begin(), in.end());
                     sliced[0] = graph::slice(in[0], 1, 8, 28);
                     return build(sliced);
                   },
                   -3, 3, 5e-6});
  add_f64_cases(cases, 1, weights, build);
  return cases;
}

// `weights`: 0 or 1, after x and dy of one shape.
std::vector<OpCase> backward_cases(int weights, const OpDef& op, graph::Attrs attrs) {
  std::vector<OpCase> cases;
  auto add_case = [&](std::string label, Shape shape, std::function<Tensor(Inputs)> build,
                      DType x = DType::kF32, DType dy = DType::kF32) {
    std::vector<graph::TypedShape> inputs = {{x, shape}, {dy, shape}};
    if (weights > 0) inputs.push_back({x, {shape[-1]}});
    cases.push_back({std::move(label), std::move(inputs), std::move(build), -2, 2, 5e-5});
  };
  for (Shape shape :
       {Shape{5}, Shape{3, 64}, Shape{2, 3, 33}, Shape{1, 4096}, Shape{300, 17}, Shape{0, 4}}) {
    add_case(to_string(shape), shape, [&op, attrs](Inputs in) { return record(op, in, attrs); });
  }
  for (DType x : {DType::kF16, DType::kBF16}) {
    for (DType dy : {x, DType::kF32}) {
      add_case(
          str(name(x), " and ", name(dy)), {11, 37},
          [&op, attrs](Inputs in) { return record(op, in, attrs); }, x, dy);
    }
  }
  add_case("strided rows", {6, 20}, [&op, attrs](Inputs in) {
    std::vector<Tensor> inputs(in.begin(), in.end());
    for (int i : {0, 1}) inputs[i] = graph::slice(graph::pad(in[i], 1, 8, 3), 1, 8, 28);
    return record(op, inputs, attrs);
  });
  add_f64_cases(cases, 2, weights, [&op, attrs](Inputs in) { return record(op, in, attrs); });
  return cases;
}

}  // namespace

extern const OpDef kSoftmax, kLogSoftmax, kRmsNorm, kLayerNorm, kSoftmaxBackward,
    kLogSoftmaxBackward, kRmsNormBackward, kLayerNormBackward, kSoftmaxColumns, kLogSoftmaxColumns;

namespace {

Tensor stored_dy(const graph::GradCall& call) {
  return as_stored(call.dy, call.inputs[0].dtype());
}

std::vector<Tensor> grad_softmax(const graph::GradCall& call) {
  return {record(kSoftmaxBackward, {call.output, stored_dy(call)})};
}

std::vector<Tensor> grad_log_softmax(const graph::GradCall& call) {
  return {record(kLogSoftmaxBackward, {call.output, stored_dy(call)})};
}

std::vector<Tensor> grad_rms_norm(const graph::GradCall& call) {
  const Tensor &x = call.inputs[0], &w = call.inputs[1];
  return graph::unpack(record(kRmsNormBackward, {x, stored_dy(call), w}, call.node.attrs),
                       {x.shape(), w.shape()});
}

std::vector<Tensor> grad_layer_norm(const graph::GradCall& call) {
  const Tensor &x = call.inputs[0], &w = call.inputs[1];
  return graph::unpack(record(kLayerNormBackward, {x, stored_dy(call), w}, call.node.attrs),
                       {x.shape(), w.shape(), w.shape()});
}

}  // namespace

const OpDef kSoftmax = {
    .name = "softmax",
    .infer = infer_norm,
    .kernel = run_softmax,
    .workspace = softmax_workspace,
    .layout = graph::InputLayout::kRows,
    .meaning = rounded_meaning<softmax_meaning>,
    .grad = grad_softmax,
    .autocast = graph::Autocast::kFull,
    .cases = [] { return norm_cases(0, [](Inputs in) { return softmax(in[0]); }); }};
const OpDef kLogSoftmax = {
    .name = "log_softmax",
    .infer = infer_norm,
    .kernel = run_log_softmax,
    .layout = graph::InputLayout::kRows,
    .meaning = rounded_meaning<log_softmax_meaning>,
    .grad = grad_log_softmax,
    .autocast = graph::Autocast::kFull,
    .cases = [] { return norm_cases(0, [](Inputs in) { return log_softmax(in[0]); }); }};
const OpDef kRmsNorm = {
    .name = "rms_norm",
    .infer = infer_norm,
    .kernel = run_rms_norm,
    .layout = graph::InputLayout::kRows,
    .meaning = rounded_meaning<rms_norm_meaning>,
    .grad = grad_rms_norm,
    .autocast = graph::Autocast::kFull,
    .gives_bf16 = norm_gives_bf16,
    .cases = [] { return norm_cases(1, [](Inputs in) { return rms_norm(in[0], in[1], 1e-5); }); }};
const OpDef kLayerNorm = {.name = "layer_norm",
                          .infer = infer_norm,
                          .kernel = run_layer_norm,
                          .layout = graph::InputLayout::kRows,
                          .meaning = rounded_meaning<layer_norm_meaning>,
                          .grad = grad_layer_norm,
                          .autocast = graph::Autocast::kFull,
                          .gives_bf16 = norm_gives_bf16,
                          .cases = [] {
                            return norm_cases(
                                2, [](Inputs in) { return layer_norm(in[0], in[1], in[2], 1e-5); });
                          }};

// Inputs: the result of the softmax, dy.
const OpDef kSoftmaxBackward = {.name = "softmax_backward",
                                .infer = [](const Node& node) { return infer_backward(node, 0); },
                                .kernel = run_softmax_backward,
                                .layout = graph::InputLayout::kRows,
                                .meaning = widened_meaning<softmax_backward_meaning>,
                                .cases = [] { return backward_cases(0, kSoftmaxBackward, {}); }};
const OpDef kLogSoftmaxBackward = {
    .name = "log_softmax_backward",
    .infer = [](const Node& node) { return infer_backward(node, 0); },
    .kernel = run_log_softmax_backward,
    .layout = graph::InputLayout::kRows,
    .meaning = widened_meaning<log_softmax_backward_meaning>,
    .cases = [] { return backward_cases(0, kLogSoftmaxBackward, {}); }};
// Inputs: x, dy, weight. Flat results: dx, dweight and, of layer_norm, dbias.
const OpDef kRmsNormBackward = {.name = "rms_norm_backward",
                                .infer = [](const Node& node) { return infer_backward(node, 1); },
                                .kernel = run_rms_norm_backward,
                                .workspace = backward_workspace,
                                .layout = graph::InputLayout::kRows,
                                .meaning = widened_meaning<rms_norm_backward_meaning>,
                                .cases =
                                    [] {
                                      return backward_cases(1, kRmsNormBackward, {{"eps", 1e-5}});
                                    }};
const OpDef kLayerNormBackward = {
    .name = "layer_norm_backward",
    .infer = [](const Node& node) { return infer_backward(node, 2); },
    .kernel = run_layer_norm_backward,
    .workspace = backward_workspace,
    .layout = graph::InputLayout::kRows,
    .meaning = widened_meaning<layer_norm_backward_meaning>,
    .cases =
        [] {
          return backward_cases(1, kLayerNormBackward, {{"eps", 1e-5}});
        }};

namespace {

// Along `axis`: `columns` does along a middle axis what `rows` does along the last one.
Tensor along(const OpDef& rows, const OpDef& columns, const Tensor& x, int axis) {
  graph::check_defined(x, rows.name, "x");
  const int at = graph::checked_axis(rows.name, x.shape(), axis);
  if (at == x.rank() - 1) return record(rows, {x});
  if (x.dtype() == DType::kF64) {
    return graph::transpose(record(rows, {graph::transpose(x, at, -1)}), at, -1);
  }
  Shape joined = {1, x.dim(at), 1};
  for (int i = 0; i < x.rank(); ++i) {
    if (i != at) joined[i < at ? 0 : 2] *= x.dim(i);
  }
  return graph::reshape(record(columns, {graph::reshape(x, joined)}), x.shape());
}

// [dim] for an x of rows of that width, or undefined.
void check_weight(const OpDef& op, const Tensor& x, const Tensor& weight) {
  if (!weight.defined() || weight.shape() == Shape{x.dim(-1)}) return;
  fail(ErrorKind::kMalformed, op.name, " of ", to_string(x.shape()), ": a weight or bias is ",
       to_string(weight.shape()), ", expected [", x.dim(-1), "]");
}

// `weight`, or without one `value`, 0 or 1, for every element of a row of x, in its type.
Tensor weight_or(const Tensor& weight, double value, const Tensor& x) {
  if (weight.defined()) return weight;
  const bool is_own = is_narrow(x.dtype()) || x.dtype() == DType::kF64;
  return full({x.rank() > 0 ? x.dim(-1) : 1}, value, is_own ? x.dtype() : DType::kF32);
}

// `op` of rows x and what else there is, in float64 if any is; those of different narrower types
// are computed in float32, and the result is rounded to that of x.
Tensor of_float_rows(const OpDef& op, std::vector<Tensor> inputs, double eps) {
  DType dtype = inputs[0].dtype();
  const auto is = [](DType type) { return [type](const Tensor& x) { return x.dtype() == type; }; };
  if (std::ranges::any_of(inputs, is(DType::kF64))) {
    for (const Tensor& x : inputs) dtype = promote(dtype, float_type_of(op.name, {x}));
    if (inputs[0].rank() == 0) fail(ErrorKind::kMalformed, op.name, ": x has no axis");
    for (size_t i = 1; i < inputs.size(); ++i) check_weight(op, inputs[0], inputs[i]);
    for (Tensor& input : inputs) input = in_type(input, dtype);
  } else if (!std::ranges::all_of(inputs, is(dtype))) {
    for (Tensor& input : inputs) input = widened(input);
  }
  const Tensor y = record(op, inputs, {{"eps", eps}});
  return is_narrow(dtype) ? in_type(y, dtype) : y;
}

}  // namespace

Tensor softmax(const Tensor& x, int axis) {
  return along(kSoftmax, kSoftmaxColumns, x, axis);
}

Tensor log_softmax(const Tensor& x, int axis) {
  return along(kLogSoftmax, kLogSoftmaxColumns, x, axis);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  graph::check_defined(x, kRmsNorm.name, "x");
  return of_float_rows(kRmsNorm, {x, weight_or(weight, 1, x)}, eps);
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  graph::check_defined(x, kLayerNorm.name, "x");
  return of_float_rows(kLayerNorm, {x, weight_or(weight, 1, x), weight_or(bias, 0, x)}, eps);
}

}  // namespace lumen::ops
