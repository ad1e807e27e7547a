// verify: checks a graph, changes nothing.
//
// Precondition: none. Postcondition: the same graph, in which every node has the shape and dtype
// that its operation infers, inputs precede users, element-wise inputs have the result's shape,
// programs stay within their limits and read existing registers, and memory that an operation
// overwrites is read by no other, except by those it depends on.
#include <algorithm>

#include "lib/base/error.h"
#include "lib/graph/passes/passes.h"
#include "lib/graph/program.h"

namespace lumen::graph::passes {
namespace {

void check(bool condition, const Node& node, const char* what) {
  if (!condition) fail(ErrorKind::kInternal, "node ", node.op->name, ": ", what);
}

void check_program(const Node& node) {
  const Program& program = *node.epilogue;
  check(program.inputs <= Program::kMaxInputs, node, "program has too many operands");
  check(!program.code.empty() && program.code.size() <= Program::kMaxInstructions, node,
        "program has no or too many instructions");
  int defined = program.inputs;
  for (const auto& instruction : program.code) {
    check(instruction.op->block != nullptr, node, "program runs an op without a block function");
    for (int argument : instruction.arguments) {
      check(argument >= 0 && argument < defined, node, "program reads an undefined register");
    }
    ++defined;
  }
}

// Whether all other readers of `memory` are needed by `writer`, and so run before it.
bool others_read_first(const Graph& graph, const Node* memory, const Node& writer) {
  NodeSet before;
  std::vector<const Node*> pending = {&writer};
  while (!pending.empty()) {
    const Node* node = pending.back();
    pending.pop_back();
    for (const NodePtr& input : node->inputs) {
      if (before.insert(input.get())) pending.push_back(input.get());
    }
  }
  for (const NodePtr& node : graph.nodes()) {
    const auto& inputs = node->inputs;
    const bool reads = std::any_of(inputs.begin(), inputs.end(),
                                   [&](const NodePtr& input) { return input.get() == memory; });
    if (reads && node.get() != &writer && !before.contains(node.get())) return false;
  }
  return true;
}

Graph run_verify(const Graph& graph) {
  NodeSet seen;
  const auto uses = graph.uses();
  for (const NodePtr& node : graph.nodes()) {
    for (const NodePtr& input : node->inputs) {
      check(seen.contains(input.get()), *node, "an input comes after its user");
    }
    seen.insert(node.get());
    const TypedShape inferred = node->op->infer(*node);
    check(inferred.shape == node->shape && inferred.dtype == node->dtype, *node,
          "shape or dtype differs from what the operation infers");
    if (node->op->kind == OpKind::kElementwise) {
      for (const NodePtr& input : node->inputs) {
        check(input->shape == node->shape, *node, "an element-wise input has another shape");
      }
    }
    if (node->epilogue) check_program(*node);
    if (node->op->overwrites >= 0) {
      const Node* memory = node->inputs[node->op->overwrites].get();
      check(is_state(*memory) || memory->op->overwrites >= 0, *node, "overwrites what is no state");
      check(uses.at(memory) == 1 || others_read_first(graph, memory, *node), *node,
            "overwrites memory that has another reader");
    }
  }
  for (const NodePtr& output : graph.outputs()) {
    check(seen.contains(output.get()), *output, "an output is not in the graph");
  }
  return graph;
}

}  // namespace

Pass verify() {
  return {"verify", run_verify};
}

}  // namespace lumen::graph::passes
