// decompose: replaces operations by their meanings until only primitives, views and leaves remain.
//
// Precondition: no fusion. Postcondition: every node is a leaf, a view, a pad, one of the dozen
// primitives or draws random numbers. Used by the reference backend and as the proof that a new
// device needs no more.
#include "lib/base/error.h"
#include "lib/graph/passes/passes.h"
#include "lib/graph/views.h"

namespace lumen::graph::passes {
namespace {

bool is_final(const Node& node) {
  return node.op->kind == OpKind::kLeaf || node.op->kind == OpKind::kView || node.op == &kPad ||
         node.op->is_primitive() || node.op->random;
}

// What a float32 step reads is float32 to its meaning too: it must not round to narrower types.
Tensor widened(const Node& user, const NodePtr& input) {
  const bool wide = input->dtype == DType::kF32 || input->dtype == DType::kF64;
  const bool same = user.op->kind != OpKind::kElementwise || user.dtype != DType::kF32 || wide;
  return same ? Tensor(input) : contiguous(Tensor(input), DType::kF32);
}

Graph run_decompose(Graph graph) {
  for (bool changed = true; changed;) {
    changed = false;
    graph = rewrite(graph, [&](const NodePtr& node, const NodePtr&) {
      if (is_final(*node)) return node;
      if (!node->op->meaning) {
        fail(ErrorKind::kInternal, "operation ", node->op->name, " has no meaning in primitives");
      }
      changed = true;
      std::vector<Tensor> inputs;
      for (const NodePtr& input : node->inputs) inputs.push_back(widened(*node, input));
      // A number that float32 lacks is a float64, of which the meaning of a float32 step may make
      // one.
      const Tensor meaning = node->op->meaning(*node, inputs);
      return (meaning.dtype() == node->dtype ? meaning : contiguous(meaning, node->dtype)).node();
    });
  }
  return graph;
}

}  // namespace

Pass decompose() {
  return {"decompose", [](const Graph& graph) { return run_decompose(graph); }};
}

}  // namespace lumen::graph::passes
