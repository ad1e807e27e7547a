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

// How often each operand is read by the operations that became one step.
class Reads {
 public:
  void add(const Node* node, int count) {
    for (auto& [known, reads] : reads_) {
      if (known == node) {
        reads += count;
        return;
      }
    }
    reads_.emplace_back(node, count);
  }
  int of(const Node* node) const {
    for (const auto& [known, reads] : reads_) {
      if (known == node) return reads;
    }
    return 0;
  }
  // `node`, which is part of the step now, has what it reads counted instead of itself.
  void replace(const Node* node, const Reads& by) {
    std::erase_if(reads_, [&](const auto& entry) { return entry.first == node; });
    for (const auto& [read, count] : by.reads_) add(read, count);
  }

 private:
  std::vector<std::pair<const Node*, int>> reads_;  // at most Program::kMaxInputs
};

class Fuser {
 public:
  explicit Fuser(const Graph& graph) : uses_(graph.uses()) {}

  NodePtr visit(const NodePtr& node, const NodePtr& original) {
    if (is_cast(*node)) {
      const NodePtr& input = node->inputs[0];
      if (!absorbable(*input, 1)) return node;
      return make_fused(input->epilogue, input->inputs, node->dtype);
    }
    if (!is_fusable(*node)) return node;
    Program program = program_of(*node);
    std::vector<NodePtr> inputs = node->inputs;
    Reads reads;
    for (const NodePtr& input : inputs) reads.add(input.get(), 1);
    join_operands(program, inputs);
    for (size_t slot = 0; slot < inputs.size();) {
      const NodePtr input = inputs[slot];
      const Step* step = absorbable(*input, reads.of(input.get()));
      if (step && inline_program(*input->epilogue, input->inputs, slot, program, inputs)) {
        reads.replace(input.get(), step->reads);
        slot = 0;  // operands were renumbered
      } else {
        ++slot;
      }
    }
    NodePtr fused =
        make_fused(std::make_shared<Program>(std::move(program)), std::move(inputs), node->dtype);
    steps_[fused.get()] = {uses_.at(original.get()), std::move(reads)};
    return fused;
  }

 private:
  struct Step {
    int uses = 0;
    Reads reads;
  };

  // The fused step that `input` is if these reads of it are all, else null.
  const Step* absorbable(const Node& input, int reads) const {
    if (input.op != &kFused || input.dtype != DType::kF32) return nullptr;
    const Step* step = steps_.find(&input);
    return step && step->uses == reads ? step : nullptr;
  }

  NodeMap<int> uses_;    // of original nodes
  NodeMap<Step> steps_;  // fused ones
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
