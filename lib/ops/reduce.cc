// Sums and extremes: the primitives SumReduce and MaxReduce, and what is made of them.
#include "lib/kernels/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/base/error.h"
#include "lib/ops/axes.h"
#include "lib/ops/elementwise.h"

namespace lumen::ops {

extern const graph::OpDef kSumReduce, kSquareSumReduce, kMaxReduce, kMinReduce;

namespace {

using graph::KernelCall;
using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::record;

// float32 and float64 in their own precision, floats of 16 bits as float32.
Shape reduced(const Node& node) {
  const Node& x = *node.inputs[0];
  if (is_narrow(x.dtype) || is_quantized(x.dtype)) {
    shape_error(node, "only float32, float64 and integers are reduced");
  }
  return without_axis(node);
}

// Extremes of floats of 16 bits are float32.
graph::TypedShape infer_max(const Node& node) {
  const DType dtype = node.inputs[0]->dtype;
  if (is_narrow(dtype)) return {DType::kF32, without_axis(node)};
  return {dtype, reduced(node)};
}

// Integers are added up in int64, floats of 16 bits in float32.
graph::TypedShape infer_sum(const Node& node) {
  const DType dtype = node.inputs[0]->dtype;
  if (is_narrow(dtype)) return {DType::kF32, without_axis(node)};
  return {is_float(dtype) ? dtype : DType::kI64, reduced(node)};
}

// Of what store_bf16 stores columns only.
graph::Bf16Input sum_bf16_input(const Node& node, size_t) {
  const bool has_columns = split(node.inputs[0]->shape, axis_of(node)).inner > 1;
  return has_columns ? graph::Bf16Input::kSummed : graph::Bf16Input::kNo;
}

void run_sum(const KernelCall& call) {
  const graph::Operand& x = call.inputs[0];
  const Split s = split(x.shape, axis_of(*call.node));
  if (is_narrow(x.dtype)) {
    return kernels::sum_reduce_half(*call.pool, x.dtype, x.as<const uint16_t>(), s.outer, s.axis,
                                    s.inner, call.output.as<float>());
  }
  if (x.dtype != DType::kF32) {
    kernels::sum_typed(*call.pool, x.dtype, x.data, s.outer, s.axis, s.inner, call.output.dtype,
                       call.output.data);
    return;
  }
  kernels::sum_reduce(*call.pool, x.as<const float>(), s.outer, s.axis, s.inner,
                      call.output.as<float>());
}

graph::TypedShape infer_square_sum(const Node& node) {
  if (!is_float(node.inputs[0]->dtype)) shape_error(node, "not a float");
  return infer_sum(node);
}

void run_square_sum(const KernelCall& call) {
  const graph::Operand& x = call.inputs[0];
  const Split s = split(x.shape, axis_of(*call.node));
  if (is_narrow(x.dtype)) {
    kernels::square_sum_reduce_half(*call.pool, x.dtype, x.as<const uint16_t>(), s.outer, s.axis,
                                    s.inner, call.output.as<float>());
  } else if (x.dtype == DType::kF64) {
    kernels::square_sum_reduce_f64(*call.pool, x.as<const double>(), s.outer, s.axis, s.inner,
                                   call.output.as<double>());
  } else {
    kernels::square_sum_reduce(*call.pool, x.as<const float>(), s.outer, s.axis, s.inner,
                               call.output.as<float>());
  }
}

Tensor square_sum_meaning(const Node& node, Inputs in) {
  const Tensor x = is_narrow(in[0].dtype()) ? graph::contiguous(in[0], DType::kF32) : in[0];
  return record(kSumReduce, {mul(x, x)}, node.attrs);
}

template <auto kOfFloats, auto kOfHalves, auto kOfOthers>
void run_extreme(const KernelCall& call) {
  const graph::Operand& x = call.inputs[0];
  const Split s = split(x.shape, axis_of(*call.node));
  if (is_narrow(x.dtype)) {
    kOfHalves(*call.pool, x.dtype, x.as<const uint16_t>(), s.outer, s.axis, s.inner,
              call.output.as<float>());
    return;
  }
  if (x.dtype != DType::kF32) {
    kOfOthers(*call.pool, x.dtype, x.data, s.outer, s.axis, s.inner, call.output.data);
    return;
  }
  kOfFloats(*call.pool, x.as<const float>(), s.outer, s.axis, s.inner, call.output.as<float>());
}

std::vector<OpCase> cases_of(const OpDef& op) {
  std::vector<OpCase> cases;
  const std::vector<std::pair<Shape, int64_t>> shapes = {
      {{5}, 0},       {{0}, 0},       {{3, 0, 2}, 0}, {{3, 7, 5}, 0},
      {{3, 7, 5}, 1}, {{3, 7, 5}, 2}, {{2, 1000}, 1}, {{1000, 3}, 0}};
  for (const auto& [shape, axis] : shapes) {
    cases.push_back({str(to_string(shape), " axis ", axis),
                     {{DType::kF32, shape}},
                     [&op, axis = axis](std::span<const Tensor> in) {
                       return record(op, {in[0]}, {{"axis", axis}});
                     }});
  }
  cases.push_back({"transposed", {f32({4, 6})}, [&op](std::span<const Tensor> in) {
                     return record(op, {graph::permute(in[0], {1, 0})}, {{"axis", int64_t{1}}});
                   }});
  cases.push_back({"f64", {{DType::kF64, Shape{3, 7, 300}}}, [&op](std::span<const Tensor> in) {
                     return record(op, {in[0]}, {{"axis", int64_t{1}}});
                   }});
  for (DType dtype : {DType::kF16, DType::kBF16}) {
    for (const int64_t axis : {1, 2}) {
      cases.push_back({str(name(dtype), " axis ", axis),
                       {{dtype, Shape{3, 7, 300}}},
                       [&op, axis](std::span<const Tensor> in) {
                         return record(op, {in[0]}, {{"axis", axis}});
                       }});
    }
  }
  for (const Shape& shape : {Shape{70, 2}, Shape{70, 3}, Shape{70, 4}}) {  // short rows
    cases.push_back({to_string(shape), {{DType::kF32, shape}}, [&op](std::span<const Tensor> in) {
                       return record(op, {in[0]}, {{"axis", int64_t{1}}});
                     }});
  }
  return cases;
}

Tensor reduce(const OpDef& op, const Tensor& x, int axis) {
  graph::Attrs attrs = {{"axis", int64_t{graph::checked_axis(op.name, x.shape(), axis)}}};
  if (!is_narrow(x.dtype())) return record(op, {x}, std::move(attrs));
  return graph::contiguous(record(op, {x}, std::move(attrs)), x.dtype());
}

}  // namespace

namespace {

std::vector<Tensor> grad_sum(const graph::GradCall& call) {
  const Tensor& x = call.inputs[0];
  const Tensor dy = is_narrow(x.dtype()) ? graph::contiguous(call.dy, x.dtype()) : call.dy;
  return {graph::expand(dy, x.shape())};
}

// Shared equally by all elements that reach the extreme, as torch.amax does.
std::vector<Tensor> grad_extreme(const graph::GradCall& call) {
  const int axis = axis_of(call.node);
  const Tensor& x = call.inputs[0];
  const Tensor wide = is_narrow(x.dtype()) ? graph::contiguous(x, DType::kF32) : x;
  const Tensor chosen = equal(wide, call.output);
  const Tensor dx = mul(chosen, div(call.dy, sum(chosen, axis)));
  return {is_narrow(x.dtype()) ? graph::contiguous(dx, x.dtype()) : dx};
}

}  // namespace

const OpDef kSumReduce = {.name = "sum_reduce",
                          .kind = graph::OpKind::kReduction,
                          .infer = infer_sum,
                          .kernel = run_sum,
                          .grad = grad_sum,
                          .bf16_input = sum_bf16_input,
                          .combine = [](double a, double x) { return a + x; },
                          .identity = 0,
                          .cases = [] { return cases_of(kSumReduce); }};
const OpDef kSquareSumReduce = {.name = "square_sum_reduce",
                                .kind = graph::OpKind::kReduction,
                                .infer = infer_square_sum,
                                .kernel = run_square_sum,
                                .meaning = square_sum_meaning,
                                .cases = [] { return cases_of(kSquareSumReduce); }};
const OpDef kMaxReduce = {
    .name = "max_reduce",
    .kind = graph::OpKind::kReduction,
    .infer = infer_max,
    .kernel = run_extreme<kernels::max_reduce, kernels::max_reduce_half, kernels::max_typed>,
    .grad = grad_extreme,
    .combine = [](double a, double x) { return std::isnan(a) || x <= a ? a : x; },
    .identity = -std::numeric_limits<double>::infinity(),
    .cases = [] { return cases_of(kMaxReduce); }};
const OpDef kMinReduce = {
    .name = "min_reduce",
    .kind = graph::OpKind::kReduction,
    .infer = infer_max,
    .kernel = run_extreme<kernels::min_reduce, kernels::min_reduce_half, kernels::min_typed>,
    .meaning = [](const Node& node, Inputs in) -> Tensor {
      return reversed(record(kMaxReduce, {reversed(in[0])}, node.attrs));
    },
    .grad = grad_extreme,
    .cases = [] { return cases_of(kMinReduce); }};
Tensor sum(const Tensor& x, int axis) {
  return reduce(kSumReduce, x, axis);
}
Tensor mean(const Tensor& x, int axis) {
  return mean(x, Axes(axis), true);
}

Tensor sum_of_squares(const Tensor& x, const Axes& axes, bool keepdim) {
  const std::vector<bool> gone = chosen_axes("sum_of_squares", x.shape(), axes);
  // The squares over the last axes that are neighbours, then sums over the others.
  int end = x.rank();
  while (end > 0 && !gone[static_cast<size_t>(end) - 1]) --end;
  int begin = end;
  while (begin > 0 && gone[static_cast<size_t>(begin) - 1]) --begin;
  int64_t extents[3] = {1, 1, 1};
  Shape left = x.shape();
  std::vector<int> others;
  for (int i = 0; i < x.rank(); ++i) {
    extents[i < begin ? 0 : i < end ? 1 : 2] *= x.dim(i);
    if (i >= begin && i < end) left[i] = 1;
    if (i < begin && gone[static_cast<size_t>(i)]) others.push_back(i);
  }
  const Tensor joined = graph::reshape(before_widening(x), {extents[0], extents[1], extents[2]});
  const Tensor y = graph::reshape(record(kSquareSumReduce, {joined}, {{"axis", int64_t{1}}}), left);
  return graph::reshape(others.empty() ? y : sum(y, others, true),
                        kept_shape(x.shape(), gone, keepdim));
}

std::vector<bool> chosen_axes(std::string_view op, const Shape& shape, const Axes& axes) {
  std::vector<bool> gone(static_cast<size_t>(shape.rank()), axes.all);
  for (int axis : axes.list) {
    const auto at = static_cast<size_t>(graph::checked_axis(op, shape, axis));
    if (gone[at]) fail(ErrorKind::kMalformed, op, ": axis ", axis, " is named twice");
    gone[at] = true;
  }
  return gone;
}

Shape kept_shape(const Shape& shape, const std::vector<bool>& gone, bool keepdim) {
  Shape kept;
  for (int i = 0; i < shape.rank(); ++i) {
    const bool reduced = gone[static_cast<size_t>(i)];
    if (!reduced || keepdim) kept.push_back(reduced ? 1 : shape[i]);
  }
  return kept;
}

Tensor over_axes(std::string_view op, const Tensor& x, const Axes& axes, bool keepdim,
                 Tensor (*one)(const Tensor&, int axis)) {
  graph::check_defined(x, op, "x");
  const std::vector<bool> gone = chosen_axes(op, x.shape(), axes);
  // Neighbours that are all kept or all reduced become one axis.
  Shape joined;
  std::vector<int> reduced;
  for (int i = 0; i < x.rank(); ++i) {
    const bool is_reduced = gone[static_cast<size_t>(i)];
    if (i > 0 && is_reduced == gone[static_cast<size_t>(i) - 1]) {
      joined[-1] *= x.dim(i);
      continue;
    }
    if (is_reduced) reduced.push_back(joined.rank());
    joined.push_back(x.dim(i));
  }
  if (reduced.empty()) {  // a scalar, or no axis: the one element by itself
    reduced.push_back(joined.rank());
    joined.push_back(1);
  }
  Tensor y = graph::reshape(x, joined);
  for (auto axis = reduced.rbegin(); axis != reduced.rend(); ++axis) y = one(y, *axis);
  return graph::reshape(y, kept_shape(x.shape(), gone, keepdim));
}

Tensor sum(const Tensor& x, const Axes& axes, bool keepdim) {
  return over_axes("sum", x, axes, keepdim, [](const Tensor& t, int axis) { return sum(t, axis); });
}

Tensor mean(const Tensor& x, const Axes& axes, bool keepdim) {
  if (!is_float(x.dtype())) return mean(graph::contiguous(x, DType::kF32), axes, keepdim);
  // Rounded once, at the end.
  const Tensor total = over_axes("mean", x, axes, keepdim, [](const Tensor& t, int axis) {
    return record(kSumReduce, {t}, {{"axis", int64_t{axis}}});
  });
  const auto count = static_cast<double>(x.shape().elements()) /
                     std::max(1.0, static_cast<double>(total.shape().elements()));
  if (x.dtype() == DType::kF64) return div(total, count);
  const Tensor y = mul(total, 1.0f / static_cast<float>(count));
  return is_narrow(x.dtype()) ? graph::contiguous(y, x.dtype()) : y;
}

namespace {

void require_elements(std::string_view op, const Tensor& x, const Axes& axes) {
  const std::vector<bool> gone = chosen_axes(op, x.shape(), axes);
  for (int i = 0; i < x.rank(); ++i) {
    if (gone[static_cast<size_t>(i)] && x.dim(i) == 0) {
      fail(ErrorKind::kMalformed, op, " of ", to_string(x.shape()), ": no elements along axis ", i);
    }
  }
}

}  // namespace

Tensor reversed(const Tensor& x) {
  if (is_float(x.dtype())) return neg(x);
  return x.dtype() == DType::kBool ? logical_not(x) : sub(x.dtype() == DType::kU8 ? 255 : -1, x);
}

Tensor max(const Tensor& x, int axis) {
  require_elements("max", x, axis);
  return reduce(kMaxReduce, x, axis);
}

namespace {

Tensor extreme(const OpDef& op, std::string_view name, const Tensor& x, const Axes& axes,
               bool keepdim) {
  require_elements(name, x, axes);
  const std::vector<bool> gone = chosen_axes(name, x.shape(), axes);
  // The reduced axes as one, across all of which equal ones share the gradient: neighbours where
  // they are, others last.
  std::vector<int64_t> order;
  int64_t outer = 1, count = 1, inner = 1;
  bool are_neighbours = true;
  for (int i = 0; i < x.rank(); ++i) {
    const bool is_gone = gone[static_cast<size_t>(i)];
    const bool begun = std::find(gone.begin(), gone.begin() + i, true) != gone.begin() + i;
    are_neighbours &= !is_gone || !begun || gone[static_cast<size_t>(i) - 1];
    (is_gone ? count : begun ? inner : outer) *= x.dim(i);
    if (!is_gone) order.push_back(i);
  }
  for (int i = 0; i < x.rank(); ++i) {
    if (gone[static_cast<size_t>(i)]) order.push_back(i);
  }
  const Tensor y =
      are_neighbours
          ? reduce(op, graph::reshape(x, {outer, count, inner}), 1)
          : reduce(op, graph::reshape(graph::permute(x, order), {outer * inner, count}), 1);
  return graph::reshape(y, kept_shape(x.shape(), gone, keepdim));
}

// What `step` makes of x ≠ 0 over all axes: bool, of uint8 uint8, as in PyTorch.
template <class Step>
Tensor truth_of(const char* op, const Tensor& x, const Axes& axes, bool keepdim, const Step& step) {
  const Tensor y = over_axes(op, to_bool(x), axes, keepdim, step);
  return x.dtype() == DType::kU8 ? graph::contiguous(y, DType::kU8) : y;
}

}  // namespace

Tensor amax(const Tensor& x, const Axes& axes, bool keepdim) {
  return extreme(kMaxReduce, "amax", x, axes, keepdim);
}
Tensor amin(const Tensor& x, const Axes& axes, bool keepdim) {
  return extreme(kMinReduce, "amin", x, axes, keepdim);
}

Tensor any(const Tensor& x, const Axes& axes, bool keepdim) {
  return truth_of("any", x, axes, keepdim,
                  [](const Tensor& t, int axis) { return reduce(kMaxReduce, t, axis); });
}
Tensor all(const Tensor& x, const Axes& axes, bool keepdim) {
  return truth_of("all", x, axes, keepdim,
                  [](const Tensor& t, int axis) { return reduce(kMinReduce, t, axis); });
}

}  // namespace lumen::ops
