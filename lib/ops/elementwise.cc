// Element-wise operations: one row of the tables below each.
//
// The primitives carry the scalar function that the reference backend runs; the others a meaning
// in simpler operations. Meanings marked approximate differ from the kernel where the comment says.
#include <cmath>
#include <numbers>

#include "lib/base/error.h"
#include "lib/ops/cases.h"
#include "lib/ops/ops.h"

namespace lumen::ops {
namespace {

using graph::expand;
using graph::GradCall;
using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::OpKind;
using graph::record;
using graph::scalar;
using graph::TypedShape;
namespace block = kernels::block;
using Inputs = std::span<const Tensor>;

TypedShape infer_elementwise(const Node& node) {
  for (const graph::NodePtr& input : node.inputs) {
    if (!(input->shape == node.inputs[0]->shape)) shape_error(node, "shapes differ");
    if (is_quantized(input->dtype)) shape_error(node, "quantised values have no arithmetic");
  }
  return {DType::kF32, node.inputs[0]->shape};
}

graph::Cost elementwise_cost(const Node& node) {
  const auto elements = static_cast<double>(node.shape.elements());
  return {elements, elements * 4 * static_cast<double>(node.inputs.size() + 1)};
}

// Cases: odd lengths, zero sizes, a scalar, broadcast and transposed inputs.
template <int kInputs>
std::vector<OpCase> cases_of(const OpDef& op, double low, double high) {
  std::vector<OpCase> cases;
  auto add_case = [&](std::string label, std::vector<TypedShape> shapes, auto build) {
    cases.push_back({std::move(label), std::move(shapes), build, low, high, 2e-6});
  };
  auto direct = [&op](Inputs in) { return record(op, in); };
  for (int64_t n : {0, 1, 7, 16, 33, 1000, 20001}) {
    add_case(str("n=", n), std::vector<TypedShape>(kInputs, f32({n})), direct);
  }
  add_case("scalar", std::vector<TypedShape>(kInputs, f32({})), direct);
  std::vector<TypedShape> mixed(kInputs, f32({3, 5, 7}));
  mixed[0] = f32({7, 5, 3});
  add_case("transposed", mixed, [&op](Inputs in) {
    std::vector<Tensor> inputs(in.begin(), in.end());
    inputs[0] = graph::permute(inputs[0], {2, 1, 0});
    return record(op, inputs);
  });
  mixed[0] = f32({5, 1});
  add_case("broadcast", mixed, [&op](Inputs in) {
    std::vector<Tensor> inputs(in.begin(), in.end());
    inputs[0] = expand(inputs[0], Shape({3, 5, 7}));
    return record(op, inputs);
  });
  mixed[0] = {DType::kF16, Shape({3, 5, 7})};
  add_case("f16 input", mixed, direct);
  return cases;
}

using Grad = std::vector<Tensor> (*)(const graph::GradCall&);

constexpr OpDef primitive(std::string_view name, kernels::BlockFn fn,
                          double (*reference)(const double*), Grad grad,
                          std::vector<OpCase> (*cases)()) {
  return {.name = name,
          .kind = OpKind::kElementwise,
          .infer = infer_elementwise,
          .block = fn,
          .layout = graph::InputLayout::kAny,
          .grad = grad,
          .scalar = reference,
          .cost = elementwise_cost,
          .cases = cases};
}

constexpr OpDef derived(std::string_view name, kernels::BlockFn fn,
                        Tensor (*meaning)(const Node&, Inputs), std::vector<OpCase> (*cases)()) {
  return {.name = name,
          .kind = OpKind::kElementwise,
          .infer = infer_elementwise,
          .block = fn,
          .layout = graph::InputLayout::kAny,
          .meaning = meaning,
          .cost = elementwise_cost,
          .cases = cases};
}

Tensor constant_like(float value, const Tensor& x) {
  return expand(scalar(value), x.shape());
}
Tensor times(const Tensor& x, double factor) {
  return mul(x, scalar(static_cast<float>(factor)));
}

}  // namespace

extern const OpDef kAdd, kMul, kMod, kLessThan, kExp2, kLog2, kSin, kSqrt, kRecip, kSub, kDiv,
    kEqual, kMaximum, kMinimum, kWhere, kNeg, kAbs, kExp, kLog, kCos, kRsqrt, kTanh, kSigmoid,
    kSilu, kGeluTanh, kRelu;

// Primitives.
const OpDef kAdd = primitive(
    "add", block::add, [](const double* x) { return x[0] + x[1]; },
    [](const GradCall& call) -> std::vector<Tensor> {
      return {call.dy, call.dy};
    },
    [] { return cases_of<2>(kAdd, -2, 2); });
const OpDef kMul = primitive(
    "mul", block::mul, [](const double* x) { return x[0] * x[1]; },
    [](const GradCall& call) -> std::vector<Tensor> {
      return {mul(call.dy, call.inputs[1]), mul(call.dy, call.inputs[0])};
    },
    [] { return cases_of<2>(kMul, -2, 2); });
const OpDef kMod = primitive(
    "mod", block::mod, [](const double* x) { return std::fmod(x[0], x[1]); },
    // x − trunc(x / y) · y: the quotient is a step function.
    [](const GradCall& call) -> std::vector<Tensor> {
      const Tensor quotient = div(sub(call.inputs[0], call.output), call.inputs[1]);
      return {call.dy, neg(mul(call.dy, quotient))};
    },
    [] { return cases_of<2>(kMod, 0.5, 2); });
const OpDef kLessThan = primitive(
    "less_than", block::less_than, [](const double* x) { return x[0] < x[1] ? 1.0 : 0.0; },
    graph::no_gradient, [] { return cases_of<2>(kLessThan, -2, 2); });
const OpDef kExp2 = primitive(
    "exp2", block::exp2, [](const double* x) { return std::exp2(x[0]); },
    [](const GradCall& call) -> std::vector<Tensor> {
      return {times(mul(call.dy, call.output), std::numbers::ln2)};
    },
    [] { return cases_of<1>(kExp2, -10, 10); });
const OpDef kLog2 = primitive(
    "log2", block::log2, [](const double* x) { return std::log2(x[0]); },
    [](const GradCall& call) -> std::vector<Tensor> {
      return {div(times(call.dy, std::numbers::log2e), call.inputs[0])};
    },
    [] { return cases_of<1>(kLog2, 0.01, 100); });
const OpDef kSin = primitive(
    "sin", block::sin, [](const double* x) { return std::sin(x[0]); },
    [](const GradCall& call) -> std::vector<Tensor> { return {mul(call.dy, cos(call.inputs[0]))}; },
    [] { return cases_of<1>(kSin, -100, 100); });
const OpDef kSqrt = primitive(
    "sqrt", block::sqrt, [](const double* x) { return std::sqrt(x[0]); },
    [](const GradCall& call) -> std::vector<Tensor> {
      return {div(times(call.dy, 0.5), call.output)};
    },
    [] { return cases_of<1>(kSqrt, 0, 10); });
const OpDef kRecip = primitive(
    "recip", block::recip, [](const double* x) { return 1 / x[0]; },
    [](const GradCall& call) -> std::vector<Tensor> {
      return {neg(mul(call.dy, mul(call.output, call.output)))};
    },
    [] { return cases_of<1>(kRecip, 0.1, 10); });

// Derived. x − y and x / y through −1 and 1/y: approximate by one rounding.
const OpDef kNeg = derived(
    "neg", block::neg, [](const Node&, Inputs in) { return times(in[0], -1); },
    [] { return cases_of<1>(kNeg, -2, 2); });
const OpDef kSub = derived(
    "sub", block::sub, [](const Node&, Inputs in) { return add(in[0], times(in[1], -1)); },
    [] { return cases_of<2>(kSub, -2, 2); });
const OpDef kDiv = derived(
    "div", block::div, [](const Node&, Inputs in) { return mul(in[0], recip(in[1])); },
    [] { return cases_of<2>(kDiv, 0.1, 2); });
const OpDef kEqual = derived(
    "equal", block::equal,
    // Neither less nor greater; approximate for NaN, which is unequal to all.
    [](const Node&, Inputs in) {
      const Tensor one = constant_like(1, in[0]);
      return mul(sub(one, less_than(in[0], in[1])), sub(one, less_than(in[1], in[0])));
    },
    [] { return cases_of<2>(kEqual, 0, 1); });
const OpDef kMaximum = derived(
    "maximum", block::maximum,
    // The maximum over an axis of two: exact for infinities and NaN.
    [](const Node&, Inputs in) {
      Shape shape = in[0].shape();
      Shape pair = shape;
      pair.push_back(1);
      const Tensor both[] = {graph::reshape(graph::contiguous(in[0], DType::kF32), pair),
                             graph::reshape(graph::contiguous(in[1], DType::kF32), pair)};
      return graph::reshape(max(concat(both, -1), -1), shape);
    },
    [] { return cases_of<2>(kMaximum, -2, 2); });
const OpDef kMinimum = derived(
    "minimum", block::minimum,
    [](const Node&, Inputs in) { return neg(maximum(neg(in[0]), neg(in[1]))); },
    [] { return cases_of<2>(kMinimum, -2, 2); });
const OpDef kWhere = derived(
    "where", block::where,
    // condition·a + (1 − condition)·b; approximate: conditions 0 and 1, finite a and b.
    [](const Node&, Inputs in) {
      const Tensor no = equal(in[0], constant_like(0, in[0]));
      return add(mul(sub(constant_like(1, no), no), in[1]), mul(no, in[2]));
    },
    [] {
      auto cases = cases_of<3>(kWhere, -1, 1);
      return cases;
    });
const OpDef kAbs = derived(
    "abs", block::abs, [](const Node&, Inputs in) { return maximum(in[0], neg(in[0])); },
    [] { return cases_of<1>(kAbs, -2, 2); });
const OpDef kExp = derived(
    "exp", block::exp,
    [](const Node&, Inputs in) { return exp2(times(in[0], std::numbers::log2e)); },
    [] { return cases_of<1>(kExp, -5, 5); });
const OpDef kLog = derived(
    "log", block::log, [](const Node&, Inputs in) { return times(log2(in[0]), std::numbers::ln2); },
    [] { return cases_of<1>(kLog, 0.01, 100); });
const OpDef kCos = derived(
    "cos", block::cos,
    [](const Node&, Inputs in) {
      return sin(add(in[0], scalar(static_cast<float>(std::numbers::pi / 2))));
    },
    [] { return cases_of<1>(kCos, -10, 10); });
const OpDef kRsqrt = derived(
    "rsqrt", block::rsqrt, [](const Node&, Inputs in) { return recip(sqrt(in[0])); },
    [] { return cases_of<1>(kRsqrt, 0.1, 10); });
const OpDef kSigmoid = derived(
    "sigmoid", block::sigmoid,
    [](const Node&, Inputs in) { return recip(add(exp(neg(in[0])), scalar(1))); },
    [] { return cases_of<1>(kSigmoid, -10, 10); });
const OpDef kTanh = derived(
    "tanh", block::tanh,
    [](const Node&, Inputs in) { return sub(times(sigmoid(times(in[0], 2)), 2), scalar(1)); },
    [] { return cases_of<1>(kTanh, -5, 5); });
const OpDef kSilu = derived(
    "silu", block::silu, [](const Node&, Inputs in) { return mul(in[0], sigmoid(in[0])); },
    [] { return cases_of<1>(kSilu, -10, 10); });
const OpDef kGeluTanh = derived(
    "gelu_tanh", block::gelu_tanh,
    [](const Node&, Inputs in) {
      const Tensor cube = mul(in[0], mul(in[0], in[0]));
      const Tensor inner =
          times(add(in[0], times(cube, 0.044715)), std::sqrt(2 / std::numbers::pi));
      return mul(times(in[0], 0.5), add(tanh(inner), scalar(1)));
    },
    [] { return cases_of<1>(kGeluTanh, -5, 5); });
const OpDef kRelu = derived(
    "relu", block::relu,
    [](const Node&, Inputs in) { return maximum(in[0], constant_like(0, in[0])); },
    [] { return cases_of<1>(kRelu, -2, 2); });

namespace {

Tensor unary(const OpDef& op, const Tensor& x) {
  return record(op, {x});
}

Tensor binary(const OpDef& op, const Tensor& a, const Tensor& b) {
  const Shape shape = graph::broadcast(op.name, a.shape(), b.shape());
  return record(op, {expand(a, shape), expand(b, shape)});
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  return binary(kAdd, a, b);
}
Tensor sub(const Tensor& a, const Tensor& b) {
  return binary(kSub, a, b);
}
Tensor mul(const Tensor& a, const Tensor& b) {
  return binary(kMul, a, b);
}
Tensor div(const Tensor& a, const Tensor& b) {
  return binary(kDiv, a, b);
}
Tensor mod(const Tensor& a, const Tensor& b) {
  return binary(kMod, a, b);
}
Tensor less_than(const Tensor& a, const Tensor& b) {
  return binary(kLessThan, a, b);
}
Tensor equal(const Tensor& a, const Tensor& b) {
  return binary(kEqual, a, b);
}
Tensor maximum(const Tensor& a, const Tensor& b) {
  return binary(kMaximum, a, b);
}
Tensor minimum(const Tensor& a, const Tensor& b) {
  return binary(kMinimum, a, b);
}
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const Shape shape = graph::broadcast(
      kWhere.name, graph::broadcast(kWhere.name, condition.shape(), a.shape()), b.shape());
  return record(kWhere, {expand(condition, shape), expand(a, shape), expand(b, shape)});
}
Tensor neg(const Tensor& x) {
  return unary(kNeg, x);
}
Tensor abs(const Tensor& x) {
  return unary(kAbs, x);
}
Tensor exp2(const Tensor& x) {
  return unary(kExp2, x);
}
Tensor log2(const Tensor& x) {
  return unary(kLog2, x);
}
Tensor exp(const Tensor& x) {
  return unary(kExp, x);
}
Tensor log(const Tensor& x) {
  return unary(kLog, x);
}
Tensor sin(const Tensor& x) {
  return unary(kSin, x);
}
Tensor cos(const Tensor& x) {
  return unary(kCos, x);
}
Tensor sqrt(const Tensor& x) {
  return unary(kSqrt, x);
}
Tensor rsqrt(const Tensor& x) {
  return unary(kRsqrt, x);
}
Tensor recip(const Tensor& x) {
  return unary(kRecip, x);
}
Tensor tanh(const Tensor& x) {
  return unary(kTanh, x);
}
Tensor sigmoid(const Tensor& x) {
  return unary(kSigmoid, x);
}
Tensor silu(const Tensor& x) {
  return unary(kSilu, x);
}
Tensor gelu_tanh(const Tensor& x) {
  return unary(kGeluTanh, x);
}
Tensor relu(const Tensor& x) {
  return unary(kRelu, x);
}

}  // namespace lumen::ops
