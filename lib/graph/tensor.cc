#include "lib/graph/tensor.h"

#include <numeric>
#include <utility>

#include "lib/base/error.h"
#include "lib/graph/plan.h"
#include "lib/kernels/convert.h"

namespace lumen::graph {
namespace {

TypedShape infer_leaf(const Node& node) {
  return {node.dtype, node.shape};
}

const OpDef kConstant = {.name = "constant", .kind = OpKind::kLeaf, .infer = infer_leaf};
const OpDef kInput = {.name = "input", .kind = OpKind::kLeaf, .infer = infer_leaf};
const OpDef kState = {.name = "state", .kind = OpKind::kLeaf, .infer = infer_leaf};

thread_local ThreadPool* pool_of_thread = nullptr;
thread_local bool eager = false;
thread_local bool no_grad = false;
thread_local InputHook input_hook = nullptr;

Tensor leaf(const OpDef& op, DType dtype, const Shape& shape, Array value, std::string name) {
  auto node = std::make_shared<Node>();
  node->op = &op;
  node->dtype = dtype;
  node->shape = shape;
  node->value = std::move(value);
  node->name = std::move(name);
  return Tensor(std::move(node));
}

}  // namespace

const Array& Tensor::eval() const& {
  evaluate({this, 1});
  return node_->value;
}

double Tensor::item() const {
  LUMEN_CHECK(shape().elements() == 1);
  float value;
  kernels::to_float(dtype(), eval().data(), &value, 1);
  return value;
}

Tensor constant(Array value, std::string name) {
  const DType dtype = value.dtype();
  const Shape shape = value.shape();
  return leaf(kConstant, dtype, shape, std::move(value), std::move(name));
}

Tensor scalar(float value) {
  return constant(Array::from<float>(std::span(&value, 1), {}));
}

Tensor constant(std::span<const float> values, const Shape& shape) {
  return constant(Array::from<float>(values, shape));
}

Tensor iota(int64_t n) {
  Array array = Array::zeros(DType::kF32, {n});
  auto values = array.as_mutable<float>();
  std::iota(values.begin(), values.end(), 0.0f);
  return constant(std::move(array));
}

Tensor input(DType dtype, const Shape& shape, std::string name) {
  return leaf(kInput, dtype, shape, {}, std::move(name));
}

Tensor state(Array memory, std::string name) {
  const DType dtype = memory.dtype();
  const Shape shape = memory.shape();
  return leaf(kState, dtype, shape, std::move(memory), std::move(name));
}

bool is_constant(const Node& node) {
  return node.op == &kConstant;
}
bool is_input(const Node& node) {
  return node.op == &kInput;
}
bool is_state(const Node& node) {
  return node.op == &kState;
}

PoolScope::PoolScope(ThreadPool& pool) : previous_(pool_of_thread) {
  pool_of_thread = &pool;
}
PoolScope::~PoolScope() {
  pool_of_thread = previous_;
}

ThreadPool& current_pool() {
  static thread_local ThreadPool single(1);
  return pool_of_thread ? *pool_of_thread : single;
}

void evaluate(std::span<const Tensor> tensors) {
  std::vector<NodePtr> unknown;
  for (const Tensor& tensor : tensors) {
    const NodePtr& node = tensor.node();
    if (node->value.empty() && node->shape.elements() > 0) unknown.push_back(node);
  }
  if (unknown.empty()) return;
  Plan plan = compile(unknown, {});
  plan.run(current_pool());
  for (size_t i = 0; i < unknown.size(); ++i) unknown[i]->value = plan.output(i);
}

NoGradScope::NoGradScope(bool off) : previous_(no_grad) {
  no_grad = off;
}
NoGradScope::~NoGradScope() {
  no_grad = previous_;
}

bool needs_grad(std::span<const Tensor> inputs) {
  if (no_grad) return false;
  for (const Tensor& input : inputs) {
    if (input.defined() && input.requires_grad()) return true;
  }
  return false;
}

std::vector<Tensor> no_gradient(const GradCall& call) {
  return std::vector<Tensor>(call.inputs.size());
}

EagerScope::EagerScope(bool on) : previous_(eager) {
  eager = on;
}
EagerScope::~EagerScope() {
  eager = previous_;
}

InputHook set_input_hook(InputHook hook) {
  return std::exchange(input_hook, hook);
}

Tensor record(const OpDef& op, std::span<const Tensor> inputs, Attrs attrs) {
  std::vector<NodePtr> nodes;
  nodes.reserve(inputs.size());
  for (const Tensor& tensor : inputs) {
    nodes.push_back(input_hook ? input_hook(op, tensor).node() : tensor.node());
  }
  Tensor result(make_node(op, std::move(nodes), std::move(attrs)));
  result.node()->requires_grad = needs_grad(inputs);
  if (eager) result.eval();
  return result;
}

}  // namespace lumen::graph
