// Reductions along one axis: the primitives SumReduce and MaxReduce, and what is made of them.
#include "lib/kernels/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/ops/cases.h"
#include "lib/ops/ops.h"

namespace lumen::ops {
namespace {

using graph::KernelCall;
using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::record;

graph::TypedShape infer_reduce(const Node& node) {
  const Node& x = *node.inputs[0];
  if (x.dtype != DType::kF32) shape_error(node, "only float32 is reduced");
  Shape shape = x.shape;
  shape[static_cast<int>(node.attrs.integer("axis"))] = 1;
  return {DType::kF32, shape};
}

struct Split {
  int64_t outer = 1, axis = 1, inner = 1;
};
Split split(const Shape& shape, int64_t axis) {
  Split s;
  for (int i = 0; i < shape.rank(); ++i) {
    (i < axis ? s.outer : i == axis ? s.axis : s.inner) *= shape[i];
  }
  return s;
}

void run_sum(const KernelCall& call) {
  const Split s = split(call.inputs[0].shape, call.node->attrs.integer("axis"));
  kernels::sum_reduce(*call.pool, call.inputs[0].as<const float>(), s.outer, s.axis, s.inner,
                      call.output.as<float>());
}

void run_max(const KernelCall& call) {
  const Split s = split(call.inputs[0].shape, call.node->attrs.integer("axis"));
  kernels::max_reduce(*call.pool, call.inputs[0].as<const float>(), s.outer, s.axis, s.inner,
                      call.output.as<float>());
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
  return cases;
}

Tensor reduce(const OpDef& op, const Tensor& x, int axis) {
  return record(op, {x}, {{"axis", int64_t{graph::checked_axis(op.name, x.shape(), axis)}}});
}

}  // namespace

extern const OpDef kSumReduce, kMaxReduce;

namespace {

std::vector<Tensor> grad_sum(const graph::GradCall& call) {
  return {graph::expand(call.dy, call.inputs[0].shape())};
}

// Shared equally by all elements that reach the maximum, as torch.amax does.
std::vector<Tensor> grad_max(const graph::GradCall& call) {
  const auto axis = static_cast<int>(call.node.attrs.integer("axis"));
  const Tensor chosen = equal(call.inputs[0], call.output);
  return {mul(chosen, div(call.dy, sum(chosen, axis)))};
}

}  // namespace

const OpDef kSumReduce = {.name = "sum_reduce",
                          .kind = graph::OpKind::kReduction,
                          .infer = infer_reduce,
                          .kernel = run_sum,
                          .grad = grad_sum,
                          .combine = [](double a, double x) { return a + x; },
                          .identity = 0,
                          .cases = [] { return cases_of(kSumReduce); }};
const OpDef kMaxReduce = {
    .name = "max_reduce",
    .kind = graph::OpKind::kReduction,
    .infer = infer_reduce,
    .kernel = run_max,
    .grad = grad_max,
    .combine = [](double a, double x) { return std::isnan(a) || x <= a ? a : x; },
    .identity = -std::numeric_limits<double>::infinity(),
    .cases = [] { return cases_of(kMaxReduce); }};

Tensor sum(const Tensor& x, int axis) {
  return reduce(kSumReduce, x, axis);
}
Tensor max(const Tensor& x, int axis) {
  return reduce(kMaxReduce, x, axis);
}
Tensor mean(const Tensor& x, int axis) {
  return mul(sum(x, axis), graph::scalar(1.0f / static_cast<float>(x.dim(axis))));
}

}  // namespace lumen::ops
