// Running totals: one recurrence, whose gradient is the same run backwards. Products.
#include <algorithm>

#include "lib/base/error.h"
#include "lib/kernels/reduce.h"
#include "lib/ops/axes.h"
#include "lib/ops/elementwise.h"

namespace lumen::ops {

extern const graph::OpDef kLinearScan, kCumprod, kProdReduce, kProdGradient;

namespace {

using graph::GradCall;
using graph::KernelCall;
using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::record;

graph::TypedShape infer_scan(const Node& node) {
  const Node &a = *node.inputs[0], &b = *node.inputs[1];
  if (!(a.shape == b.shape)) shape_error(node, "shapes differ");
  if (is_quantized(a.dtype) || is_quantized(b.dtype)) shape_error(node, "quantised values");
  return {static_cast<DType>(node.attrs.integer("dtype")), b.shape};
}

bool is_reverse(const Node& node) {
  return node.attrs.integer("reverse") != 0;
}

void run_scan(const KernelCall& call) {
  const graph::Operand &a = call.inputs[0], &b = call.inputs[1];
  kernels::linear_scan(*call.pool, typed(a), typed(b), call.output.shape, axis_of(*call.node),
                       is_reverse(*call.node), call.output.dtype, call.output.data);
}

// Step by step.
Tensor scan_meaning(const Node& node, Inputs in) {
  const int axis = axis_of(node);
  const int64_t n = node.shape[axis];
  if (n == 0) return in[1];
  const bool reverse = is_reverse(node);
  const auto at = [&](const Tensor& x, int64_t i) { return graph::slice(x, axis, i, i + 1); };
  std::vector<Tensor> steps = {at(in[1], reverse ? n - 1 : 0)};
  for (int64_t k = 1; k < n; ++k) {
    const int64_t i = reverse ? n - 1 - k : k;
    steps.push_back(add(mul(at(in[0], reverse ? i + 1 : i), steps.back()), at(in[1], i)));
  }
  if (reverse) std::reverse(steps.begin(), steps.end());
  return concat(steps, axis);
}

Tensor scan(const Tensor& a, const Tensor& b, int axis, bool reverse) {
  return record(kLinearScan, {a, b},
                {{"axis", int64_t{axis}},
                 {"reverse", int64_t{reverse}},
                 {"dtype", static_cast<int64_t>(promote(a.dtype(), b.dtype()))}});
}

// 0 and then x without its last element along an axis.
Tensor later(const Tensor& x, int axis) {
  return graph::pad(graph::slice(x, axis, 0, x.dim(axis) - 1), axis, 1, 0);
}

// g[i] = dy[i] + a[i + 1] g[i + 1], the recurrence from the other end; db = g,
// da[i] = g[i] y[i − 1]. Of that from the end g[i] = dy[i] + a[i] g[i − 1], da[i] = y[i] g[i − 1].
Gradients grad_scan(const GradCall& call) {
  const int axis = axis_of(call.node);
  if (call.node.shape[axis] == 0) return {call.dy, call.dy};
  const bool reverse = is_reverse(call.node);
  const Tensor g = scan(call.inputs[0], call.dy, axis, !reverse);
  const Tensor da = reverse ? mul(later(g, axis), call.output) : mul(g, later(call.output, axis));
  return {da, g};
}

graph::TypedShape infer_cumprod(const Node& node) {
  const Node& x = *node.inputs[0];
  if (is_quantized(x.dtype)) shape_error(node, "quantised values have no arithmetic");
  return {x.dtype, x.shape};
}

void run_cumprod(const KernelCall& call) {
  kernels::product_scan(*call.pool, typed(call.inputs[0]), call.output.shape, axis_of(*call.node),
                        call.output.data);
}

// The first element starts; then every element is a factor.
Tensor cumprod_meaning(const Node& node, Inputs in) {
  const int axis = axis_of(node);
  const Tensor start = graph::pad(graph::slice(in[0], axis, 0, 1), axis, 0, node.shape[axis] - 1);
  return scan(in[0], start, axis, false);
}

// dx[0] = g[0], dx[i] = g[i] y[i − 1] for g of grad_scan and the running products y.
Tensor through_factors(const Tensor& g, const Tensor& y, int axis) {
  const int64_t n = y.dim(axis);
  if (n == 1) return g;
  const Tensor rest = mul(graph::slice(g, axis, 1, n), graph::slice(y, axis, 0, n - 1));
  return concat(std::vector<Tensor>{graph::slice(g, axis, 0, 1), rest}, axis);
}

Gradients grad_cumprod(const GradCall& call) {
  const int axis = axis_of(call.node);
  return {through_factors(scan(call.inputs[0], call.dy, axis, true), call.output, axis)};
}

void run_prod(const KernelCall& call) {
  const graph::Operand& x = call.inputs[0];
  const Split s = split(x.shape, axis_of(*call.node));
  kernels::prod_reduce(*call.pool, x.dtype, x.data, s.outer, s.axis, s.inner, call.output.dtype,
                       call.output.data);
}

graph::TypedShape infer_prod(const Node& node) {
  const DType dtype = node.inputs[0]->dtype;
  if (is_quantized(dtype)) shape_error(node, "quantised values have no arithmetic");
  return {is_float(dtype) ? dtype : DType::kI64, without_axis(node)};
}

graph::TypedShape infer_prod_gradient(const Node& node) {
  const Node &x = *node.inputs[0], &dy = *node.inputs[1];
  if (x.dtype != DType::kF32 || dy.dtype != DType::kF32) shape_error(node, "not float32");
  if (!(dy.shape == without_axis(node))) shape_error(node, "shapes do not fit");
  return {x.dtype, x.shape};
}

void run_prod_gradient(const KernelCall& call) {
  const graph::Operand &x = call.inputs[0], &dy = call.inputs[1];
  const Split s = split(x.shape, axis_of(*call.node));
  kernels::product_gradient(*call.pool, x.as<const float>(), dy.as<const float>(), s.outer, s.axis,
                            s.inner, call.output.as<float>());
}

// The gradient of the last running product.
Tensor prod_gradient(const Tensor& x, const Tensor& dy, int axis) {
  const Tensor g = scan(x, graph::pad(dy, axis, x.dim(axis) - 1, 0), axis, true);
  return through_factors(g, cumprod(x, axis), axis);
}
Tensor prod_gradient_meaning(const Node& node, Inputs in) {
  return prod_gradient(in[0], in[1], axis_of(node));
}

Gradients grad_prod(const GradCall& call) {
  const Tensor& x = call.inputs[0];
  if (x.dtype() == DType::kF32) return {record(kProdGradient, {x, call.dy}, call.node.attrs)};
  return {prod_gradient(x, call.dy, axis_of(call.node))};
}

std::vector<OpCase> prod_gradient_cases() {
  std::vector<OpCase> cases;
  for (const auto& [shape, axis] : std::vector<std::pair<Shape, int64_t>>{
           {{5}, 0}, {{1}, 0}, {{3, 7, 5}, 1}, {{19, 70}, 1}, {{4, 9, 300}, 1}}) {
    Shape reduced = shape;
    reduced[static_cast<int>(axis)] = 1;
    cases.push_back({str(to_string(shape), " axis ", axis),
                     {{DType::kF32, shape}, {DType::kF32, reduced}},
                     [axis = axis](Inputs in) {
                       return record(kProdGradient, {in[0], in[1]}, {{"axis", axis}});
                     },
                     0.5,
                     1.5});
  }
  return cases;
}

std::vector<OpCase> scan_cases() {
  std::vector<OpCase> cases;
  for (const auto& [shape, axis] : std::vector<std::pair<Shape, int>>{
           {{7}, 0}, {{0}, 0}, {{3, 5, 4}, 1}, {{2, 600}, -1}, {{19, 70}, -1}, {{4, 300}, 0}}) {
    cases.push_back({str(to_string(shape), " axis ", axis),
                     {{DType::kF32, shape}, {DType::kF32, shape}},
                     [axis = axis](Inputs in) { return linear_scan(in[0], in[1], axis); },
                     -1,
                     1});
  }
  for (int axis : {0, 1}) {
    for (bool reverse : {false, true}) {
      const std::string end = reverse ? " from the end" : "";
      cases.push_back(
          {str("sums along axis ", axis, end), {f32({19, 70})}, [axis, reverse](Inputs in) {
             return scan(constant_like(1, in[0]), in[0], axis, reverse);
           }});
      cases.push_back({str("[19, 70] axis ", axis, end),
                       {f32({19, 70}), f32({19, 70})},
                       [axis, reverse](Inputs in) { return scan(in[0], in[1], axis, reverse); },
                       -1,
                       1});
    }
  }
  cases.push_back({"views", {f32({4, 6}), f32({6})}, [](Inputs in) {
                     return linear_scan(graph::transpose(in[0], 0, 1),
                                        graph::expand(unsqueeze(in[1], -1), Shape{6, 4}), 0);
                   }});
  return cases;
}

std::vector<OpCase> cumprod_cases() {
  std::vector<OpCase> cases;
  for (const auto& [shape, axis] : std::vector<std::pair<Shape, int>>{
           {{1}, 0}, {{7}, 0}, {{3, 5, 4}, 1}, {{19, 70}, 1}, {{4, 300}, 0}}) {
    for (DType dtype : {DType::kF32, DType::kF64}) {
      cases.push_back({str(to_string(shape), " axis ", axis, " ", name(dtype)),
                       {{dtype, shape}},
                       [axis = axis](Inputs in) { return cumprod(in[0], axis); },
                       0.5,
                       1.5});
    }
  }
  return cases;
}

std::vector<OpCase> prod_cases() {
  std::vector<OpCase> cases;
  for (const auto& [shape, axis] : std::vector<std::pair<Shape, int64_t>>{
           {{5}, 0}, {{1}, 0}, {{3, 7, 5}, 1}, {{19, 130}, 1}, {{4, 9, 300}, 1}, {{0, 3}, 1}}) {
    for (DType dtype : {DType::kF32, DType::kF64}) {
      cases.push_back({str(to_string(shape), " axis ", axis, " ", name(dtype)),
                       {{dtype, shape}},
                       [axis = axis](std::span<const Tensor> in) {
                         return record(kProdReduce, {in[0]}, {{"axis", axis}});
                       },
                       0.5,
                       1.5});
    }
  }
  return cases;
}

}  // namespace

const OpDef kLinearScan = {.name = "linear_scan",
                           .infer = infer_scan,
                           .kernel = run_scan,
                           .layout = graph::InputLayout::kAny,
                           .meaning = scan_meaning,
                           .grad = grad_scan,
                           .cases = scan_cases};
const OpDef kCumprod = {.name = "cumprod",
                        .infer = infer_cumprod,
                        .kernel = run_cumprod,
                        .layout = graph::InputLayout::kAny,
                        .meaning = cumprod_meaning,
                        .grad = grad_cumprod,
                        .cases = cumprod_cases};
const OpDef kProdReduce = {.name = "prod_reduce",
                           .kind = graph::OpKind::kReduction,
                           .infer = infer_prod,
                           .kernel = run_prod,
                           // The last of the running products.
                           .meaning = [](const Node& node, Inputs in) -> Tensor {
                             const int axis = axis_of(node);
                             const int64_t n = in[0].dim(axis);
                             return graph::slice(cumprod(in[0], axis), axis, n - 1, n);
                           },
                           .grad = grad_prod,
                           .cases = prod_cases};
const OpDef kProdGradient = {.name = "prod_gradient",
                             .infer = infer_prod_gradient,
                             .kernel = run_prod_gradient,
                             .meaning = prod_gradient_meaning,
                             .cases = prod_gradient_cases};

Tensor linear_scan(const Tensor& a, const Tensor& b, int axis) {
  return scan(a, b, graph::checked_axis(kLinearScan.name, b.shape(), axis), false);
}

namespace {

void refuse_quantized(std::string_view op, const Tensor& x) {
  graph::check_defined(x, op, "x");
  if (!is_quantized(x.dtype())) return;
  fail(ErrorKind::kMalformed, op, " of ", name(x.dtype()), " ", to_string(x.shape()),
       ": quantised values have no arithmetic");
}

// Integers and bool are totalled in int64.
Tensor totalled(std::string_view op, const Tensor& x) {
  refuse_quantized(op, x);
  return is_float(x.dtype()) ? x : graph::contiguous(x, DType::kI64);
}

}  // namespace

Tensor cumsum(const Tensor& x, int axis) {
  const Tensor t = with_axis(totalled("cumsum", x));
  return graph::reshape(linear_scan(constant_like(1, t), t, axis), x.shape());
}

Tensor cumprod(const Tensor& x, int axis) {
  const Tensor t = with_axis(totalled("cumprod", x));
  const int at = graph::checked_axis("cumprod", t.shape(), axis);
  if (t.dim(at) == 0) return t;
  return graph::reshape(record(kCumprod, {t}, {{"axis", int64_t{at}}}), x.shape());
}

Tensor prod(const Tensor& x, int axis, bool keepdim) {
  refuse_quantized("prod", x);
  const Tensor t = with_axis(x);
  const int at = graph::checked_axis("prod", t.shape(), axis);
  const int64_t n = t.dim(at);
  Shape kept = t.shape();
  kept[at] = 1;
  const Tensor y = n == 0 ? full(kept, 1, is_float(t.dtype()) ? t.dtype() : DType::kI64)
                          : record(kProdReduce, {t}, {{"axis", int64_t{at}}});
  return keepdim || x.rank() == 0 ? graph::reshape(y, x.rank() == 0 ? x.shape() : kept)
                                  : squeeze(y, at);
}

}  // namespace lumen::ops
