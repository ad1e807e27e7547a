// What the families of element-wise operations share: how one is declared, recorded and tested.
#pragma once

#include <span>
#include <vector>

#include "lib/ops/cases.h"
#include "lib/ops/ops.h"

namespace lumen::ops {

using Inputs = std::span<const Tensor>;
using Gradients = std::vector<Tensor>;

// float16 and bfloat16: computed in float32 and rounded.
constexpr bool is_narrow(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16;
}

// What kernels compute that read and write the same types, and add up in float32.
constexpr bool is_float32_or_narrower(DType dtype) {
  return dtype == DType::kF32 || is_narrow(dtype);
}

// Whether a kernel of gradients takes a gradient of the type `dy` for numbers of type `x`.
constexpr bool takes_gradient(DType x, DType dy) {
  return dy == x || dy == DType::kF32;
}
// Of float16 or bfloat16 numbers made float32, in whatever order, those; else x.
Tensor before_widening(const Tensor& x);
// matmul(a, b) as gradients are, float32 of narrow floats: if both operands are numbers of such
// types made float32, of those.
Tensor gradient_product(const Tensor& a, const Tensor& b);
// The gradient dy for such a kernel: where it is numbers of type `x` made float32, those.
Tensor as_stored(const Tensor& dy, DType x);

// Inputs of one shape; float32, or the type of attr "dtype".
graph::TypedShape infer_elementwise(const graph::Node& node);
// What is not float32: see OpDef::real and OpDef::integer.
void run_typed(const graph::KernelCall& call);
graph::Cost elementwise_cost(const graph::Node& node);

// An element-wise operation: `op` names what is its own.
constexpr graph::OpDef elementwise(graph::OpDef op) {
  op.kind = graph::OpKind::kElementwise;
  op.infer = infer_elementwise;
  op.kernel = run_typed;
  op.layout = graph::InputLayout::kAny;
  op.cost = elementwise_cost;
  return op;
}

// Records `op` on inputs of one shape with a result of type `dtype`: float32 steps fuse, f16 and
// bf16 are rounded from float32, other types take their own path.
Tensor compute(const graph::OpDef& op, Inputs inputs, DType dtype);

// The operation on one value; `real` ones make integers float32 first.
Tensor unary(const graph::OpDef& op, const Tensor& x);
Tensor real_unary(const graph::OpDef& op, const Tensor& x);
// On two that broadcast, in their common type.
Tensor binary(const graph::OpDef& op, const Tensor& a, const Tensor& b);
Tensor binary(const graph::OpDef& op, const Tensor& a, const Tensor& b, DType dtype);
Tensor binary(const graph::OpDef& op, const Tensor& a, Number b);
Tensor binary(const graph::OpDef& op, Number a, const Tensor& b);

// x as arithmetic with a result of type `dtype` reads it: for f16 and bf16 rounded to that type,
// for integers wrapped to it, as PyTorch does, otherwise as it is.
Tensor as_operand(const Tensor& x, DType dtype);

// A number as an element [] of `dtype`: rounded to a float type; an integer type drops its fraction
// and throws Error(kMalformed) for what it cannot hold; of bool ≠ 0.
Tensor element(Number value, DType dtype);
// The same for arithmetic, to which it gives every digit of the number where `dtype` is a float.
Tensor number(Number value, DType dtype);
// `value` in the shape and type of x (float64 where float32 cannot hold it: the type of neither
// computes less exactly).
Tensor constant_like(double value, const Tensor& x);

// body(x), made of several operations: for types narrower than float32 computed in it and rounded
// once, at the end; integers become float32.
template <typename Body>
Tensor in_float(const Tensor& x, Body body, const char* caller = __builtin_FUNCTION()) {
  const DType dtype = x.dtype(caller);
  if (is_narrow(dtype)) {
    return graph::contiguous(body(graph::contiguous(x, DType::kF32)), dtype);
  }
  return body(is_float(dtype) ? x : graph::contiguous(x, DType::kF32));
}

// The common type of floats; undefined tensors have no say. Throws Error(kMalformed), naming `op`,
// if one is of another kind.
DType float_type_of(std::string_view op, std::initializer_list<Tensor> inputs);

// Throws Error(kMalformed), naming `op`, unless weight and bias are both [channels] of x
// [batch, channels, …], or both undefined.
void require_channel_weights(std::string_view op, const Tensor& x, const Tensor& weight,
                             const Tensor& bias);

// What floats of this type are computed in: narrow ones in float32.
constexpr DType computed_type(DType dtype) {
  return is_narrow(dtype) ? DType::kF32 : dtype;
}
// x as `dtype`; and in what it is computed in. An undefined one stays so.
inline Tensor in_type(const Tensor& x, DType dtype) {
  return x.defined() && x.dtype() != dtype ? graph::contiguous(x, dtype) : x;
}
inline Tensor widened(const Tensor& x) {
  return x.defined() ? in_type(x, computed_type(x.dtype())) : x;
}

// The meaning kMeaning, which is one in float32, of an operation whose kernel reads narrow inputs
// too; and of one that also rounds its result to the type of the first.
template <auto kMeaning>
Tensor widened_meaning(const graph::Node& node, Inputs in) {
  std::vector<Tensor> wide(in.begin(), in.end());
  for (Tensor& x : wide) x = widened(x);
  return kMeaning(node, wide);
}
template <auto kMeaning>
Tensor rounded_meaning(const graph::Node& node, Inputs in) {
  return in_type(widened_meaning<kMeaning>(node, in), in[0].dtype());
}

// body(inputs…), all brought to their common type, narrow ones to float32, in which case the result
// is rounded to their type, once. Undefined ones stay so. Throws as float_type_of.
template <typename Body, typename... Tensors>
Tensor in_common_float(std::string_view op, const Body& body, const Tensors&... inputs) {
  const DType dtype = float_type_of(op, {inputs...});
  return in_type(body(in_type(inputs, computed_type(dtype))...), dtype);
}

// Cases of a raw operation: odd lengths, no elements, a scalar, broadcast and transposed inputs,
// a narrower input, float64.
std::vector<graph::OpCase> elementwise_cases(const graph::OpDef& op, int inputs, double low,
                                             double high);

}  // namespace lumen::ops
