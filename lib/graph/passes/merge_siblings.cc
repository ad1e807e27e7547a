// merge_siblings: several products with one activation become one with all their weights (q, k, v;
// gate, up), each result a slice of the common one.
//
// Precondition: products are not fused yet. Postcondition: no two mergeable nodes share their
// first input and attributes.
#include <map>

#include "lib/graph/passes/passes.h"
#include "lib/graph/views.h"

namespace lumen::graph::passes {
namespace {

Graph run_merge_siblings(const Graph& graph) {
  std::map<std::pair<const OpDef*, const Node*>, std::vector<NodePtr>> groups;
  for (const NodePtr& node : graph.nodes()) {
    if (node->op->merge) groups[{node->op, node->inputs[0].get()}].push_back(node);
  }
  // The merged node is built when the first of a group is reached: its other inputs are weights,
  // which depend on nothing, and the activation is the same.
  std::map<const Node*, std::pair<NodePtr, int64_t>> slices;  // original → (merged, first column)
  return rewrite(graph, [&](const NodePtr& node, const NodePtr& original) {
    if (!node->op->merge) return node;
    const auto& group = groups.at({original->op, original->inputs[0].get()});
    if (group.size() < 2) return node;
    if (slices.count(original.get()) == 0) {
      std::vector<NodePtr> uses;
      for (const NodePtr& member : group) {
        std::vector<NodePtr> inputs = member->inputs;
        inputs[0] = node->inputs[0];
        uses.push_back(with_inputs(member, std::move(inputs)));
      }
      const NodePtr merged = node->op->merge(uses);
      int64_t column = 0;
      for (const NodePtr& member : group) {
        slices[member.get()] = {merged, column};
        column += member->shape[-1];
      }
    }
    const auto& [merged, column] = slices.at(original.get());
    if (!merged) return node;
    return slice(Tensor(merged), -1, column, column + node->shape[-1]).node();
  });
}

}  // namespace

Pass merge_siblings() {
  return {"merge_siblings", run_merge_siblings};
}

}  // namespace lumen::graph::passes
