// fuse_elementwise: chains and trees of element-wise operations become one step each.
//
// Precondition: none. Postcondition: every element-wise node with a float32 result is a `fused` one
// with a program, none reads a float32 `fused` node of which it is the only user (it may use it
// several times), unless a limit of Program forbids, and a cast of such a node to bool or a
// narrower float is part of it.
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

// How often each input is read by the operations that became one step.
using Reads = std::unordered_map<const Node*, int>;

class Fuser {
 public:
  explicit Fuser(const Graph& graph) : uses_(graph.uses()) {}

  NodePtr visit(const NodePtr& node, const NodePtr& original) {
    if (is_cast(*node)) {
      const NodePtr& input = node->inputs[0];
      if (!is_absorbable(*input, 1)) return node;
      return make_fused(input->epilogue, input->inputs, node->dtype);
    }
    if (!is_fusable(*node)) return node;
    Program program = program_of(*node);
    std::vector<NodePtr> inputs = node->inputs;
    Reads reads;
    for (const NodePtr& input : inputs) ++reads[input.get()];
    join_operands(program, inputs);
    for (size_t slot = 0; slot < inputs.size();) {
      const NodePtr input = inputs[slot];
      if (is_absorbable(*input, reads[input.get()]) &&
          inline_program(*input->epilogue, input->inputs, slot, program, inputs)) {
        for (const auto& [read, count] : reads_.at(input.get())) reads[read] += count;
        slot = 0;  // operands were renumbered
      } else {
        ++slot;
      }
    }
    NodePtr fused =
        make_fused(std::make_shared<Program>(std::move(program)), std::move(inputs), node->dtype);
    uses_of_fused_[fused.get()] = uses_.at(original.get());
    reads_[fused.get()] = std::move(reads);
    return fused;
  }

 private:
  // Whether `input` is a fused step of which these reads are all.
  bool is_absorbable(const Node& input, int reads) const {
    const auto found = uses_of_fused_.find(&input);
    return found != uses_of_fused_.end() && input.dtype == DType::kF32 && found->second == reads;
  }

  std::unordered_map<const Node*, int> uses_;           // of original nodes
  std::unordered_map<const Node*, int> uses_of_fused_;  // of rewritten ones
  std::unordered_map<const Node*, Reads> reads_;        // by them
};

Graph run_fuse_elementwise(const Graph& graph) {
  Fuser fuser(graph);
  return rewrite(graph, [&](const NodePtr& node, const NodePtr& original) {
    return fuser.visit(node, original);
  });
}

}  // namespace

Pass fuse_elementwise() {
  return {"fuse_elementwise", run_fuse_elementwise};
}

}  // namespace lumen::graph::passes
