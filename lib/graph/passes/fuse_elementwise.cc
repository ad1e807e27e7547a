// fuse_elementwise: chains and trees of element-wise operations become one step each.
//
// Precondition: none. Postcondition: every element-wise node that is_fusable is a `fused` one with
// a program, none reads a `fused` node of its type of which it is the only user (it may use it
// several times), unless a limit of Program forbids, and a cast of one of float32 to bool or a
// narrower float is part of it. A shared node that takes few vector instructions and that only such
// nodes use, a mask for instance, is part of each of them: computing it again is faster than
// storing it.
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
  // `node`, which is part of the step now, has what it reads counted instead of itself. If it is
  // part of other steps too, they read the same: these reads are never all.
  void replace(const Node* node, const Reads& by, bool is_shared) {
    constexpr int kOthers = 1 << 20;
    std::erase_if(reads_, [&](const auto& entry) { return entry.first == node; });
    for (const auto& [read, count] : by.reads_) add(read, is_shared ? kOthers : count);
  }

 private:
  std::vector<std::pair<const Node*, int>> reads_;  // at most Program::kMaxInputs
};

class Fuser {
 public:
  explicit Fuser(const Graph& graph) : uses_(graph.uses()) {
    for (const NodePtr& node : graph.nodes()) {
      if (is_fusable(*node)) continue;
      for (const NodePtr& input : node->inputs) stored_[input.get()] = true;
    }
    for (const NodePtr& output : graph.outputs()) stored_[output.get()] = true;
  }

  NodePtr visit(const NodePtr& node, const NodePtr& original) {
    if (is_cast(*node)) {
      const NodePtr& input = node->inputs[0];
      if (!absorbable(*input, 1, DType::kF32)) return node;
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
      const Step* step = absorbable(*input, reads.of(input.get()), node->dtype);
      if (step && inline_program(*input->epilogue, input->inputs, slot, program, inputs)) {
        reads.replace(input.get(), step->reads, step->uses != reads.of(input.get()));
        slot = 0;  // operands were renumbered
      } else {
        ++slot;
      }
    }
    NodePtr fused = make_fused(finished(std::move(program)), std::move(inputs), node->dtype);
    const int uses = uses_.at(original.get());
    const bool repeated = !stored_.find(original.get()) && is_cheaper_again(*fused, uses);
    steps_[fused.get()] = {uses, repeated, std::move(reads)};
    return fused;
  }

 private:
  struct Step {
    int uses = 0;
    bool repeated = false;  // by every step that uses it
    Reads reads;
  };

  // Whether `uses` steps that compute `fused` again move no more bytes than if it were stored: they
  // read its n operands each, uses · n ≤ (n + 1) + uses. What follows a product is its epilogue.
  static bool is_cheaper_again(const Node& fused, int uses) {
    constexpr int kMostInstructions = 8;
    const auto& code = fused.epilogue->code;
    if (static_cast<int>(code.size()) * (uses - 1) > kMostInstructions) return false;
    for (const auto& instruction : code) {
      if (instruction.op->typed == kernels::TypedOp::kNone) return false;
    }
    int operands = 0;
    for (const NodePtr& input : fused.inputs) {
      if (input->op->takes_epilogue) return false;
      operands += input->op != &kExpand;
    }
    return (uses - 1) * (operands - 1) <= 2;
  }

  // The fused step of `dtype` that `input` is if these reads of it are all or it is repeated, else
  // null.
  const Step* absorbable(const Node& input, int reads, DType dtype) const {
    if (input.op != &kFused || input.dtype != dtype) return nullptr;
    const Step* step = steps_.find(&input);
    return step && (step->uses == reads || step->repeated) ? step : nullptr;
  }

  NodeMap<int> uses_;     // of original nodes
  NodeMap<bool> stored_;  // original ones that others than element-wise nodes use
  NodeMap<Step> steps_;   // fused ones
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
