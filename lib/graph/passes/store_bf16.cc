// store_bf16: values of mixed precision are stored in bfloat16.
//
// Precondition: fusion is done, layouts are not materialised yet. Postcondition: a float32 result
// is stored in bfloat16 if its operation can do so (OpDef::gives_bf16), whatever reads it, through
// views, can read it so (OpDef::bf16_input), it is no output of the graph, and
// - products that round it are all that reads it, besides sums: what they compute stays the same to
//   the bit, sums (the gradients of biases) add up rounded numbers; or
// - it is a result of products that round, or all that it is made of, besides what is repeated
// along
//   its rows (biases), is stored in bfloat16 itself: what PyTorch's autocast gives.
// So residual streams, statistics and losses stay float32. Only where the calling thread has a unit
// for products in bfloat16 (kernels/amx.h): elsewhere nothing takes or gives it.
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
  if (node.op->kind != OpKind::kView) return reader(use_of_input(node, i));
  const Readers* const found = readers.find(&node);
  return i == 0 && found ? *found : reader(Bf16Input::kNo);
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
    if (use_of_input(node, i) == Bf16Input::kNo) continue;
    if (operand.dtype != DType::kBF16 && !is_repeated(operand)) return false;
    any |= operand.dtype == DType::kBF16;
  }
  return any;
}

NodePtr with_dtype(const Node& node, DType dtype) {
  auto copy = std::make_shared<Node>();
  copy->op = node.op;
  copy->inputs = node.inputs;
  copy->attrs = node.attrs;
  copy->shape = node.shape;
  copy->dtype = dtype;
  copy->name = node.name;
  copy->epilogue = node.epilogue;
  return copy;
}

Graph run_store_bf16(const Graph& graph) {
  const NodeMap<Readers> readers = readers_in(graph);
  return rewrite(graph, [&](const NodePtr& node, const NodePtr& original) {
    if (node->op->kind == OpKind::kView) {
      const DType dtype = node->inputs[0]->dtype;
      return dtype == node->dtype ? node : with_dtype(*node, dtype);
    }
    if (node->dtype != DType::kF32 || !node->op->gives_bf16) return node;
    const Readers& all = readers.at(original.get());
    const bool loses_nothing = all.lose_all && all.rounds_any;
    if (!all.can_all || !(loses_nothing || is_low(*node)) || !node->op->gives_bf16(*node)) {
      return node;
    }
    NodePtr stored = with_dtype(*node, DType::kBF16);
    if (node->op != &kFused) set_stored_in_bf16(stored->attrs);
    return stored;
  });
}

}  // namespace

Pass store_bf16() {
  return {"store_bf16", run_store_bf16};
}

}  // namespace lumen::graph::passes
