// fuse_gates: element-wise work on both halves of a product (a gated linear unit's gate and up) is
// done on each finished piece while it is in cache; the halves are stored nowhere.
//
// Precondition: siblings are merged and element-wise operations are fused. Postcondition: no
// product that can do it has the two halves of its result read by one `fused` node alone.
#include <optional>

#include "lib/graph/passes/passes.h"
#include "lib/graph/program.h"
#include "lib/graph/views.h"

namespace lumen::graph::passes {
namespace {

// Which half of `product` a view is: 0 or 1.
std::optional<int> half_of(const Node& view, const Node& product) {
  if (view.op != &kSlice || view.inputs[0].get() != &product) return std::nullopt;
  const int64_t width = view.shape[-1], begin = view.attrs.integer("begin");
  const bool is_half = width > 0 && view.attrs.integer("axis") == view.shape.rank() - 1 &&
                       2 * width == product.shape[-1] && begin % width == 0;
  return is_half ? std::optional(static_cast<int>(begin / width)) : std::nullopt;
}

// The half that operand 0 of `fused` is, if its operands are the halves of one product and it is
// all that reads them.
std::optional<int> first_half(const Node& fused, const NodeMap<int>& uses) {
  if (fused.op != &kFused || fused.dtype != DType::kF32 || fused.inputs.size() != 2) {
    return std::nullopt;
  }
  const Node &a = *fused.inputs[0], &b = *fused.inputs[1];
  if (a.op != &kSlice || uses.at(&a) != 1 || uses.at(&b) != 1) return std::nullopt;
  const Node& product = *a.inputs[0];
  if (product.op->gate == nullptr || uses.at(&product) != 2) return std::nullopt;
  const std::optional<int> first = half_of(a, product), second = half_of(b, product);
  return first && second && *first != *second ? first : std::nullopt;
}

std::shared_ptr<const Program> with_swapped_operands(const Program& program) {
  Program swapped = program;
  for (auto& instruction : swapped.code) {
    for (int& argument : instruction.arguments) {
      if (argument < 2) argument = 1 - argument;
    }
  }
  return finished(std::move(swapped));
}

Graph run_fuse_gates(const Graph& graph) {
  const auto uses = graph.uses();
  return rewrite(graph, [&](const NodePtr& node, const NodePtr& original) {
    const std::optional<int> first = first_half(*original, uses);
    if (!first) return node;
    const Node& product = *node->inputs[0]->inputs[0];
    const NodePtr gated = product.op->gate(
        product, *first == 0 ? node->epilogue : with_swapped_operands(*node->epilogue));
    return gated ? gated : node;
  });
}

}  // namespace

Pass fuse_gates() {
  return {"fuse_gates", run_fuse_gates};
}

}  // namespace lumen::graph::passes
