#include "lib/graph/reference_backend.h"

#include <algorithm>
#include <unordered_map>

#include "lib/base/error.h"
#include "lib/graph/passes/passes.h"
#include "lib/graph/views.h"
#include "lib/kernels/convert.h"
#include "lib/kernels/typed.h"

namespace lumen::graph {
namespace {

using Values = std::vector<double>;

Values values_of(const Array& array) {
  const int64_t n = array.elements();
  if (!is_quantized(array.dtype())) {
    Values out(n);
    if (n > 0) kernels::load_typed(array.dtype(), array.data(), 1, n, out.data());
    return out;
  }
  std::vector<float> floats(n);
  kernels::to_float(array.dtype(), array.data(), floats.data(), n);
  return {floats.begin(), floats.end()};
}

// What storing a double as `dtype` and reading it back gives.
double stored(double x, DType dtype) {
  if (dtype == DType::kF32 || dtype == DType::kF64 || is_quantized(dtype)) return x;
  std::byte bytes[8];
  kernels::store_typed(dtype, &x, 1, bytes);
  kernels::load_typed(dtype, bytes, 1, 1, &x);
  return x;
}

// Calls body(row-major index, element offset under `strides`) for every element of `shape`.
template <typename Body>
void for_each(const Shape& shape, const Strides& strides, int64_t offset, Body body) {
  std::vector<int64_t> at(shape.rank(), 0);
  const int64_t count = shape.elements();
  for (int64_t index = 0; index < count; ++index) {
    body(index, offset);
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      offset += strides[axis];
      if (++at[axis] < shape[axis]) break;
      offset -= strides[axis] * shape[axis];
      at[axis] = 0;
    }
  }
}

Values run_view(const Node& node, const Values& x) {
  const Shape& from = node.inputs[0]->shape;
  Strides strides{};
  int64_t offset = 0;
  LUMEN_CHECK(node.op->view(node, from, contiguous_strides(from), strides, offset));
  Values out(node.shape.elements());
  for_each(node.shape, strides, offset, [&](int64_t i, int64_t at) { out[i] = x[at]; });
  return out;
}

Values pad(const Node& node, const Values& x) {
  const Shape& from = node.inputs[0]->shape;
  const Strides to = contiguous_strides(node.shape);
  Values out(node.shape.elements(), 0);
  const int64_t offset = node.attrs.integer("before") * to[node.attrs.integer("axis")];
  for_each(from, to, offset, [&](int64_t i, int64_t at) { out[at] = x[i]; });
  return out;
}

Values run_reduction(const Node& node, const Values& x) {
  const Shape& from = node.inputs[0]->shape;
  const auto axis = static_cast<int>(node.attrs.integer("axis"));
  Strides strides = contiguous_strides(node.shape);
  // Along the reduced axis, which the result keeps with extent 1, the target stays in place.
  strides[axis] = 0;
  Values out(node.shape.elements(), node.op->identity);
  for_each(from, strides, 0,
           [&](int64_t i, int64_t at) { out[at] = node.op->combine(out[at], x[i]); });
  return out;
}

Values run_elementwise_primitive(const Node& node, std::span<const Values* const> inputs) {
  Values out(node.shape.elements());
  double arguments[3];
  for (size_t i = 0; i < out.size(); ++i) {
    for (size_t a = 0; a < inputs.size(); ++a) arguments[a] = (*inputs[a])[i];
    out[i] = node.op->scalar(arguments);
  }
  return out;
}

// The inputs of these are keys: int32.
Values run_random(const Node& node, std::span<const Values* const> inputs) {
  std::vector<Array> arrays;
  KernelCall call;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Shape& shape = node.inputs[i]->shape;
    Array& array = arrays.emplace_back(Array::zeros(DType::kI32, shape));
    std::copy(inputs[i]->begin(), inputs[i]->end(), array.as_mutable<int32_t>().begin());
    call.inputs.push_back({.data = array.mutable_data(),
                           .dtype = DType::kI32,
                           .shape = shape,
                           .strides = contiguous_strides(shape)});
  }
  Array result = Array::zeros(node.dtype, node.shape);
  ThreadPool pool(1);
  call.node = &node;
  call.output = {.data = result.mutable_data(),
                 .dtype = node.dtype,
                 .shape = node.shape,
                 .strides = contiguous_strides(node.shape)};
  call.pool = &pool;
  node.op->kernel(call);
  return values_of(result);
}

Values run_node(const Node& node, std::span<const Values* const> inputs) {
  if (!node.value.empty()) return values_of(node.value);
  if (node.op->kind == OpKind::kView) return run_view(node, *inputs[0]);
  if (node.op == &kPad) return pad(node, *inputs[0]);
  if (node.op->combine) return run_reduction(node, *inputs[0]);
  if (node.op->scalar) return run_elementwise_primitive(node, inputs);
  if (node.op->copies) {
    Values out = *inputs[0];
    for (double& x : out) x = stored(x, node.dtype);
    return out;
  }
  if (node.shape.elements() == 0) return {};
  if (node.op->random) return run_random(node, inputs);
  fail(ErrorKind::kInternal, node.op->name, " ", quoted(node.name), " has no value");
}

}  // namespace

std::vector<double> evaluate_reference(const Tensor& tensor, const LeafValues& leaves) {
  const Graph graph = run_passes(Graph({tensor.node()}), {passes::decompose()}, true);
  std::unordered_map<const Node*, Values> values;
  auto uses = graph.uses();
  for (const NodePtr& node : graph.nodes()) {
    std::vector<const Values*> inputs;
    for (const NodePtr& input : node->inputs) inputs.push_back(&values.at(input.get()));
    const auto given = leaves.find(node.get());
    values[node.get()] = given != leaves.end() ? given->second : run_node(*node, inputs);
    for (const NodePtr& input : node->inputs) {
      if (--uses[input.get()] == 0) values.erase(input.get());
    }
  }
  return std::move(values.at(graph.outputs()[0].get()));
}

}  // namespace lumen::graph
