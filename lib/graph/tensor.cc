#include "lib/graph/tensor.h"

#include <algorithm>
#include <numeric>

#include "lib/base/error.h"
#include "lib/graph/mixed_precision.h"
#include "lib/graph/plan.h"
#include "lib/graph/views.h"
#include "lib/kernels/typed.h"

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
thread_local DType autocast = DType::kF32;

// Of constants and states.
void check_memory(const Array& array, std::string_view function) {
  if (!array.empty() || array.shape().elements() == 0) return;
  fail(ErrorKind::kMalformed, function, ": the array has no memory: it was never given a value");
}

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
  if (shape().elements() != 1 || is_quantized(dtype())) {
    fail(ErrorKind::kMalformed, "item of ", name(dtype()), " ", to_string(shape()),
         ": only a tensor of one plain element has it");
  }
  double value;
  kernels::load_typed(dtype(), eval().data(), 1, 1, &value);
  return value;
}

Tensor constant(Array value, std::string name) {
  check_memory(value, "constant");
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
  check_extents(kInput.name, shape);
  return leaf(kInput, dtype, shape, {}, std::move(name));
}

Tensor state(Array memory, std::string name) {
  check_memory(memory, "state");
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

namespace {

// Whether its inputs are leaves, known values and views of such.
bool reads_known_values(const Node& node) {
  const auto is_known = [](const Node& x) { return x.inputs.empty() || !x.value.empty(); };
  return std::ranges::all_of(node.inputs, [&](const NodePtr& input) {
    const Node* at = input.get();
    while (!is_known(*at) && at->op->kind == OpKind::kView) at = at->inputs[0].get();
    return is_known(*at);
  });
}

// Passes for a plan that runs once: in one step there is nothing to rewrite, and each node that is
// folded would be a plan of its own.
Pipeline pipeline_to_run_once(std::span<const NodePtr> outputs) {
  if (outputs.size() == 1 && reads_known_values(*outputs[0])) return {};
  Pipeline pipeline = passes::default_pipeline();
  std::erase_if(pipeline, [](const Pass& pass) { return pass.name == "fold_constants"; });
  return pipeline;
}

}  // namespace

void evaluate(std::span<const Tensor> tensors) {
  check_defined(tensors, "evaluate");
  std::vector<NodePtr> unknown;
  for (const Tensor& tensor : tensors) {
    const NodePtr& node = tensor.node();
    if (!node->value.empty()) continue;
    if (node->shape.elements() > 0) {
      unknown.push_back(node);
    } else {
      node->value = Array::zeros(node->dtype, node->shape);
    }
  }
  if (unknown.empty()) return;
  Plan plan = compile(unknown, {.pipeline = pipeline_to_run_once(unknown)});
  if (const Node* input = plan.any_input()) {
    fail(ErrorKind::kMalformed, "evaluating what depends on the input ", quoted(input->name),
         ": inputs have values in a Plan only");
  }
  plan.run(current_pool());
  for (size_t i = 0; i < unknown.size(); ++i) unknown[i]->value = plan.output(i);
}

NoGradScope::NoGradScope(bool off) : previous_(no_grad) {
  no_grad = off;
}
NoGradScope::~NoGradScope() {
  no_grad = previous_;
}

AutocastScope::AutocastScope(DType low) : previous_(autocast) {
  autocast = low;
}
AutocastScope::~AutocastScope() {
  autocast = previous_;
}
DType autocast_dtype() {
  return autocast;
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

void check_defined(std::span<const Tensor> inputs, std::string_view operation) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) refuse_undefined(operation, str("input ", i));
  }
}

Tensor record(const OpDef& op, std::span<const Tensor> inputs, Attrs attrs) {
  check_defined(inputs, op.name);
  if (op.autocast == Autocast::kLow && autocast != DType::kF32) {
    const bool floats =
        std::ranges::all_of(inputs, [](const Tensor& x) { return x.dtype() == DType::kF32; });
    if (autocast == DType::kBF16 && floats) {
      set_bf16(attrs);
      const AutocastScope exact(DType::kF32);
      return record(op, inputs, std::move(attrs));
    }
    std::vector<Tensor> rounded;
    for (const Tensor& x : inputs) {
      const bool round = x.dtype() == DType::kF32;
      rounded.push_back(round ? contiguous(contiguous(x, autocast), DType::kF32) : x);
    }
    const AutocastScope exact(DType::kF32);
    return record(op, rounded, std::move(attrs));
  }
  if (op.autocast == Autocast::kInside && autocast == DType::kBF16) set_bf16(attrs);
  std::vector<NodePtr> nodes;
  nodes.reserve(inputs.size());
  for (const Tensor& tensor : inputs) nodes.push_back(tensor.node());
  Tensor result(make_node(op, std::move(nodes), std::move(attrs)));
  result.node()->requires_grad = needs_grad(inputs);
  if (eager) result.eval();
  return result;
}

}  // namespace lumen::graph
