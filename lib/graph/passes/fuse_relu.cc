// fuse_relu: relu of a normalisation is computed as the normalisation is, and its gradient where
// that of the normalisation reads it: one pass over memory less each.
//
// Precondition: element-wise operations are not fused yet. Postcondition: no operation with
// OpDef::takes_relu has relu, through views, as the only thing that reads its first result, and no
// gradient of one with relu (OpDef::through_relu) reads what relu's gradient makes, where(0 < relu,
// dy, 0). The same bits.
#include "lib/graph/passes/filled_with.h"
#include "lib/graph/passes/passes.h"

namespace lumen::graph::passes {
namespace {

const NodePtr& behind_reshapes(const NodePtr& node) {
  const NodePtr* at = &node;
  while ((*at)->op == &kReshape) at = &(*at)->inputs[0];
  return *at;
}

bool is_beyond_first(const Node& user, const Node& normal) {
  return user.op == &kSlice && user.attrs.integer("begin") >= normal.inputs[0]->shape.elements();
}

// The operation with takes_relu whose first result `node` is, reshaped or not, else null.
const Node* source_of_first(const NodePtr& node) {
  const Node& part = *behind_reshapes(node);
  if (part.op->takes_relu && part.shape == part.inputs[0]->shape) return &part;  // all there is
  if (part.op != &kSlice) return nullptr;
  const Node& source = *part.inputs[0];
  const bool is_first = source.op->takes_relu && part.attrs.integer("begin") == 0 &&
                        part.shape.elements() == source.inputs[0]->shape.elements();
  return is_first ? &source : nullptr;
}

// Of the operations with takes_relu what reads their first result, and of those that relu alone
// reads, that relu.
class Relus {
 public:
  explicit Relus(const Graph& graph) : uses_(graph.uses()) {
    for (const NodePtr& output : graph.outputs()) {
      if (output->op->takes_relu) ++readers_[output.get()];
    }
    for (const NodePtr& node : graph.nodes()) {
      for (const NodePtr& input : node->inputs) {
        if (input->op->takes_relu && !is_beyond_first(*node, *input)) ++readers_[input.get()];
      }
    }
    for (const NodePtr& node : graph.nodes()) {
      if (node->op->name != "relu" || !is_only_reader(node->inputs[0])) continue;
      const Node* const source = source_of_first(node->inputs[0]);
      if (source && readers_.at(source) == 1 && !source->attrs.has(kReluAttr)) {
        fused_[node.get()] = true;
        fused_[source] = true;
      }
    }
  }

  // Whether it is such an operation or such a relu.
  bool has(const Node& node) const { return fused_.find(&node) != nullptr; }

 private:
  bool is_only_reader(const NodePtr& read) const {
    const Node* at = read.get();
    for (; at->op == &kReshape; at = at->inputs[0].get()) {
      if (uses_.at(at) != 1) return false;
    }
    return uses_.at(at) == 1;
  }

  NodeMap<int> uses_, readers_;
  NodeMap<bool> fused_;
};

// With relu's gradient left to `node`; itself if there is none.
NodePtr take_gradient(const NodePtr& node) {
  const NodePtr& dy = node->inputs[node->op->relu_gradient];
  const Node& where = *behind_reshapes(dy);
  if (where.op->name != "where" || where.dtype != DType::kF32) return node;
  const Node& less = *where.inputs[0];
  if (less.op->name != "less_than" || !is_filled_with(*less.inputs[0], 0) ||
      !is_filled_with(*where.inputs[2], 0)) {
    return node;
  }
  const Node* const forward = source_of_first(less.inputs[1]);
  if (!forward || !forward->attrs.has(kReluAttr)) return node;
  const NodePtr through =
      node->op->through_relu(*node, *forward, reshape(Tensor(where.inputs[1]), dy->shape).node());
  return through ? through : node;
}

NodePtr with_relu(const Node& node) {
  const std::shared_ptr<Node> copy = unevaluated(node);
  copy->attrs.add(kReluAttr, int64_t{1});
  return copy;
}

Graph run_fuse_relu(const Graph& graph) {
  const Relus relus(graph);
  return rewrite(graph, [&](const NodePtr& node, const NodePtr& original) {
    if (relus.has(*original)) return node->op->takes_relu ? with_relu(*node) : node->inputs[0];
    return node->op->through_relu ? take_gradient(node) : node;
  });
}

}  // namespace

Pass fuse_relu() {
  return {"fuse_relu", run_fuse_relu};
}

}  // namespace lumen::graph::passes
