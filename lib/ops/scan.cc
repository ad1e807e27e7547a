// Running totals: one recurrence, its own gradient run backwards.
#include "lib/base/error.h"
#include "lib/ops/axes.h"
#include "lib/ops/elementwise.h"

namespace lumen::ops {
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

void run_scan(const KernelCall& call) {
  const graph::Operand &a = call.inputs[0], &b = call.inputs[1];
  kernels::linear_scan(*call.pool, typed(a), typed(b), call.output.shape, axis_of(*call.node),
                       call.output.dtype, call.output.data);
}

// Step by step.
Tensor scan_meaning(const Node& node, Inputs in) {
  const int axis = axis_of(node);
  const int64_t n = node.shape[axis];
  if (n == 0) return in[1];
  std::vector<Tensor> steps = {graph::slice(in[1], axis, 0, 1)};
  for (int64_t i = 1; i < n; ++i) {
    steps.push_back(add(mul(graph::slice(in[0], axis, i, i + 1), steps.back()),
                        graph::slice(in[1], axis, i, i + 1)));
  }
  return concat(steps, axis);
}

// x one step later (by < 0: earlier) along an axis, 0 where nothing comes.
Tensor shifted(const Tensor& x, int axis, int64_t by) {
  const int64_t n = x.dim(axis);
  return by > 0 ? graph::pad(graph::slice(x, axis, 0, n - 1), axis, 1, 0)
                : graph::pad(graph::slice(x, axis, 1, n), axis, 0, 1);
}

// g[i] = dy[i] + a[i + 1] g[i + 1], the recurrence from the end; db = g, da[i] = g[i] y[i − 1].
Gradients grad_scan(const GradCall& call) {
  const int axis = axis_of(call.node);
  if (call.node.shape[axis] == 0) return {call.dy, call.dy};
  const Tensor factors = flip(shifted(call.inputs[0], axis, -1), axis);
  const Tensor g = flip(linear_scan(factors, flip(call.dy, axis), axis), axis);
  return {mul(g, shifted(call.output, axis, 1)), g};
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
    cases.push_back({str("sums along axis ", axis), {f32({19, 70})}, [axis](Inputs in) {
                       return linear_scan(constant_like(1, in[0]), in[0], axis);
                     }});
  }
  cases.push_back({"views", {f32({4, 6}), f32({6})}, [](Inputs in) {
                     return linear_scan(graph::transpose(in[0], 0, 1),
                                        graph::expand(unsqueeze(in[1], -1), Shape{6, 4}), 0);
                   }});
  return cases;
}

}  // namespace

extern const OpDef kLinearScan, kProdReduce;
const OpDef kLinearScan = {.name = "linear_scan",
                           .infer = infer_scan,
                           .kernel = run_scan,
                           .layout = graph::InputLayout::kAny,
                           .meaning = scan_meaning,
                           .grad = grad_scan,
                           .cases = scan_cases};

Tensor linear_scan(const Tensor& a, const Tensor& b, int axis) {
  const int at = graph::checked_axis(kLinearScan.name, b.shape(), axis);
  return record(
      kLinearScan, {a, b},
      {{"axis", int64_t{at}}, {"dtype", static_cast<int64_t>(promote(a.dtype(), b.dtype()))}});
}

namespace {

// Integers and bool are totalled in int64.
Tensor totalled(std::string_view op, const Tensor& x) {
  graph::check_defined(x, op, "x");
  if (is_quantized(x.dtype())) {
    fail(ErrorKind::kMalformed, op, " of ", name(x.dtype()), " ", to_string(x.shape()),
         ": quantised values have no arithmetic");
  }
  return is_float(x.dtype()) ? x : graph::contiguous(x, DType::kI64);
}

}  // namespace

Tensor cumsum(const Tensor& x, int axis) {
  const Tensor t = with_axis(totalled("cumsum", x));
  return graph::reshape(linear_scan(constant_like(1, t), t, axis), x.shape());
}

// The first element starts; then every element is a factor.
Tensor cumprod(const Tensor& x, int axis) {
  const Tensor t = with_axis(totalled("cumprod", x));
  const int at = graph::checked_axis("cumprod", t.shape(), axis);
  const int64_t n = t.dim(at);
  if (n == 0) return t;
  const Tensor start = graph::pad(graph::slice(t, at, 0, 1), at, 0, n - 1);
  return graph::reshape(linear_scan(t, start, at), x.shape());
}

Tensor prod(const Tensor& x, int axis, bool keepdim) {
  const Tensor t = with_axis(totalled("prod", x));
  const int at = graph::checked_axis("prod", t.shape(), axis);
  const int64_t n = t.dim(at);
  Shape kept = t.shape();
  kept[at] = 1;
  const Tensor y =
      n == 0 ? full(kept, 1, t.dtype()) : record(kProdReduce, {t}, {{"axis", int64_t{at}}});
  return keepdim || x.rank() == 0 ? graph::reshape(y, x.rank() == 0 ? x.shape() : kept)
                                  : squeeze(y, at);
}

}  // namespace lumen::ops
