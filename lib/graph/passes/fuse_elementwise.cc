// fuse_elementwise: chains and trees of element-wise operations become one step each.
//
// Precondition: none. Postcondition: every element-wise node is a `fused` one with a program, and
// none reads a float32 `fused` node of which it is the only user, unless a limit of Program
// forbids.
#include "lib/graph/passes/passes.h"
#include "lib/graph/program.h"

namespace lumen::graph::passes {
namespace {

Graph run_fuse_elementwise(const Graph& graph) {
  const auto uses = graph.uses();
  std::unordered_map<const Node*, int> fused_uses;  // of rewritten nodes
  return rewrite(graph, [&](const NodePtr& node, const NodePtr& original) {
    if (node->op->kind != OpKind::kElementwise) return node;
    Program program = program_of(*node);
    std::vector<NodePtr> inputs = node->inputs;
    for (size_t slot = 0; slot < inputs.size();) {
      const NodePtr input = inputs[slot];
      const auto found = fused_uses.find(input.get());
      const bool absorb = input->op == &kFused && input->dtype == DType::kF32 &&
                          found != fused_uses.end() && found->second == 1;
      if (absorb && inline_program(*input->epilogue, input->inputs, slot, program, inputs)) {
        slot = 0;  // operands were renumbered
      } else {
        ++slot;
      }
    }
    NodePtr fused =
        make_fused(std::make_shared<Program>(std::move(program)), std::move(inputs), node->dtype);
    fused_uses[fused.get()] = uses.at(original.get());
    return fused;
  });
}

}  // namespace

Pass fuse_elementwise() {
  return {"fuse_elementwise", run_fuse_elementwise};
}

}  // namespace lumen::graph::passes
