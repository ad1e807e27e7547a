#include "lib/autograd/autograd.h"

#include <algorithm>

#include "lib/base/error.h"
#include "lib/graph/graph.h"
#include "lib/graph/views.h"
#include "lib/ops/ops.h"

namespace lumen::graph {

// What autograd keeps with a node.
struct GradientRecord {
  Tensor accumulated;                            // of a variable
  std::vector<autograd::Hook> hooks;             // on the node's gradient
  std::shared_ptr<autograd::Function> function;  // its own gradient rule
  bool consumed = false;  // a backward pass went through and did not retain it
};

}  // namespace lumen::graph

namespace lumen::autograd {
namespace {

using graph::GradCall;
using graph::Node;
using graph::NodePtr;

graph::GradientRecord& record_of(const Tensor& x) {
  auto& record = x.node()->gradient;
  if (!record) record = std::make_shared<graph::GradientRecord>();
  return *record;
}

// The gradient of expand: what was repeated is added up.
Tensor sum_to(const Tensor& dy, const Shape& shape) {
  std::vector<int> repeated;
  const int added = dy.rank() - shape.rank();
  for (int axis = 0; axis < dy.rank(); ++axis) {
    if (axis < added || (shape[axis - added] == 1 && dy.dim(axis) != 1)) repeated.push_back(axis);
  }
  return graph::reshape(ops::sum(dy, repeated, true), shape);
}

std::vector<Tensor> grad_custom(const GradCall& call) {
  const Function& function = *call.node.gradient->function;
  if (!function.backward) {
    fail(ErrorKind::kMalformed, quoted(function.name), " has no backward, so no gradient");
  }
  const auto inputs = call.inputs.subspan(1);
  std::vector<Tensor> given = function.backward(inputs, call.output, call.dy);
  if (given.size() != inputs.size()) {
    fail(ErrorKind::kMalformed, quoted(function.name), ": backward returned ", given.size(),
         " gradients for ", inputs.size(), " inputs");
  }
  given.insert(given.begin(), Tensor());
  return given;
}

// Only of inputs that are differentiated: what is given for others is not looked at.
void check_given(const Node& custom, const Tensor& given, const Shape& input) {
  if (!given.defined() || given.shape() == input) return;
  fail(ErrorKind::kMalformed, quoted(custom.gradient->function->name),
       ": backward returned a gradient of shape ", to_string(given.shape()),
       " for an input of shape ", to_string(input));
}

// Identity on its first input, whose gradient a Function computes for the others.
const graph::OpDef kCustom = {.name = "custom",
                              .kind = graph::OpKind::kView,
                              .infer = graph::infer_first,
                              .view = graph::view_first,
                              .grad = grad_custom};

// The gradient of a float64 value is float64, of any other float32.
DType gradient_type(const Node& node) {
  return node.dtype == DType::kF64 ? DType::kF64 : DType::kF32;
}

// What reaches a node: a sum, and gradients of slices of it.
class Contributions {
 public:
  void add(const Tensor& gradient) { sum_ = sum_.defined() ? ops::add(sum_, gradient) : gradient; }
  void add_slice(int axis, int64_t begin, const Tensor& gradient) {
    slices_.push_back({axis, begin, gradient});
  }

  // Slices that cut the value into pieces are joined; others are added up between zeros.
  Tensor total(const Shape& shape) {
    std::vector<Slice> slices = std::move(slices_);
    slices_.clear();
    if (are_pieces(slices, shape)) {
      std::vector<Tensor> pieces;
      for (const Slice& slice : slices) pieces.push_back(slice.gradient);
      add(ops::concat(pieces, slices.front().axis));
    } else {
      for (const auto& [axis, begin, gradient] : slices) {
        add(graph::pad(gradient, axis, begin, shape[axis] - begin - gradient.dim(axis)));
      }
    }
    return sum_;
  }

 private:
  struct Slice {
    int axis;
    int64_t begin;
    Tensor gradient;
  };

  // Sorts `slices` of one axis. True if each begins where the one before ends, from end to end.
  static bool are_pieces(std::vector<Slice>& slices, const Shape& shape) {
    if (slices.empty()) return false;
    const int axis = slices.front().axis;
    for (const Slice& slice : slices) {
      if (slice.axis != axis) return false;
    }
    std::ranges::stable_sort(slices, {}, &Slice::begin);
    int64_t end = 0;
    for (const Slice& slice : slices) {
      if (slice.begin != end) return false;
      end += slice.gradient.dim(axis);
    }
    return end == shape[axis];
  }

  Tensor sum_;
  std::vector<Slice> slices_;
};

// Whether gradients go on from what is wanted to what it was computed from.
enum class AtWanted { kGoOn, kStop };

// Gradients by node while one backward pass is built.
class Tape {
 public:
  Tape(std::span<const Tensor> outputs, std::span<const Tensor> wrt, AtWanted at_wanted)
      : at_wanted_(at_wanted) {
    std::vector<NodePtr> roots;
    for (const Tensor& output : outputs) roots.push_back(output.node());
    order_ = graph::Graph(std::move(roots)).nodes();
    // Only what leads to something wanted is differentiated.
    for (const Tensor& x : wrt) wanted_.insert(x.node().get());
    for (const NodePtr& node : order_) {
      bool reaches = wanted_.contains(node.get());
      if (node->requires_grad || reaches) {
        for (const NodePtr& input : node->inputs) reaches |= reaching_.contains(input.get());
      }
      if (reaches) reaching_.insert(node.get());
    }
  }

  void add(const NodePtr& node, const Tensor& gradient) {
    if (!gradient.defined()) return;
    LUMEN_CHECK(gradient.shape() == node->shape);
    contributions_[node.get()].add(typed(gradient, *node));
  }

  void run() {
    for (auto it = order_.rbegin(); it != order_.rend(); ++it) {
      const NodePtr& node = *it;
      Contributions* found = contributions_.find(node.get());
      if (!found) continue;
      Tensor dy = std::exchange(*found, {}).total(node->shape);
      if (node->gradient) run_hooks(*node, dy);
      if (wanted_.contains(node.get())) {
        gradients_[node.get()] = dy;
        if (at_wanted_ == AtWanted::kStop) continue;
      }
      if (node->requires_grad && !node->inputs.empty()) differentiate(node, dy);
    }
  }

  Tensor gradient(const Tensor& x) const {
    const Tensor* found = gradients_.find(x.node().get());
    return found ? *found : ops::zeros(x.shape(), gradient_type(*x.node()));
  }

  const std::vector<NodePtr>& nodes() const { return order_; }

 private:
  static void run_hooks(const Node& node, Tensor& gradient) {
    const std::vector<Hook> hooks = node.gradient->hooks;  // one may register others
    for (const Hook& hook : hooks) {
      const Tensor changed = hook(gradient);
      if (!changed.defined()) continue;
      if (!(changed.shape() == gradient.shape())) {
        fail(ErrorKind::kMalformed, "a hook made a gradient of shape ", to_string(gradient.shape()),
             " into ", to_string(changed.shape()));
      }
      gradient = typed(changed, node);
    }
  }

  static Tensor typed(const Tensor& gradient, const Node& node) {
    const DType dtype = gradient_type(node);
    return gradient.dtype() == dtype ? gradient : graph::contiguous(gradient, dtype);
  }

  void differentiate(const NodePtr& node, const Tensor& dy) {
    bool any = false;
    for (const NodePtr& input : node->inputs) any |= reaching_.contains(input.get());
    if (!any) return;
    if (node->op == &graph::kSlice) {
      const Node& whole = *node->inputs[0];
      contributions_[&whole].add_slice(static_cast<int>(node->attrs.integer("axis")),
                                       node->attrs.integer("begin"), typed(dy, whole));
      return;
    }
    std::vector<Tensor> inputs;
    for (const NodePtr& input : node->inputs) inputs.emplace_back(input);
    const std::vector<Tensor> gradients = rule(node, inputs, dy);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!reaching_.contains(inputs[i].node().get())) continue;
      if (node->op == &kCustom) check_given(*node, gradients[i], inputs[i].shape());
      add(inputs[i].node(), gradients[i]);
    }
  }

  static std::vector<Tensor> rule(const NodePtr& node, std::span<const Tensor> inputs,
                                  const Tensor& dy) {
    const graph::OpDef& op = *node->op;
    if (op.grad) return op.grad({*node, inputs, Tensor(node), dy});
    if (&op == &graph::kExpand) return {sum_to(dy, inputs[0].shape())};
    if (op.meaning) return through_meaning(*node, inputs, dy);
    fail(ErrorKind::kMalformed, op.name, " has no gradient: detach its inputs, or build it from ",
         "operations that have one");
  }

  // The gradient of op.meaning, recorded on copies of the inputs so that only it is walked.
  static std::vector<Tensor> through_meaning(const Node& node, std::span<const Tensor> inputs,
                                             const Tensor& dy) {
    std::vector<Tensor> fresh;
    for (const Tensor& input : inputs) {
      fresh.push_back(graph::reshape(input, input.shape()));
      fresh.back().node()->requires_grad = is_float(input.dtype());
    }
    Tensor value;
    {
      const NoGradScope recorded(false);
      value = node.op->meaning(node, fresh);
    }
    return autograd::gradients({&value, 1}, {&dy, 1}, fresh, graph::needs_grad(inputs));
  }

  AtWanted at_wanted_;
  std::vector<NodePtr> order_;
  graph::NodeSet wanted_, reaching_;
  graph::NodeMap<Contributions> contributions_;
  graph::NodeMap<Tensor> gradients_;  // of what is wanted
};

Tensor seed_for(const Tensor& output, const Tensor& seed) {
  if (!seed.defined()) return graph::expand(graph::scalar(1), output.shape());
  if (!(seed.shape() == output.shape())) {
    fail(ErrorKind::kMalformed, "the gradient given for a value of shape ",
         to_string(output.shape()), " has shape ", to_string(seed.shape()));
  }
  return seed;
}

std::vector<Tensor> gradients_of(std::span<const Tensor> outputs, std::span<const Tensor> seeds,
                                 std::span<const Tensor> wrt, bool create_graph,
                                 AtWanted at_wanted) {
  if (!seeds.empty() && seeds.size() != outputs.size()) {
    fail(ErrorKind::kMalformed, seeds.size(), " gradients are given for ", outputs.size(),
         " values; expected one for each, or none");
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    graph::check_defined(outputs[i], "gradients", str("outputs[", i, "]"));
  }
  for (size_t i = 0; i < wrt.size(); ++i) {
    graph::check_defined(wrt[i], "gradients", str("wrt[", i, "]"));
  }
  const NoGradScope recording(!create_graph);
  Tape tape(outputs, wrt, at_wanted);
  for (size_t i = 0; i < outputs.size(); ++i) {
    tape.add(outputs[i].node(), seed_for(outputs[i], seeds.empty() ? Tensor() : seeds[i]));
  }
  tape.run();
  std::vector<Tensor> result;
  for (const Tensor& x : wrt) result.push_back(tape.gradient(x));
  return result;
}

}  // namespace

Tensor variable(Array value, std::string name) {
  if (!is_float(value.dtype())) {
    fail(ErrorKind::kUnsupported, "a variable of type ", lumen::name(value.dtype()),
         " has no gradient; float types do");
  }
  Tensor leaf = graph::state(std::move(value), std::move(name));
  leaf.node()->requires_grad = true;
  return leaf;
}

Tensor detach(const Tensor& x) {
  graph::check_defined(x, "detach", "x");
  const NoGradScope no_grad;
  return graph::reshape(x, x.shape());
}

std::vector<Tensor> gradients(std::span<const Tensor> outputs, std::span<const Tensor> seeds,
                              std::span<const Tensor> wrt, bool create_graph) {
  return gradients_of(outputs, seeds, wrt, create_graph, AtWanted::kGoOn);
}

void backward(const Tensor& output, const Tensor& seed, const BackwardOptions& options) {
  graph::check_defined(output, "backward", "output");
  if (!seed.defined() && output.shape().elements() != 1) {
    fail(ErrorKind::kMalformed, "backward of a value of shape ", to_string(output.shape()),
         " needs the gradient of that value; only a scalar has the natural one, 1");
  }
  if (!output.requires_grad()) {
    fail(ErrorKind::kMalformed, "backward: the value depends on no variable");
  }
  std::vector<Tensor> variables;
  const graph::Graph graph({output.node()});
  for (const NodePtr& node : graph.nodes()) {
    if (node->gradient && node->gradient->consumed) {
      fail(ErrorKind::kMalformed, "backward: this graph was already used; keep it with ",
           "retain_graph for a second time");
    }
    if (node->requires_grad && node->inputs.empty()) variables.emplace_back(node);
  }
  const std::vector<Tensor> found =
      gradients({&output, 1}, {&seed, 1}, variables, options.create_graph);
  std::vector<Tensor> sums;
  for (size_t i = 0; i < variables.size(); ++i) {
    Tensor& sum = record_of(variables[i]).accumulated;
    sum = sum.defined() ? ops::add(sum, found[i]) : graph::contiguous(found[i]);
    sums.push_back(sum);
  }
  if (options.create_graph) return;
  graph::evaluate(sums);
  for (size_t i = 0; i < variables.size(); ++i) {
    record_of(variables[i]).accumulated = graph::constant(sums[i].eval());
  }
  if (options.retain_graph) return;
  for (const NodePtr& node : graph.nodes()) {
    if (node->requires_grad && !node->inputs.empty()) record_of(Tensor(node)).consumed = true;
  }
}

Tensor grad(const Tensor& variable) {
  graph::check_defined(variable, "grad", "variable");
  const auto& record = variable.node()->gradient;
  return record ? record->accumulated : Tensor();
}

void zero_grad(const Tensor& variable) {
  graph::check_defined(variable, "zero_grad", "variable");
  if (variable.node()->gradient) variable.node()->gradient->accumulated = {};
}

void register_hook(const Tensor& x, Hook hook) {
  graph::check_defined(x, "register_hook", "x");
  if (!hook) fail(ErrorKind::kMalformed, "register_hook: the hook is empty");
  record_of(x).hooks.push_back(std::move(hook));
}

Tensor apply(const Function& function, std::span<const Tensor> inputs) {
  graph::check_defined(inputs, quoted(function.name));
  if (!function.forward) fail(ErrorKind::kMalformed, quoted(function.name), " has no forward");
  Tensor value;
  {
    const NoGradScope no_grad;
    value = function.forward(inputs);
  }
  graph::check_defined(value, quoted(function.name), "what forward returned");
  if (!graph::needs_grad(inputs)) return value;
  std::vector<Tensor> all = {value};
  all.insert(all.end(), inputs.begin(), inputs.end());
  Tensor result = graph::record(kCustom, all);
  record_of(result).function = std::make_shared<Function>(function);
  return result;
}

Tensor checkpoint(const std::function<Tensor(std::span<const Tensor>)>& body,
                  std::span<const Tensor> inputs) {
  graph::check_defined(inputs, "checkpoint");
  Tensor value;
  {
    const NoGradScope no_grad;
    value = body(inputs);
  }
  graph::check_defined(value, "checkpoint", "what the body returned");
  // Variables that the body reads are inputs of its gradient too, also those that it is given.
  std::vector<Tensor> all(inputs.begin(), inputs.end());
  const graph::Graph graph({value.node()});
  for (const NodePtr& node : graph.nodes()) {
    if (node->requires_grad && node->inputs.empty()) all.emplace_back(node);
  }
  if (!graph::needs_grad(all)) return value;
  const size_t given = inputs.size();
  auto backward = [body, given](std::span<const Tensor> in, const Tensor&, const Tensor& dy) {
    std::vector<Tensor> fresh;
    for (size_t i = 0; i < given; ++i) {
      fresh.push_back(graph::after(in[i], dy));
      fresh.back().node()->requires_grad = is_float(in[i].dtype());
    }
    Tensor again;
    {
      const NoGradScope recorded(false);
      again = body(fresh);
    }
    fresh.insert(fresh.end(), in.begin() + static_cast<std::ptrdiff_t>(given), in.end());
    // A variable may be both in the body and behind an input, whose own gradient carries that part.
    return gradients_of({&again, 1}, {&dy, 1}, fresh, graph::needs_grad(in), AtWanted::kStop);
  };
  std::vector<Tensor> parts = {value};
  parts.insert(parts.end(), all.begin(), all.end());
  Tensor result = graph::record(kCustom, parts);
  record_of(result).function =
      std::make_shared<Function>(Function{"checkpoint", {}, std::move(backward)});
  return result;
}

}  // namespace lumen::autograd
