// materialize_layouts: inserts copies where a kernel cannot read a view as it lies.
//
// Precondition: fusion is done. Postcondition: every view is possible on its input's layout, every
// input of a kernel has a layout the kernel accepts, epilogue operands advance by one stride per
// row, and outputs are contiguous results of kernels or parts of such.
#include "lib/graph/layout.h"
#include "lib/graph/passes/passes.h"
#include "lib/graph/program.h"
#include "lib/graph/views.h"

namespace lumen::graph::passes {
namespace {

class Materializer {
 public:
  NodePtr visit(const NodePtr& node) {
    std::vector<NodePtr> inputs = node->inputs;
    const size_t own_inputs = node->inputs.size() - epilogue_operands(*node);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!readable(*node, i, i >= own_inputs)) inputs[i] = copy(inputs[i]);
    }
    NodePtr result = with_inputs(node, std::move(inputs));
    if (!record(result)) {
      result = with_inputs(result, {copy(result->inputs[0])});
      LUMEN_CHECK(record(result));
    }
    return result;
  }

  // Outputs must outlive the run in the plan's own memory, or in a state that they overwrite.
  NodePtr output(const NodePtr& node) {
    if (node->op->kind != OpKind::kLeaf && node->op->kind != OpKind::kView) return node;
    const StridedLayout& layout = layouts_.at(node.get());
    const bool lies_there = layout.root->op->kind != OpKind::kLeaf &&
                            satisfies(InputLayout::kContiguous, node->shape, layout.strides);
    return lies_there ? node : copy(node);
  }

 private:
  static size_t epilogue_operands(const Node& node) {
    return node.op->takes_epilogue && node.epilogue ? node.epilogue->inputs - 1 : 0;
  }

  bool readable(const Node& user, size_t i, bool epilogue_operand) const {
    if (user.op->kind == OpKind::kView || user.op->kind == OpKind::kLeaf) return true;
    const Node& input = *user.inputs[i];
    const StridedLayout& layout = layouts_.at(&input);
    int64_t stride;
    if (epilogue_operand) return common_row_stride(input.shape, layout.strides, stride);
    const OpDef& op = *user.op;
    const bool contiguous = (op.takes_panels && op.takes_panels(user, i)) ||
                            (op.contiguous_input && op.contiguous_input(user, i));
    return satisfies(contiguous ? InputLayout::kContiguous : op.layout, input.shape,
                     layout.strides);
  }

  NodePtr copy(const NodePtr& node) {
    NodePtr& known = copies_[node.get()];
    if (!known) {
      known = contiguous(Tensor(node)).node();
      kept_.push_back(node);
      record(known);
    }
    return known;
  }

  bool record(const NodePtr& node) {
    StridedLayout layout;
    const StridedLayout* first =
        node->inputs.empty() ? nullptr : &layouts_.at(node->inputs[0].get());
    if (!layout_of(*node, first, layout)) return false;
    layouts_[node.get()] = layout;
    kept_.push_back(node);
    return true;
  }

  NodeMap<StridedLayout> layouts_;
  NodeMap<NodePtr> copies_;
  std::vector<NodePtr> kept_;  // the maps are keyed by address: keep the nodes alive
};

Graph run_materialize_layouts(const Graph& graph) {
  Materializer materializer;
  const Graph result =
      rewrite(graph, [&](const NodePtr& node, const NodePtr&) { return materializer.visit(node); });
  std::vector<NodePtr> outputs;
  for (const NodePtr& node : result.outputs()) outputs.push_back(materializer.output(node));
  return Graph(std::move(outputs));
}

}  // namespace

Pass materialize_layouts() {
  return {"materialize_layouts", run_materialize_layouts};
}

}  // namespace lumen::graph::passes
