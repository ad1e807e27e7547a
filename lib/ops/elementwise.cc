#include "lib/ops/elementwise.h"

#include "lib/base/error.h"
#include "lib/graph/program.h"
#include "lib/ops/axes.h"

namespace lumen::ops {

using graph::expand;
using graph::Node;
using graph::OpCase;
using graph::OpDef;
using graph::record;
using graph::TypedShape;

extern const OpDef kMul, kDiv, kFloorDivide;

TypedShape infer_elementwise(const Node& node) {
  bool real = false;
  for (const graph::NodePtr& input : node.inputs) {
    if (!(input->shape == node.inputs[0]->shape)) shape_error(node, "shapes differ");
    if (is_quantized(input->dtype)) shape_error(node, "quantised values have no arithmetic");
    real |= is_float(input->dtype);
  }
  if (!node.attrs.has("dtype")) return {DType::kF32, node.inputs[0]->shape};
  const OpDef& op = *node.op;
  const bool defined = real ? op.block_f64 || op.real || op.scalar : op.integer != nullptr;
  if (!defined) shape_error(node, "not defined for these types");
  return {static_cast<DType>(node.attrs.integer("dtype")), node.inputs[0]->shape};
}

void run_typed(const graph::KernelCall& call) {
  const OpDef& op = *call.node->op;
  kernels::TypedOperand operands[kernels::kMaxArguments];
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    operands[i] = typed(call.inputs[i]);
  }
  const auto form = kernels::is_of_chains(op.typed) ? kernels::TypedOp::kNone : op.typed;
  const kernels::TypedFunction f = {form, op.real ? op.real : op.scalar, op.integer, op.block_f64};
  kernels::map_typed(*call.pool, f, std::span(operands, call.inputs.size()), call.output.shape,
                     call.output.dtype, call.output.data);
}

graph::Cost elementwise_cost(const Node& node) {
  const auto elements = static_cast<double>(node.shape.elements());
  return {elements, elements * 4 * static_cast<double>(node.inputs.size() + 1)};
}

namespace {

// Whether `op` reads a single number on its right as float32, as PyTorch does, instead of rounding
// it to the narrow type of the result.
bool reads_factor(const OpDef& op) {
  return &op == &kMul || &op == &kDiv || &op == &kFloorDivide;
}

}  // namespace

Tensor compute(const OpDef& op, Inputs inputs, DType dtype) {
  if (dtype == DType::kF32) return record(op, inputs);
  if (is_narrow(dtype)) {
    return graph::contiguous(record(op, inputs), dtype);
  }
  return record(op, inputs, {{"dtype", static_cast<int64_t>(dtype)}});
}

Tensor unary(const OpDef& op, const Tensor& x) {
  graph::check_defined(x, op.name, "x");
  return compute(op, {&x, 1}, x.dtype());
}

Tensor real_unary(const OpDef& op, const Tensor& x) {
  graph::check_defined(x, op.name, "x");
  return compute(op, {&x, 1}, promote(x.dtype(), is_float(x.dtype()) ? x.dtype() : DType::kF32));
}

Tensor before_widening(const Tensor& x) {
  const graph::Node& node = *x.node();
  if (node.dtype != DType::kF32 || node.inputs.empty()) return x;
  const Tensor input(node.inputs[0]);
  if (node.op == &graph::kContiguous) return is_narrow(input.dtype()) ? input : x;
  if (node.op != &graph::kReshape && node.op != &graph::kPermute) return x;
  const Tensor narrow = before_widening(input);
  if (narrow.dtype() == DType::kF32) return x;
  return record(*node.op, {narrow}, node.attrs);
}

Tensor as_stored(const Tensor& dy, DType x) {
  const Tensor narrow = before_widening(dy);
  return narrow.dtype() == x ? narrow : dy;
}

Tensor as_operand(const Tensor& x, DType dtype) {
  if (is_quantized(x.dtype())) return x;  // infer refuses it
  const bool exact = x.dtype() == dtype || info(x.dtype()).block_bytes == 1;
  const bool integers = !is_float(dtype) && dtype != DType::kBool && !is_float(x.dtype());
  const bool rounds = is_narrow(dtype) && !exact;
  const bool wraps = integers && promote(x.dtype(), dtype) != dtype;  // a scalar of a wider type
  return rounds || wraps ? graph::contiguous(x, dtype) : x;
}

Tensor binary(const OpDef& op, const Tensor& a, const Tensor& b, DType dtype) {
  graph::check_defined(a, op.name, "a");
  graph::check_defined(b, op.name, "b");
  const Shape shape = graph::broadcast(op.name, a.shape(), b.shape());
  const bool factor = reads_factor(op) && b.shape().elements() == 1;
  const Tensor inputs[] = {expand(as_operand(a, dtype), shape),
                           expand(factor ? b : as_operand(b, dtype), shape)};
  return compute(op, inputs, dtype);
}

Tensor binary(const OpDef& op, const Tensor& a, const Tensor& b) {
  graph::check_defined(a, op.name, "a");
  graph::check_defined(b, op.name, "b");
  return binary(op, a, b, result_type(a, b));
}

Tensor binary(const OpDef& op, const Tensor& a, Number b) {
  graph::check_defined(a, op.name, "a");
  const DType dtype = result_type(a, b);
  const bool rounded = is_narrow(dtype) && !reads_factor(op);
  return binary(op, a, rounded ? element(b, dtype) : number(b, dtype), dtype);
}

Tensor binary(const OpDef& op, Number a, const Tensor& b) {
  graph::check_defined(b, op.name, "b");
  const DType dtype = result_type(b, a);
  return binary(op, is_narrow(dtype) ? element(a, dtype) : number(a, dtype), b, dtype);
}

DType result_type(const Tensor& a, const Tensor& b) {
  if (is_quantized(a.dtype()) || is_quantized(b.dtype())) return DType::kF32;  // infer refuses it
  if ((a.rank() == 0) == (b.rank() == 0)) return promote(a.dtype(), b.dtype());
  const DType many = a.rank() > 0 ? a.dtype() : b.dtype();
  const DType one = a.rank() > 0 ? b.dtype() : a.dtype();
  if (is_float(many)) return many;
  return many == DType::kBool || is_float(one) ? promote(many, one) : many;
}

DType result_type(const Tensor& a, Number b) {
  if (is_float(a.dtype()) || b.kind() == Number::kBool) return a.dtype();
  if (b.kind() == Number::kReal) return DType::kF32;
  return a.dtype() == DType::kBool ? DType::kI64 : a.dtype();
}

namespace {

// `value` without its fraction, if an integer type holds that; of bool, whether it is not 0.
int64_t whole(Number value, DType dtype) {
  if (dtype == DType::kBool) return value.real() != 0;
  const bool is_real = value.kind() == Number::kReal;
  if (!is_real || (value.real() >= -0x1p63 && value.real() < 0x1p63)) {
    const int64_t integer = is_real ? static_cast<int64_t>(value.real()) : value.integer();
    int64_t stored;
    std::byte bytes[sizeof stored];
    kernels::store_typed(dtype, &integer, 1, bytes);
    kernels::load_typed(dtype, bytes, 1, 1, &stored);
    if (stored == integer) return integer;
  }
  fail(ErrorKind::kMalformed, "the number ", is_real ? str(value.real()) : str(value.integer()),
       " is not in the range of ", name(dtype));
}

}  // namespace

Tensor element(Number value, DType dtype) {
  if (is_quantized(dtype)) {
    fail(ErrorKind::kMalformed, "no tensor of type ", name(dtype), " is made of a number");
  }
  Array array = Array::zeros(dtype, {});
  if (is_float(dtype)) {
    const double real = value.real();
    kernels::store_typed(dtype, &real, 1, array.mutable_data());
  } else {
    const int64_t integer = whole(value, dtype);
    kernels::store_typed(dtype, &integer, 1, array.mutable_data());
  }
  return graph::constant(array);
}

Tensor number(Number value, DType dtype) {
  if (!is_float(dtype)) return element(value, dtype);
  const double real = value.real();
  const auto narrow = static_cast<float>(real);
  if (dtype != DType::kF64 && (narrow == real || real != real)) return graph::scalar(narrow);
  return graph::constant(Array::from<double>({&real, 1}, {}));
}

Tensor constant_like(double value, const Tensor& x) {
  const bool exact = x.dtype() == DType::kF32 || x.dtype() == DType::kF64;
  return exact ? expand(number(value, x.dtype()), x.shape()) : full_like(x, value);
}

DType float_type_of(std::string_view op, std::initializer_list<Tensor> inputs) {
  std::optional<DType> common;
  for (const Tensor& x : inputs) {
    if (!x.defined()) continue;
    if (!is_float(x.dtype()) || is_quantized(x.dtype())) {
      fail(ErrorKind::kMalformed, op, ": cannot compute with ", name(x.dtype()),
           ": expected f32, f64, f16 or bf16");
    }
    common = common ? promote(*common, x.dtype()) : x.dtype();
  }
  return common.value_or(DType::kF32);
}

void require_channel_weights(std::string_view op, const Tensor& x, const Tensor& weight,
                             const Tensor& bias) {
  for (const Tensor& w : {weight, bias}) {
    if (weight.defined() != bias.defined() || (w.defined() && !(w.shape() == Shape{x.dim(1)}))) {
      fail(ErrorKind::kMalformed, op, " of ", to_string(x.shape()),
           ": weight and bias must both be [", x.dim(1), "], or undefined");
    }
  }
}

std::vector<OpCase> elementwise_cases(const OpDef& op, int inputs, double low, double high) {
  std::vector<OpCase> cases;
  auto add_case = [&](std::string label, std::vector<TypedShape> shapes, auto build) {
    cases.push_back({std::move(label), std::move(shapes), build, low, high, 2e-6});
  };
  auto direct = [&op](Inputs in) { return record(op, in); };
  const auto count = static_cast<size_t>(inputs);
  for (int64_t n : {0, 1, 7, 16, 33, 1000, 20001}) {
    add_case(str("n=", n), std::vector<TypedShape>(count, f32({n})), direct);
  }
  add_case("scalar", std::vector<TypedShape>(count, f32({})), direct);
  std::vector<TypedShape> mixed(count, f32({3, 5, 7}));
  mixed[0] = f32({7, 5, 3});
  add_case("transposed", mixed, [&op](Inputs in) {
    std::vector<Tensor> all(in.begin(), in.end());
    all[0] = graph::permute(all[0], {2, 1, 0});
    return record(op, all);
  });
  mixed[0] = f32({5, 1});
  add_case("broadcast", mixed, [&op](Inputs in) {
    std::vector<Tensor> all(in.begin(), in.end());
    all[0] = expand(all[0], Shape({3, 5, 7}));
    return record(op, all);
  });
  mixed[0] = {DType::kF16, Shape({3, 5, 7})};
  add_case("f16 input", mixed, direct);
  mixed.assign(count, {DType::kF64, Shape({5, 300})});
  add_case("f64", mixed, [&op](Inputs in) {
    return record(op, in, {{"dtype", static_cast<int64_t>(DType::kF64)}});
  });
  return cases;
}

}  // namespace lumen::ops
