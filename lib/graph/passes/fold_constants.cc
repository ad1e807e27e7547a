// fold_constants: computes what depends on constants only.
//
// Precondition: none. Postcondition: no node outside views has only small constants below it.
// Results over 1 MiB stay symbolic, so weights are never expanded, and so do views: they are free.
#include "lib/graph/passes/passes.h"
#include "lib/graph/plan.h"

namespace lumen::graph::passes {
namespace {

constexpr int64_t kMaxElements = (1 << 20) / sizeof(float);

// Without this pass, or it would fold for ever.
NodePtr compute(const NodePtr& node) {
  Plan plan = compile({&node, 1}, {.pipeline = {fuse_elementwise()}});
  plan.run(current_pool());
  return constant(plan.output(0), node->name).node();
}

Graph run_fold_constants(const Graph& graph) {
  // Nodes whose value follows from constants alone, all of them small.
  NodeSet known;
  return rewrite(graph, [&](const NodePtr& node, const NodePtr&) {
    if (node->shape.elements() > kMaxElements) return node;
    if (is_constant(*node)) {
      known.insert(node.get());
      return node;
    }
    if (node->inputs.empty() || node->op->overwrites >= 0) return node;
    for (const NodePtr& input : node->inputs) {
      if (!known.contains(input.get())) return node;
    }
    if (node->op->kind == OpKind::kView) {
      known.insert(node.get());
      return node;
    }
    NodePtr folded = compute(node);
    known.insert(folded.get());
    return folded;
  });
}

}  // namespace

Pass fold_constants() {
  return {"fold_constants", run_fold_constants};
}

}  // namespace lumen::graph::passes
