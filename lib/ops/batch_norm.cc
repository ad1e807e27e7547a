// Normalisation per channel.
#include "lib/kernels/batch_norm.h"

#include "lib/base/error.h"
#include "lib/ops/cases.h"
#include "lib/ops/elementwise.h"
#include "lib/ops/ops.h"

namespace lumen::ops {

extern const graph::OpDef kBatchNorm, kBatchNormStatistics, kBatchNormNarrow, kBatchNormRunning,
    kBatchNormBackward;

namespace {

using graph::KernelCall;
using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::record;
using graph::reshape;

kernels::ChannelShape channel_shape(const graph::Operand& x) {
  return {x.shape[0], x.shape[1], x.shape[2], x.dtype};
}

// x [batch, channels, pixels], and the other inputs float32 [channels].
void require_channels(const Node& node, bool fits, size_t first, size_t last) {
  const Node& x = *node.inputs[0];
  if (!fits || x.shape.rank() != 3) {
    shape_error(node, "x must be [batch, channels, pixels] of floats that it takes");
  }
  for (size_t i = first; i < last; ++i) {
    const Node& w = *node.inputs[i];
    if (w.dtype != DType::kF32 || !(w.shape == Shape{x.shape[1]})) {
      shape_error(node, "weights and statistics must be float32 [channels]");
    }
  }
}

// [channels] beside [batch, channels, pixels].
Tensor column(const Tensor& x) {
  return reshape(x, {x.dim(0), 1});
}
Tensor channel_sum(const Tensor& x) {
  return reshape(sum(sum(x, 2), 0), {x.dim(1)});
}
Tensor number(double value) {
  return graph::scalar(static_cast<float>(value));
}

// Attr "relu", which is there and 1 only then: y = max(0, …), as passes/fuse_relu.cc makes it.
bool has_relu(const Node& node) {
  return node.attrs.has(graph::kReluAttr);
}

kernels::BatchNormScale scale_of(const KernelCall& call, size_t weight) {
  auto input = [&](size_t i) {
    return i < call.inputs.size() ? call.inputs[i].as<const float>() : nullptr;
  };
  return {.w = input(weight),
          .b = input(weight + 1),
          .eps = static_cast<float>(call.node->attrs.real("eps")),
          .relu = has_relu(*call.node)};
}

// --- batch_norm: x, weight and bias or not → [y | mean | var] ----------------------------------

graph::TypedShape infer_batch_norm(const Node& node) {
  require_channels(node, node.inputs[0]->dtype == DType::kF32, 1, node.inputs.size());
  const Shape& x = node.inputs[0]->shape;
  return {DType::kF32, {x.elements() + 2 * x[1]}};
}

void run_batch_norm(const KernelCall& call) {
  const graph::Operand& x = call.inputs[0];
  float* y = call.output.as<float>();
  float* mean = y + x.shape.elements();
  kernels::batch_norm(*call.pool, channel_shape(x), x.data, scale_of(call, 1), y, mean,
                      mean + x.shape[1]);
}

// Mean and variance of every channel.
struct Statistics {
  Tensor mean, var;
};
Statistics statistics(const Tensor& x) {
  const Tensor share = number(1.0 / static_cast<double>(x.dim(0) * x.dim(2)));
  const Tensor mean = mul(channel_sum(x), share);
  const Tensor centered = sub(x, column(mean));
  return {mean, mul(channel_sum(mul(centered, centered)), share)};
}

Tensor batch_norm_meaning(const Node& node, Inputs in) {
  const auto [mean, var] = statistics(in[0]);
  const Tensor scale = rsqrt(add(var, number(node.attrs.real("eps"))));
  Tensor y = mul(sub(in[0], column(mean)), column(scale));
  if (in.size() > 1) y = add(mul(y, column(in[1])), column(in[2]));
  if (has_relu(node)) y = relu(y);
  const Tensor parts[] = {flatten(y), mean, var};
  return concat(parts, 0);
}

std::vector<Tensor> grad_batch_norm(const graph::GradCall& call) {
  const Shape &x = call.inputs[0].shape(), channels = {x[1]};
  const auto forward = graph::unpack(call.output, {x, channels, channels});
  const auto d = graph::unpack(call.dy, {x, channels, channels});
  std::vector<Tensor> inputs = {call.inputs[0], forward[1], forward[2], d[0], d[1], d[2]};
  const bool affine = call.inputs.size() > 1;
  if (affine) inputs.push_back(call.inputs[1]);
  if (affine && has_relu(call.node)) inputs.push_back(call.inputs[2]);
  const Tensor all = record(kBatchNormBackward, inputs, call.node.attrs);
  const auto parts = graph::unpack(all, {x, channels, channels});
  if (!affine) return {parts[0]};
  return {parts[0], parts[1], parts[2]};
}

// --- batch_norm_statistics: x → [mean | var]; batch_norm_narrow: x of narrow floats, its mean and
// --- var, weight and bias or not → y of the type of x. Both together are batch_norm of such an x.

graph::TypedShape infer_statistics(const Node& node) {
  require_channels(node, is_float32_or_narrower(node.inputs[0]->dtype), 1, 1);
  return {DType::kF32, {2 * node.inputs[0]->shape[1]}};
}

void run_statistics(const KernelCall& call) {
  const graph::Operand& x = call.inputs[0];
  float* mean = call.output.as<float>();
  kernels::batch_norm_statistics(*call.pool, channel_shape(x), x.data, mean, mean + x.shape[1]);
}

Tensor statistics_meaning(const Node&, Inputs in) {
  const auto [mean, var] = statistics(in[0]);
  const Tensor parts[] = {mean, var};
  return concat(parts, 0);
}

graph::TypedShape infer_narrow(const Node& node) {
  const Node& x = *node.inputs[0];
  require_channels(node, is_narrow(x.dtype), 1, node.inputs.size());
  return {x.dtype, x.shape};
}

void run_narrow(const KernelCall& call) {
  const graph::Operand& x = call.inputs[0];
  kernels::batch_norm_with(*call.pool, channel_shape(x), x.data, scale_of(call, 3),
                           call.inputs[1].as<const float>(), call.inputs[2].as<const float>(),
                           call.output.data);
}

Tensor narrow_meaning(const Node& node, Inputs in) {
  const Tensor scale = rsqrt(add(in[2], number(node.attrs.real("eps"))));
  const Tensor y = mul(sub(in[0], column(in[1])), column(scale));
  return in.size() > 3 ? add(mul(y, column(in[3])), column(in[4])) : y;
}

// All of it goes to x, weight and bias: mean and var are those of x.
std::vector<Tensor> grad_narrow(const graph::GradCall& call) {
  const Tensor& x = call.inputs[0];
  const Shape channels = {x.dim(1)};
  std::vector<Tensor> inputs = {x,
                                call.inputs[1],
                                call.inputs[2],
                                as_stored(call.dy, x.dtype()),
                                zeros(channels),
                                zeros(channels)};
  const bool affine = call.inputs.size() > 3;
  if (affine) inputs.push_back(call.inputs[3]);
  const Tensor all = record(kBatchNormBackward, inputs, call.node.attrs);
  const auto parts = graph::unpack(all, {x.shape(), channels, channels});
  if (!affine) return {parts[0], {}, {}};
  return {parts[0], {}, {}, parts[1], parts[2]};
}

// --- batch_norm_running: x, mean, var, weight and bias or not → y of the type of x. As above, but
// --- mean and var are numbers like any others, and x may be float32.

graph::TypedShape infer_running(const Node& node) {
  const Node& x = *node.inputs[0];
  require_channels(node, is_float32_or_narrower(x.dtype), 1, node.inputs.size());
  return {x.dtype, x.shape};
}

Tensor running_meaning(const Node& node, Inputs in) {
  const Tensor y = narrow_meaning(node, in);
  return has_relu(node) ? relu(y) : y;
}

// --- batch_norm_backward: x, mean, var, dy, dmean, dvar, weight or not, with relu and a weight the
// --- bias → [dx | dw | db] ---------------------------------------------------------------------

graph::TypedShape infer_batch_norm_backward(const Node& node) {
  const Shape& x = node.inputs[0]->shape;
  const Node& dy = *node.inputs[3];
  const DType dtype = node.inputs[0]->dtype;
  require_channels(node, is_float32_or_narrower(dtype) && takes_gradient(dtype, dy.dtype), 1, 3);
  require_channels(node, true, 4, node.inputs.size());
  if (!(dy.shape == x)) shape_error(node, "the gradient has another shape than x");
  return {DType::kF32, {x.elements() + 2 * x[1]}};
}

void run_batch_norm_backward(const KernelCall& call) {
  const graph::Operand& x = call.inputs[0];
  auto input = [&](size_t i) { return call.inputs[i].as<const float>(); };
  float* dx = call.output.as<float>();
  float* dw = dx + x.shape.elements();
  kernels::batch_norm_backward(*call.pool, channel_shape(x), x.data, scale_of(call, 6), input(1),
                               input(2),
                               {.dy = call.inputs[3].data,
                                .dy_type = call.inputs[3].dtype,
                                .dmean = input(4),
                                .dvar = input(5),
                                .dx = dx,
                                .dw = dw,
                                .db = dw + x.shape[1]});
}

graph::NodePtr batch_norm_through_relu(const Node& node, const Node& forward,
                                       const graph::NodePtr& dy) {
  const bool affine = node.inputs.size() > 6;
  const bool is_gradient = forward.op == &kBatchNorm && forward.inputs[0] == node.inputs[0] &&
                           forward.attrs.real("eps") == node.attrs.real("eps") &&
                           (forward.inputs.size() > 1) == affine &&
                           (!affine || forward.inputs[1] == node.inputs[6]);
  if (!is_gradient || has_relu(node)) return nullptr;
  std::vector<graph::NodePtr> inputs = node.inputs;
  inputs[3] = dy;
  if (affine) inputs.push_back(forward.inputs[2]);
  return graph::make_node(kBatchNormBackward, std::move(inputs), forward.attrs);
}

// In terms of x itself, so that it can be differentiated: mean and var are not independent of it.
Tensor batch_norm_backward_meaning(const Node& node, Inputs in) {
  const Tensor& x = in[0];
  const auto [mean, var] = statistics(x);
  const Tensor share = number(1.0 / static_cast<double>(x.dim(0) * x.dim(2)));
  const Tensor scale = rsqrt(add(var, number(node.attrs.real("eps"))));
  const Tensor centered = sub(x, column(mean)), normal = mul(centered, column(scale));
  Tensor dy = in[3];
  if (has_relu(node)) {
    const Tensor y = in.size() > 7 ? add(mul(normal, column(in[6])), column(in[7])) : normal;
    dy = mul(dy, less_than(number(0), y));
  }
  const Tensor dw = channel_sum(mul(dy, normal)), db = channel_sum(dy);
  const Tensor inner = sub(sub(dy, column(mul(db, share))), mul(normal, column(mul(dw, share))));
  Tensor dx = mul(inner, column(in.size() > 6 ? mul(scale, in[6]) : scale));
  dx = add(dx, column(mul(in[4], share)));
  dx = add(dx, mul(centered, column(mul(in[5], mul(share, number(2))))));
  const Tensor parts[] = {flatten(dx), dw, db};
  return concat(parts, 0);
}

const std::vector<Shape>& case_shapes() {
  static const std::vector<Shape> shapes = {{4, 3, 5},  {2, 1, 1},  {9, 70, 1},
                                            {3, 5, 64}, {1, 4, 33}, {2, 17, 20}};
  return shapes;
}

struct CaseVariant {
  Shape x;
  bool affine;
  graph::Attrs attrs;
};
std::vector<CaseVariant> case_variants() {
  std::vector<CaseVariant> variants;
  for (const Shape& x : case_shapes()) {
    for (bool affine : {true, false}) {
      graph::Attrs attrs = {{"eps", 1e-2}};
      variants.push_back({x, affine, attrs});
      attrs.add(graph::kReluAttr, int64_t{1});
      variants.push_back({x, affine, attrs});
    }
  }
  return variants;
}
std::string label(const Shape& x, bool affine, const graph::Attrs& attrs) {
  return str(to_string(x), affine ? " affine" : "", attrs.has(graph::kReluAttr) ? " relu" : "");
}

std::vector<OpCase> batch_norm_cases() {
  std::vector<OpCase> cases;
  for (const auto& [x, affine, attrs] : case_variants()) {
    std::vector<graph::TypedShape> inputs = {{DType::kF32, x}};
    if (affine) inputs.insert(inputs.end(), 2, f32({x[1]}));
    cases.push_back({label(x, affine, attrs), std::move(inputs),
                     [attrs = attrs](Inputs in) { return record(kBatchNorm, in, attrs); }, -2, 2,
                     2e-5});
  }
  return cases;
}

std::vector<OpCase> statistics_cases() {
  std::vector<OpCase> cases;
  for (const Shape& x : case_shapes()) {
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      cases.push_back({str(name(dtype), " ", to_string(x)),
                       {{dtype, x}},
                       [](Inputs in) { return record(kBatchNormStatistics, in); },
                       -2,
                       2,
                       2e-5});
    }
  }
  return cases;
}

// x, and its statistics.
std::vector<Tensor> with_statistics(const Tensor& x) {
  const Shape channels = {x.dim(1)};
  std::vector<Tensor> all = graph::unpack(record(kBatchNormStatistics, {x}), {channels, channels});
  all.insert(all.begin(), x);
  return all;
}

std::vector<OpCase> narrow_cases() {
  std::vector<OpCase> cases;
  for (const Shape& x : case_shapes()) {
    for (bool affine : {true, false}) {
      const DType dtype = affine ? DType::kBF16 : DType::kF16;
      std::vector<graph::TypedShape> inputs = {{dtype, x}};
      if (affine) inputs.insert(inputs.end(), 2, f32({x[1]}));
      cases.push_back({str(name(dtype), " ", to_string(x)), std::move(inputs),
                       [](Inputs in) {
                         std::vector<Tensor> all = with_statistics(in[0]);
                         all.insert(all.end(), in.begin() + 1, in.end());
                         return record(kBatchNormNarrow, all, {{"eps", 1e-2}});
                       },
                       -2, 2, kNarrowTolerance});
    }
  }
  return cases;
}

std::vector<OpCase> running_cases() {
  std::vector<OpCase> cases;
  for (const auto& [x, affine, attrs] : case_variants()) {
    for (DType dtype : {DType::kF32, DType::kBF16}) {
      std::vector<graph::TypedShape> inputs = {{dtype, x}, f32({x[1]}), f32({x[1]})};
      if (affine) inputs.insert(inputs.end(), 2, f32({x[1]}));
      cases.push_back({str(name(dtype), " ", label(x, affine, attrs)), std::move(inputs),
                       [attrs = attrs](Inputs in) {
                         std::vector<Tensor> all(in.begin(), in.end());
                         all[2] = mul(all[2], all[2]);
                         return record(kBatchNormRunning, all, attrs);
                       },
                       -2, 2, dtype == DType::kF32 ? 2e-5 : kNarrowTolerance});
    }
  }
  return cases;
}

std::vector<OpCase> batch_norm_backward_cases() {
  std::vector<OpCase> cases;
  auto add_case = [&](const CaseVariant& variant, DType x_type, DType dy_type) {
    const auto& [x, affine, attrs] = variant;
    std::vector<graph::TypedShape> inputs = {{x_type, x}, {dy_type, x}, f32({x[1]}), f32({x[1]})};
    if (affine) inputs.push_back(f32({x[1]}));
    if (affine && attrs.has(graph::kReluAttr)) inputs.push_back(f32({x[1]}));
    cases.push_back({str(name(x_type), " and ", name(dy_type), " ", label(x, affine, attrs)),
                     std::move(inputs),
                     [attrs = attrs](Inputs in) {
                       std::vector<Tensor> all = with_statistics(in[0]);
                       all.insert(all.end(), in.begin() + 1, in.end());
                       return record(kBatchNormBackward, all, attrs);
                     },
                     -2, 2, 5e-5});
  };
  for (const CaseVariant& variant : case_variants()) {
    add_case(variant, DType::kF32, DType::kF32);
    add_case(variant, DType::kBF16, DType::kBF16);
    add_case(variant, DType::kF16, DType::kF32);
  }
  return cases;
}

// [batch, channels, …] as [batch, channels, pixels].
Tensor as_channels(std::string_view op, const Tensor& x) {
  graph::check_defined(x, op, "x");
  if (x.rank() < 2) {
    fail(ErrorKind::kMalformed, op, " of ", to_string(x.shape()), ": needs [batch, channels, …]");
  }
  int64_t pixels = 1;
  for (int i = 2; i < x.rank(); ++i) pixels *= x.dim(i);
  return reshape(x, {x.dim(0), x.dim(1), pixels});
}

// [channels] beside x, each channel of x with its element.
Tensor beside(const Tensor& x, const Tensor& w) {
  Shape shape = {x.dim(1)};
  for (int i = 2; i < x.rank(); ++i) shape.push_back(1);
  return reshape(w, shape);
}

}  // namespace

const OpDef kBatchNorm = {.name = "batch_norm",
                          .infer = infer_batch_norm,
                          .kernel = run_batch_norm,
                          .meaning = batch_norm_meaning,
                          .grad = grad_batch_norm,
                          .autocast = graph::Autocast::kFull,
                          .takes_relu = true,
                          .cases = batch_norm_cases};
const OpDef kBatchNormStatistics = {.name = "batch_norm_statistics",
                                    .infer = infer_statistics,
                                    .kernel = run_statistics,
                                    .meaning = widened_meaning<statistics_meaning>,
                                    .autocast = graph::Autocast::kFull,
                                    .cases = statistics_cases};
const OpDef kBatchNormNarrow = {.name = "batch_norm_narrow",
                                .infer = infer_narrow,
                                .kernel = run_narrow,
                                .meaning = rounded_meaning<narrow_meaning>,
                                .grad = grad_narrow,
                                .autocast = graph::Autocast::kFull,
                                .cases = narrow_cases};
const OpDef kBatchNormRunning = {.name = "batch_norm_running",
                                 .infer = infer_running,
                                 .kernel = run_narrow,
                                 .meaning = rounded_meaning<running_meaning>,
                                 .autocast = graph::Autocast::kFull,
                                 .takes_relu = true,
                                 .cases = running_cases};
const OpDef kBatchNormBackward = {.name = "batch_norm_backward",
                                  .infer = infer_batch_norm_backward,
                                  .kernel = run_batch_norm_backward,
                                  .meaning = widened_meaning<batch_norm_backward_meaning>,
                                  .autocast = graph::Autocast::kFull,
                                  .relu_gradient = 3,
                                  .through_relu = batch_norm_through_relu,
                                  .cases = batch_norm_backward_cases};
namespace {

// Of channels [batch, channels, pixels] and weights in float64, from other operations.
BatchNormResult exact_batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                 double eps) {
  const Axes axes = x.dim(2) == 1 ? Axes{0} : Axes{0, 2};
  const Tensor mean = ops::mean(x, axes, true), centered = sub(x, mean);
  const Tensor var = ops::mean(mul(centered, centered), axes, true);
  Tensor scale = rsqrt(add(var, eps));
  if (weight.defined()) scale = mul(scale, column(weight));
  Tensor y = mul(centered, scale);
  if (bias.defined()) y = add(y, column(bias));
  return {y, reshape(mean, {x.dim(1)}), reshape(var, {x.dim(1)})};
}

}  // namespace

BatchNormResult batch_norm_training(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                    double eps) {
  const Tensor channels = as_channels("batch_norm", x);
  if (channels.dim(0) * channels.dim(2) < 2) {
    fail(ErrorKind::kMalformed, "batch_norm of ", to_string(x.shape()),
         ": training needs more than one value per channel");
  }
  require_channel_weights(kBatchNorm.name, x, weight, bias);
  const DType common = float_type_of(kBatchNorm.name, {x, weight, bias});
  const DType computed = computed_type(common);
  const Tensor w = in_type(weight, computed), b = in_type(bias, computed);
  if (computed == DType::kF64) {
    BatchNormResult result = exact_batch_norm(in_type(channels, computed), w, b, eps);
    result.y = reshape(result.y, x.shape());
    return result;
  }
  const Shape per_channel = {x.dim(1)};
  std::vector<Tensor> weights;
  if (w.defined()) weights = {w, b};
  auto followed_by_weights = [&](std::vector<Tensor> inputs) {
    inputs.insert(inputs.end(), weights.begin(), weights.end());
    return inputs;
  };
  if (is_narrow(x.dtype())) {
    const auto parts =
        graph::unpack(record(kBatchNormStatistics, {channels}), {per_channel, per_channel});
    const Tensor y = record(kBatchNormNarrow, followed_by_weights({channels, parts[0], parts[1]}),
                            {{"eps", eps}});
    return {reshape(y, x.shape()), parts[0], parts[1]};
  }
  const Tensor all =
      record(kBatchNorm, followed_by_weights({in_type(channels, computed)}), {{"eps", eps}});
  const auto parts = graph::unpack(all, {x.shape(), per_channel, per_channel});
  return {parts[0], parts[1], parts[2]};
}

Tensor batch_norm(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                  const Tensor& bias, double eps) {
  const Tensor channels = as_channels("batch_norm", x);
  for (const Tensor& w : {mean, var, weight, bias}) {
    if (w.defined() && !(w.shape() == Shape{x.dim(1)})) {
      fail(ErrorKind::kMalformed, "batch_norm of ", to_string(x.shape()),
           ": statistics, weight and bias must be [", x.dim(1), "], not ", to_string(w.shape()));
    }
  }
  const DType common = float_type_of("batch_norm", {x, mean, var, weight, bias});
  if (common == DType::kF64) {
    Tensor scale = rsqrt(add(var, eps));
    if (weight.defined()) scale = mul(scale, weight);
    Tensor shift = neg(mul(mean, scale));
    if (bias.defined()) shift = add(shift, bias);
    return add(mul(x, beside(x, scale)), beside(x, shift));
  }
  const DType dtype = is_narrow(x.dtype()) ? x.dtype() : DType::kF32;
  std::vector<Tensor> inputs = {in_type(channels, dtype), widened(mean), widened(var)};
  if (weight.defined() || bias.defined()) {
    const Shape per_channel = {x.dim(1)};
    inputs.push_back(weight.defined() ? widened(weight) : ones(per_channel));
    inputs.push_back(bias.defined() ? widened(bias) : zeros(per_channel));
  }
  return reshape(record(kBatchNormRunning, inputs, {{"eps", eps}}), x.shape());
}

}  // namespace lumen::ops
