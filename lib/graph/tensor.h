// Tensor: a lazy value. Arithmetic on tensors (ops/ops.h) records nodes; nothing is computed until
// a value is read.
#pragma once

#include <span>
#include <string>

#include "lib/graph/node.h"

namespace lumen::graph {

// A handle to a node: cheap to copy, immutable. Building tensors is safe from several threads;
// evaluating the same tensor is not. A default-constructed one is undefined: what reads it, and
// every function that is not said to take one, throws Error(kMalformed).
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(NodePtr node) : node_(std::move(node)) {}

  // `caller`, the function that reads, is named if the tensor is undefined.
  const Shape& shape(const char* caller = __builtin_FUNCTION()) const {
    return known(caller).shape;
  }
  DType dtype(const char* caller = __builtin_FUNCTION()) const { return known(caller).dtype; }
  int rank(const char* caller = __builtin_FUNCTION()) const { return known(caller).shape.rank(); }
  int64_t dim(int axis, const char* caller = __builtin_FUNCTION()) const {
    return known(caller).shape[axis];
  }
  const NodePtr& node() const { return node_; }  // null if undefined
  bool defined() const { return node_ != nullptr; }
  bool requires_grad(const char* caller = __builtin_FUNCTION()) const {
    return known(caller).requires_grad;
  }

  // The value, contiguous; computed on the current thread's pool (PoolScope) the first time and
  // kept. Throws Error(kMalformed) if it depends on an input that has no value.
  const Array& eval() const&;
  Array eval() && { return static_cast<const Tensor&>(*this).eval(); }

  // The only element, as double. Throws Error(kMalformed) unless there is just one.
  double item() const;

 private:
  const Node& known(const char* caller) const {
    if (!node_) refuse_undefined(caller, "an argument");
    return *node_;
  }

  NodePtr node_;
};

// Throws Error(kMalformed) naming both if `x`, an argument of `operation`, is undefined.
inline void check_defined(const Tensor& x, std::string_view operation, std::string_view argument) {
  if (!x.defined()) refuse_undefined(operation, argument);
}
// The same for each of a list, "input 2".
void check_defined(std::span<const Tensor> inputs, std::string_view operation);

// A known value: a weight, a table, a literal. Shares the array's memory. This and state() throw
// Error(kMalformed) for a default-constructed array, which has none.
Tensor constant(Array value, std::string name = {});
// A float scalar [].
Tensor scalar(float value);
// float32 of `shape` from a list, row-major. Throws Error(kMalformed) for another number of values.
Tensor constant(std::span<const float> values, const Shape& shape);
// 0, 1, …, n−1 as float32 [n].
Tensor iota(int64_t n);

// A value that is set before each run of a plan (Plan::input), and unknown elsewhere.
Tensor input(DType dtype, const Shape& shape, std::string name);

// Memory that outlives runs and that operations may overwrite: the KV cache. Shares `memory`.
Tensor state(Array memory, std::string name);

bool is_constant(const Node& node);
bool is_input(const Node& node);
bool is_state(const Node& node);

// While it lives, evaluation on this thread uses `pool`. Without one, a single thread is used.
class PoolScope {
 public:
  explicit PoolScope(ThreadPool& pool);
  ~PoolScope();
  PoolScope(const PoolScope&) = delete;

 private:
  ThreadPool* previous_;
};
ThreadPool& current_pool();

// While it lives, every operation recorded on this thread is computed at once: same operations,
// same engine, plans of one node. For debugging.
class EagerScope {
 public:
  explicit EagerScope(bool eager = true);  // false: records lazily inside an eager scope
  ~EagerScope();
  EagerScope(const EagerScope&) = delete;

 private:
  bool previous_;
};

// While it lives, nothing recorded on this thread requires a gradient.
class NoGradScope {
 public:
  explicit NoGradScope(bool off = true);  // false: records gradients inside such a scope
  ~NoGradScope();
  NoGradScope(const NoGradScope&) = delete;

 private:
  bool previous_;
};

// Whether an operation on these would require a gradient: one of them does, and no NoGradScope
// lives. Operations that save something for their gradient only then ask here.
bool needs_grad(std::span<const Tensor> inputs);
inline bool needs_grad(std::initializer_list<Tensor> inputs) {
  return needs_grad(std::span(inputs.begin(), inputs.size()));
}

struct GradCall {
  const Node& node;
  std::span<const Tensor> inputs;
  Tensor output;  // the node's result
  Tensor dy;      // its gradient, of the same shape
};

// The gradient rule of step functions and of what only depends on indices: none.
std::vector<Tensor> no_gradient(const GradCall& call);

// Computes several tensors in one plan.
void evaluate(std::span<const Tensor> tensors);

// While it lives, operations with Autocast::kLow recorded on this thread read their float32 inputs
// rounded to `low` (bfloat16 or float16), and with bfloat16 so do the products in those with
// Autocast::kInside; sums stay float32, and so do all other operations and the weights themselves.
// With bfloat16 a plan may store what is rounded so, and results of products until they meet
// float32 (passes/store_bf16.cc): it then runs under an ExactProductsScope only if it was compiled
// under one. `low` float32: nothing is rounded inside an outer scope.
class AutocastScope {
 public:
  explicit AutocastScope(DType low);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;

 private:
  DType previous_;
};
// The low type of this thread's innermost scope; float32 without one.
DType autocast_dtype();

// What every function of ops/ returns: a tensor of a new node (evaluated at once under an
// EagerScope).
Tensor record(const OpDef& op, std::span<const Tensor> inputs, Attrs attrs = {});
inline Tensor record(const OpDef& op, std::initializer_list<Tensor> inputs, Attrs attrs = {}) {
  return record(op, std::span(inputs.begin(), inputs.size()), std::move(attrs));
}

}  // namespace lumen::graph
