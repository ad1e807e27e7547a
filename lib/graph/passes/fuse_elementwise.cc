// fuse_elementwise: chains and trees of element-wise operations become one step each.
//
// Precondition: none. Postcondition: every element-wise node with a float32 result is a `fused` one
// with a program, none reads a float32 `fused` node of which it is the only user, unless a limit of
// Program forbids, and a cast of such a node to bool or a narrower float is part of it.
#include "lib/graph/passes/passes.h"
#include "lib/graph/program.h"
#include "lib/graph/views.h"

namespace lumen::graph::passes {
namespace {

// A cast that a fused step can do on its way out.
bool is_cast(const Node& node) {
  return node.op == &kContiguous &&
         (node.dtype == DType::kBool || node.dtype == DType::kF16 || node.dtype == DType::kBF16);
}

Graph run_fuse_elementwise(const Graph& graph) {
  const auto uses = graph.uses();
  std::unordered_map<const Node*, int> fused_uses;  // of rewritten nodes
  return rewrite(graph, [&](const NodePtr& node, const NodePtr& original) {
    if (is_cast(*node)) {
      const NodePtr& input = node->inputs[0];
      const auto found = fused_uses.find(input.get());
      const bool absorb = input->op == &kFused && input->dtype == DType::kF32 &&
                          found != fused_uses.end() && found->second == 1;
      return absorb ? make_fused(input->epilogue, input->inputs, node->dtype) : node;
    }
    if (!is_fusable(*node)) return node;
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
