// fuse_epilogues: element-wise work on the result of a product, or on the gradient of an embedding,
// is done on each finished piece while it is in cache (bias, residual; the gradient of a tied
// output).
//
// Precondition: element-wise operations are fused. Postcondition: nothing that takes an epilogue
// has as its only user a `fused` node whose other operands advance by one stride per row and
// column.
#include "lib/graph/passes/passes.h"
#include "lib/graph/program.h"

namespace lumen::graph::passes {
namespace {

// The operand of `fused` that is a product used by nothing else, or −1.
int product_operand(const Node& fused, const NodeMap<int>& uses,
                    const NodeMap<const Node*>& originals) {
  for (size_t i = 0; i < fused.inputs.size(); ++i) {
    const Node* input = fused.inputs[i].get();
    const Node* const* original = originals.find(input);
    if (input->op->takes_epilogue && !input->epilogue && input->dtype == DType::kF32 && original &&
        uses.at(*original) == 1) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

NodePtr attach(const Node& fused, int operand) {
  const NodePtr& product = fused.inputs[operand];
  Program program = *fused.epilogue;
  // Register 0 must be the product's result: swap it with operand `operand`.
  for (auto& instruction : program.code) {
    for (int& argument : instruction.arguments) {
      if (argument == operand) {
        argument = 0;
      } else if (argument < operand) {
        ++argument;
      }
    }
  }
  const std::shared_ptr<Node> node = unevaluated(*product);
  for (size_t i = 0; i < fused.inputs.size(); ++i) {
    if (static_cast<int>(i) != operand) node->inputs.push_back(fused.inputs[i]);
  }
  node->epilogue = finished(std::move(program));
  return node;
}

Graph run_fuse_epilogues(const Graph& graph) {
  const auto uses = graph.uses();
  NodeMap<const Node*> originals;  // products: rewritten → original
  return rewrite(graph, [&](const NodePtr& node, const NodePtr& original) {
    NodePtr result = node;
    if (node->op == &kFused && node->dtype == DType::kF32) {
      const int operand = product_operand(*node, uses, originals);
      if (operand >= 0) result = attach(*node, operand);
    }
    if (result->op->takes_epilogue) originals[result.get()] = original.get();
    return result;
  });
}

}  // namespace

Pass fuse_epilogues() {
  return {"fuse_epilogues", run_fuse_epilogues};
}

}  // namespace lumen::graph::passes
