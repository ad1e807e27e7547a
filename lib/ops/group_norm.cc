// Normalisation over groups of channels.
#include "lib/kernels/group_norm.h"

#include "lib/base/error.h"
#include "lib/ops/cases.h"
#include "lib/ops/elementwise.h"
#include "lib/ops/ops.h"

namespace lumen::ops {

extern const graph::OpDef kGroupNorm, kGroupNormBackward;

namespace {

using graph::KernelCall;
using graph::Node;
using graph::OpCase;
using graph::record;
using graph::reshape;

// x [batch, channels, pixels].
kernels::GroupShape group_shape(const Node& node) {
  const Shape& x = node.inputs[0]->shape;
  const int64_t groups = node.attrs.integer("groups");
  return {x[0], groups, x[1] / groups, x[2], node.inputs[0]->dtype};
}

float eps_of(const Node& node) {
  return static_cast<float>(node.attrs.real("eps"));
}

// x and, in the backward, dy; then weights [channels], all of the type of x.
void require_groups(const Node& node, size_t weights) {
  const Node& x = *node.inputs[0];
  if (!is_float32_or_narrower(x.dtype) || x.shape.rank() != 3 ||
      x.shape[1] % node.attrs.integer("groups") != 0) {
    shape_error(node,
                "x must be float32 or narrower floats [batch, channels, pixels] of whole groups");
  }
  for (size_t i = weights; i < node.inputs.size(); ++i) {
    const Node& w = *node.inputs[i];
    if (w.dtype != x.dtype || !(w.shape == Shape{x.shape[1]})) {
      shape_error(node, "weights must be [channels], of the type of x");
    }
  }
}

// --- group_norm: x, weight and bias or not -----------------------------------------------------

graph::TypedShape infer_group_norm(const Node& node) {
  require_groups(node, 1);
  return {node.inputs[0]->dtype, node.inputs[0]->shape};
}

void run_group_norm(const KernelCall& call) {
  auto input = [&](size_t i) { return i < call.inputs.size() ? call.inputs[i].data : nullptr; };
  kernels::group_norm(*call.pool, group_shape(*call.node), input(0), input(1), input(2),
                      eps_of(*call.node), call.output.data);
}

// x̂ and 1 / √(var + eps), [batch, groups, numbers of a group] and [batch, groups, 1].
struct Normal {
  Tensor x, scale;
};
Normal normal_of(const Node& node, const Tensor& x) {
  const kernels::GroupShape s = group_shape(node);
  const Tensor grouped = reshape(x, {s.batch, s.groups, s.channels * s.pixels});
  const Tensor centered = sub(grouped, mean(grouped, -1));
  const Tensor var = mean(mul(centered, centered), -1);
  const Tensor scale = rsqrt(add(var, graph::scalar(eps_of(node))));
  return {mul(centered, scale), scale};
}

// [channels] beside [batch, channels, pixels].
Tensor per_channel(const Tensor& w) {
  return reshape(w, {w.dim(0), 1});
}

Tensor group_norm_meaning(const Node& node, Inputs in) {
  const Tensor y = reshape(normal_of(node, in[0]).x, in[0].shape());
  return in.size() > 1 ? add(mul(y, per_channel(in[1])), per_channel(in[2])) : y;
}

std::vector<Tensor> grad_group_norm(const graph::GradCall& call) {
  std::vector<Tensor> inputs = {call.inputs[0], as_stored(call.dy, call.inputs[0].dtype())};
  const bool affine = call.inputs.size() > 1;
  if (affine) inputs.push_back(call.inputs[1]);
  const Shape &x = call.inputs[0].shape(), channels = {x[1]};
  const auto parts =
      graph::unpack(record(kGroupNormBackward, inputs, call.node.attrs), {x, channels, channels});
  if (!affine) return {parts[0]};
  return {parts[0], parts[1], parts[2]};
}

// --- group_norm_backward: x, dy, weight or not → [dx | dw | db] ----------------------------------

graph::TypedShape infer_group_norm_backward(const Node& node) {
  require_groups(node, 2);
  const Node &x = *node.inputs[0], &dy = *node.inputs[1];
  if (!takes_gradient(x.dtype, dy.dtype) || !(dy.shape == x.shape)) {
    shape_error(node, "dy must be as x");
  }
  return {DType::kF32, {x.shape.elements() + 2 * x.shape[1]}};
}

void run_group_norm_backward(const KernelCall& call) {
  const graph::Operand &x = call.inputs[0], &dy = call.inputs[1];
  float* const dx = call.output.as<float>();
  float* const dw = dx + x.shape.elements();
  kernels::group_norm_backward(*call.pool, group_shape(*call.node), x.data,
                               call.inputs.size() > 2 ? call.inputs[2].data : nullptr, dy.data,
                               dy.dtype, eps_of(*call.node), dx, dw, dw + x.shape[1],
                               call.workspace);
}

size_t backward_workspace(const Node& node, int) {
  return kernels::group_norm_workspace_bytes(group_shape(node));
}

Tensor group_norm_backward_meaning(const Node& node, Inputs in) {
  const Tensor& dy = in[1];
  const Normal normal = normal_of(node, in[0]);
  const Tensor g = reshape(in.size() > 2 ? mul(dy, per_channel(in[2])) : dy, normal.x.shape());
  const Tensor pull = mul(normal.x, mean(mul(g, normal.x), -1));
  const Tensor dx = mul(normal.scale, sub(sub(g, mean(g, -1)), pull));
  auto total = [](const Tensor& t) { return sum(t, {0, 2}, false); };
  const Tensor parts[] = {flatten(dx), total(mul(dy, reshape(normal.x, dy.shape()))), total(dy)};
  return concat(parts, 0);
}

// Cases of an operation with `tensors` inputs like x, plain and with `weights`.
std::vector<OpCase> group_cases(const graph::OpDef& op, size_t tensors, size_t weights,
                                double tolerance) {
  std::vector<OpCase> cases;
  const std::vector<std::pair<Shape, int64_t>> shapes = {{{3, 4, 5}, 2},    {{2, 6, 1}, 3},
                                                         {{1, 8, 64}, 1},   {{2, 3, 33}, 3},
                                                         {{1, 2, 5000}, 1}, {{0, 4, 3}, 2}};
  auto add_case = [&](const Shape& x, int64_t groups, size_t count, DType dtype) {
    const graph::Attrs attrs = {{"eps", 1e-2}, {"groups", groups}};
    std::vector<graph::TypedShape> inputs(tensors, {dtype, x});
    inputs.insert(inputs.end(), count, {dtype, {x[1]}});
    cases.push_back(
        {str(name(dtype), " ", to_string(x), " in ", groups, count > 0 ? " affine" : ""),
         std::move(inputs), [&op, attrs](Inputs in) { return record(op, in, attrs); }, -2, 2,
         dtype == DType::kF32 ? tolerance : kNarrowTolerance});
  };
  for (const auto& [x, groups] : shapes) {
    for (size_t count : {size_t{0}, weights}) add_case(x, groups, count, DType::kF32);
  }
  for (DType narrow : {DType::kF16, DType::kBF16}) add_case({2, 6, 35}, 3, weights, narrow);
  return cases;
}

}  // namespace

const graph::OpDef kGroupNorm = {.name = "group_norm",
                                 .infer = infer_group_norm,
                                 .kernel = run_group_norm,
                                 .meaning = rounded_meaning<group_norm_meaning>,
                                 .grad = grad_group_norm,
                                 .autocast = graph::Autocast::kFull,
                                 .cases = [] { return group_cases(kGroupNorm, 1, 2, 2e-5); }};
const graph::OpDef kGroupNormBackward = {
    .name = "group_norm_backward",
    .infer = infer_group_norm_backward,
    .kernel = run_group_norm_backward,
    .workspace = backward_workspace,
    .meaning = widened_meaning<group_norm_backward_meaning>,
    .autocast = graph::Autocast::kFull,
    .cases = [] { return group_cases(kGroupNormBackward, 2, 1, 5e-5); }};

namespace {

// Of a channel.
constexpr int64_t kFewPixels = 16;

// Of x and weights of one type.
Tensor norm_of_groups(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias,
                      double eps) {
  int64_t pixels = 1;
  for (int i = 2; i < x.rank(); ++i) pixels *= x.dim(i);
  // The kernel takes one channel at a time, which are short where there are few pixels.
  const bool is_short = pixels > 0 && pixels <= kFewPixels;
  if (x.dtype() != DType::kF64 && !is_short) {
    std::vector<Tensor> inputs = {reshape(x, {x.dim(0), x.dim(1), pixels})};
    if (weight.defined()) inputs.insert(inputs.end(), {weight, bias});
    return reshape(record(kGroupNorm, inputs, {{"eps", eps}, {"groups", groups}}), x.shape());
  }
  if (is_narrow(x.dtype())) {
    auto wide = [](const Tensor& t) {
      return t.defined() ? graph::contiguous(t, DType::kF32) : Tensor();
    };
    return graph::contiguous(norm_of_groups(wide(x), groups, wide(weight), wide(bias), eps),
                             x.dtype());
  }
  const int64_t numbers = x.dim(1) * pixels;
  const Tensor grouped = reshape(x, {x.dim(0), groups, numbers / groups});
  Tensor y = reshape(layer_norm(grouped, {}, {}, eps), {x.dim(0), numbers});
  // A weight for each number.
  auto spread = [&](const Tensor& w) {
    return reshape(graph::contiguous(expand(per_channel(w), {x.dim(1), pixels})), {numbers});
  };
  if (weight.defined()) y = add(mul(y, spread(weight)), spread(bias));
  return reshape(y, x.shape());
}

}  // namespace

Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias,
                  double eps) {
  graph::check_defined(x, kGroupNorm.name, "x");
  if (x.rank() < 2) {
    fail(ErrorKind::kMalformed, "group_norm of ", to_string(x.shape()),
         ": needs [batch, channels, …]");
  }
  if (groups < 1 || x.dim(1) % groups != 0) {
    fail(ErrorKind::kMalformed, "group_norm of ", to_string(x.shape()), ": ", x.dim(1),
         " channels are not ", groups, " equal groups");
  }
  require_channel_weights(kGroupNorm.name, x, weight, bias);
  const DType common = float_type_of(kGroupNorm.name, {x, weight, bias});
  const Tensor y = norm_of_groups(in_type(x, common), groups, in_type(weight, common),
                                  in_type(bias, common), eps);
  return is_narrow(x.dtype()) && common != DType::kF64 ? in_type(y, x.dtype()) : y;
}

}  // namespace lumen::ops
