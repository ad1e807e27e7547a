// Operations over rows (the last axis): softmax and the normalisations.
#include "lib/kernels/norm.h"

#include "lib/ops/cases.h"
#include "lib/ops/ops.h"

namespace lumen::ops {
namespace {

using graph::KernelCall;
using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::record;
using Inputs = std::span<const Tensor>;

// All of x: float32 with a last axis; weights [dim] float32.
graph::TypedShape infer_rows(const Node& node) {
  const Node& x = *node.inputs[0];
  if (x.dtype != DType::kF32 || x.shape.rank() == 0) shape_error(node, "x must be float32 rows");
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    const Node& w = *node.inputs[i];
    if (w.dtype != DType::kF32 || !(w.shape == Shape({x.shape[-1]}))) {
      shape_error(node, "weights must be float32 [dim]");
    }
  }
  return {DType::kF32, x.shape};
}

kernels::Rows rows_of(const KernelCall& call) {
  const graph::Operand& x = call.inputs[0];
  kernels::Rows rows{x.as<const float>(), 1, x.shape[-1], x.shape[-1]};
  for (int axis = x.shape.rank() - 2; axis >= 0; --axis) {
    if (x.shape[axis] != 1 && rows.rows == 1) rows.stride = x.strides[axis];
    rows.rows *= x.shape[axis];
  }
  return rows;
}

void run_softmax(const KernelCall& call) {
  const kernels::Rows x = rows_of(call);
  kernels::softmax(*call.pool, x, call.output.as<float>(), x.dim);
}

void run_rms_norm(const KernelCall& call) {
  const kernels::Rows x = rows_of(call);
  kernels::rms_norm(*call.pool, x, call.inputs[1].as<const float>(),
                    static_cast<float>(call.node->attrs.real("eps")), call.output.as<float>(),
                    x.dim);
}

void run_layer_norm(const KernelCall& call) {
  const kernels::Rows x = rows_of(call);
  kernels::layer_norm(
      *call.pool, x, call.inputs[1].as<const float>(), call.inputs[2].as<const float>(),
      static_cast<float>(call.node->attrs.real("eps")), call.output.as<float>(), x.dim);
}

Tensor softmax_meaning(const Node&, Inputs in) {
  const Tensor e = exp(sub(in[0], max(in[0], -1)));
  return div(e, sum(e, -1));
}

Tensor rms_norm_meaning(const Node& node, Inputs in) {
  const Tensor variance = mean(mul(in[0], in[0]), -1);
  const Tensor eps = graph::scalar(static_cast<float>(node.attrs.real("eps")));
  return mul(mul(in[0], rsqrt(add(variance, eps))), in[1]);
}

Tensor layer_norm_meaning(const Node& node, Inputs in) {
  const Tensor centered = sub(in[0], mean(in[0], -1));
  const Tensor variance = mean(mul(centered, centered), -1);
  const Tensor eps = graph::scalar(static_cast<float>(node.attrs.real("eps")));
  return add(mul(mul(centered, rsqrt(add(variance, eps))), in[1]), in[2]);
}

// One, few and many rows, odd widths, a strided view; `build` takes x and the weights.
std::vector<OpCase> row_cases(int weights, std::function<Tensor(Inputs)> build) {
  std::vector<OpCase> cases;
  for (Shape shape :
       {Shape{1}, Shape{5}, Shape{3, 64}, Shape{2, 3, 33}, Shape{1, 4096}, Shape{70, 17}}) {
    std::vector<graph::TypedShape> inputs = {{DType::kF32, shape}};
    for (int i = 0; i < weights; ++i) inputs.push_back(f32({shape[-1]}));
    cases.push_back({to_string(shape), std::move(inputs), build, -3, 3, 5e-6});
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
  return cases;
}

}  // namespace

extern const OpDef kSoftmax, kRmsNorm, kLayerNorm;

const OpDef kSoftmax = {
    .name = "softmax",
    .infer = infer_rows,
    .kernel = run_softmax,
    .layout = graph::InputLayout::kRows,
    .meaning = softmax_meaning,
    .cases = [] { return row_cases(0, [](Inputs in) { return softmax(in[0]); }); }};
const OpDef kRmsNorm = {
    .name = "rms_norm",
    .infer = infer_rows,
    .kernel = run_rms_norm,
    .layout = graph::InputLayout::kRows,
    .meaning = rms_norm_meaning,
    .cases = [] { return row_cases(1, [](Inputs in) { return rms_norm(in[0], in[1], 1e-5); }); }};
const OpDef kLayerNorm = {.name = "layer_norm",
                          .infer = infer_rows,
                          .kernel = run_layer_norm,
                          .layout = graph::InputLayout::kRows,
                          .meaning = layer_norm_meaning,
                          .cases = [] {
                            return row_cases(
                                2, [](Inputs in) { return layer_norm(in[0], in[1], in[2], 1e-5); });
                          }};

Tensor softmax(const Tensor& x) {
  return record(kSoftmax, {x});
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  return record(kRmsNorm, {x, weight}, {{"eps", eps}});
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  return record(kLayerNorm, {x, weight, bias}, {{"eps", eps}});
}

}  // namespace lumen::ops
