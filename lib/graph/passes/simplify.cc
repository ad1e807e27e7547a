// simplify: algebra that holds for every float, NaN, infinity and signed zero, and view algebra.
//
// Precondition: none. Postcondition: no multiplication or division by 1, no subtraction of +0, no
// double negation, no view or copy that changes nothing, no reshape of a reshape, no permute of a
// permute, no pad of a pad, no cast to the same type of a contiguous value.
// Not done because it would change results: x + 0 (−0 + 0 = +0), x · 0 (NaN), x − x (inf).
#include "lib/graph/passes/filled_with.h"
#include "lib/graph/passes/passes.h"
#include "lib/graph/views.h"

namespace lumen::graph::passes {
namespace {

bool is_identity(const std::vector<int64_t>& order) {
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

// Adds the zeros of a pad to those along each axis.
void add_zeros(const Node& pad, std::vector<int64_t>& before, std::vector<int64_t>& after) {
  if (pad.op == &kPadAxes) {
    const auto &more_before = pad.attrs.integers("before"), &more = pad.attrs.integers("after");
    for (size_t i = 0; i < before.size(); ++i) {
      before[i] += more_before[i];
      after[i] += more[i];
    }
    return;
  }
  const auto axis = static_cast<size_t>(pad.attrs.integer("axis"));
  before[axis] += pad.attrs.integer("before");
  after[axis] += pad.attrs.integer("after");
}

NodePtr simplify_view(const NodePtr& node) {
  const NodePtr& x = node->inputs[0];
  if (node->op == &kReshape) {
    if (x->shape == node->shape) return x;
    if (x->op == &kReshape && x->inputs[0]->shape == node->shape) return x->inputs[0];
    if (x->op == &kReshape) return make_node(kReshape, {x->inputs[0]}, node->attrs);
  }
  if ((node->op == &kExpand || node->op == &kSlice) && x->shape == node->shape) return x;
  if (node->op == &kPermute) {
    auto order = node->attrs.integers("order");
    if (x->op == &kPermute) {
      const auto& inner = x->attrs.integers("order");
      for (int64_t& axis : order) axis = inner[axis];
      if (is_identity(order)) return x->inputs[0];
      return make_node(kPermute, {x->inputs[0]}, {{"order", std::move(order)}});
    }
    if (is_identity(order)) return x;
  }
  if (node->op == &kPad && (x->op == &kPad || x->op == &kPadAxes)) {
    std::vector<int64_t> before(static_cast<size_t>(node->shape.rank())), after(before.size());
    add_zeros(*x, before, after);
    add_zeros(*node, before, after);
    return make_node(kPadAxes, {x->inputs[0]},
                     {{"before", std::move(before)}, {"after", std::move(after)}});
  }
  // A copy of something a kernel just wrote contiguously changes nothing.
  if (node->op == &kContiguous && node->dtype == x->dtype && x->op->kind != OpKind::kView &&
      !is_state(*x) && x->op->overwrites < 0) {
    return x;
  }
  return node;
}

NodePtr simplify_arithmetic(const NodePtr& node) {
  const std::string_view op = node->op->name;
  if (op == "mul") {
    if (is_filled_with(*node->inputs[1], 1)) return node->inputs[0];
    if (is_filled_with(*node->inputs[0], 1)) return node->inputs[1];
  }
  if (op == "div" && is_filled_with(*node->inputs[1], 1)) return node->inputs[0];
  if (op == "sub" && is_filled_with(*node->inputs[1], 0)) return node->inputs[0];
  if (op == "neg" && node->inputs[0]->op == node->op) return node->inputs[0]->inputs[0];
  return node;
}

Graph run_simplify(const Graph& graph) {
  return rewrite(graph, [](const NodePtr& node, const NodePtr&) {
    if (node->inputs.empty() || node->epilogue) return node;
    NodePtr result =
        node->op->kind == OpKind::kElementwise ? simplify_arithmetic(node) : simplify_view(node);
    // The element-wise rules are about float32 values.
    return result->dtype == node->dtype ? result : node;
  });
}

}  // namespace

Pass simplify() {
  return {"simplify", run_simplify};
}

}  // namespace lumen::graph::passes
