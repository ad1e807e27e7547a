// store_bf16: values of mixed precision are stored in bfloat16.
//
// Precondition: fusion is done, layouts are not materialised yet. Postcondition: in a graph with
// products that round to bfloat16 a float32 result is stored so if its operation can do it
// (OpDef::gives_bf16), all that reads it, through views, can read it (OpDef::bf16_input), it is no
// output of the graph, and
// - products that round it are all that reads it, besides sums, or what it is joined to: what they
//   compute stays the same to the bit, sums (the gradients of biases) add up rounded numbers; or
// - it is the result of such a product, or made of nothing but bfloat16, besides what is repeated
//   along its rows (biases): what PyTorch's autocast gives.
// So residual streams, statistics and losses stay float32. Products take and give bfloat16 only
// where the calling thread has a unit for it (kernels/amx.h); elsewhere nothing changes.
#include <algorithm>

#include "lib/graph/mixed_precision.h"
#include "lib/graph/passes/passes.h"
#include "lib/graph/program.h"

namespace lumen::graph::passes {
namespace {

// The first of the inputs that are operands of element-wise work.
size_t first_operand(const Node& node) {
  if (node.op == &kFused) return 0;
  const bool has_epilogue = node.op->takes_epilogue && node.epilogue;
  return node.inputs.size() - (has_epilogue ? node.epilogue->inputs - 1 : 0);
}

// What all that reads a value makes of it.
struct Readers {
  bool can_all = true;   // read bfloat16
  bool lose_all = true;  // round it, or add it up
  bool rounds_any = false;

  bool lose_nothing() const { return can_all && lose_all && rounds_any; }

  void add(const Readers& other) {
    can_all &= other.can_all;
    lose_all &= other.lose_all;
    rounds_any |= other.rounds_any;
  }
};

Readers reader(Bf16Input use) {
  return {.can_all = use != Bf16Input::kNo,
          .lose_all = use == Bf16Input::kRounded || use == Bf16Input::kSummed,
          .rounds_any = use == Bf16Input::kRounded};
}

Bf16Input use_of_input(const Node& node, size_t i) {
  if (i >= first_operand(node)) return Bf16Input::kRead;
  return node.op->bf16_input ? node.op->bf16_input(node, i) : Bf16Input::kNo;
}

Readers reader_of_input(const Node& node, size_t i, const NodeMap<Readers>& readers) {
  const bool is_view = node.op->kind == OpKind::kView;
  const Bf16Input use = is_view ? Bf16Input::kNo : use_of_input(node, i);
  if (!is_view && use != Bf16Input::kJoined) return reader(use);
  const Readers* const found = readers.find(&node);
  if (!found || (is_view && i > 0)) return reader(Bf16Input::kNo);
  if (is_view) return *found;
  return reader(found->lose_nothing() ? Bf16Input::kRounded : Bf16Input::kNo);
}

NodeMap<Readers> readers_in(const Graph& graph) {
  NodeMap<Readers> readers(graph.nodes().size());
  for (const NodePtr& output : graph.outputs()) {
    readers[output.get()].add(reader(Bf16Input::kNo));
  }
  for (size_t at = graph.nodes().size(); at-- > 0;) {
    const Node& node = *graph.nodes()[at];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      readers[node.inputs[i].get()].add(reader_of_input(node, i, readers));
    }
  }
  return readers;
}

bool is_repeated(const Node& operand) {
  const Node* at = &operand;
  while (at->op->kind == OpKind::kView) at = at->inputs[0].get();
  return at->shape.elements() < operand.shape.elements();
}

// Whether it is computed from numbers of low precision alone.
bool is_low(const Node& node) {
  bool any = in_bf16(node);
  for (size_t i = any ? first_operand(node) : 0; i < node.inputs.size(); ++i) {
    const Node& operand = *node.inputs[i];
    const Bf16Input use = use_of_input(node, i);
    if (use == Bf16Input::kNo || use == Bf16Input::kJoined) continue;
    if (operand.dtype != DType::kBF16 && !is_repeated(operand)) return false;
    any |= operand.dtype == DType::kBF16;
  }
  return any;
}

std::shared_ptr<Node> with_dtype(const Node& node, DType dtype) {
  std::shared_ptr<Node> copy = unevaluated(node);
  copy->dtype = dtype;
  return copy;
}

Graph run_store_bf16(const Graph& graph) {
  if (std::ranges::none_of(graph.nodes(), [](const NodePtr& node) { return in_bf16(*node); })) {
    return graph;
  }
  const NodeMap<Readers> readers = readers_in(graph);
  return rewrite(graph, [&](const NodePtr& node, const NodePtr& original) {
    if (node->op->kind == OpKind::kView) {
      const DType dtype = node->inputs[0]->dtype;
      return dtype == node->dtype ? node : with_dtype(*node, dtype);
    }
    if (node->dtype != DType::kF32 || !node->op->gives_bf16) return node;
    const Readers& all = readers.at(original.get());
    const bool may = all.lose_nothing() || (all.can_all && is_low(*node));
    if (!may || !node->op->gives_bf16(*node)) {
      return node;
    }
    const std::shared_ptr<Node> stored = with_dtype(*node, DType::kBF16);
    if (node->op != &kFused) set_stored_in_bf16(stored->attrs);
    return stored;
  });
}

}  // namespace

Pass store_bf16() {
  return {"store_bf16", run_store_bf16};
}

}  // namespace lumen::graph::passes
