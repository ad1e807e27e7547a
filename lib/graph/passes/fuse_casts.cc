// fuse_casts: fused steps read and give narrow floats, and reductions read them, without passes of
// their own that convert.
//
// Precondition: fusion is done, store_bf16 has chosen what is stored in bfloat16. Postcondition: no
// `fused` node, nor a reduction that is float32 of narrow floats too, reads a cast to float32 of
// float16 or bfloat16 that lies in rows; none is the only reader of a `fused` node of such a type,
// whose rounding is an instruction of it instead (unless a limit of Program forbids, or it would
// change nothing); and what takes few vector instructions and is read by `fused` nodes and casts
// alone is part of each of them. The same bits, but for the sign of NaNs.
#include "lib/graph/passes/filled_with.h"
#include "lib/graph/passes/passes.h"
#include "lib/graph/program.h"
#include "lib/graph/views.h"

namespace lumen::graph::passes {
namespace {

bool is_narrow(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16;
}

// Whether neighbours along the last axis are neighbours, or one number repeated, in memory that
// nothing overwrites.
bool lies_in_rows(const Node& node) {
  const Node* at = &node;
  while (at->op == &kReshape || at->op == &kSlice || at->op == &kExpand) at = at->inputs[0].get();
  return at->op->kind != OpKind::kView && !is_state(*at) && at->op->overwrites < 0;
}

// Whether its numbers are such as bfloat16 holds, by their type or as a single one that is known.
bool holds_bf16(const NodePtr& node) {
  if (fits_bf16(node->dtype)) return true;
  const std::optional<float> filling = filling_of(*node);
  return filling && fits_bf16(*filling);
}

NodePtr read_narrow(const NodePtr& node, const NodePtr&) {
  const bool reduces = node->op->kind == OpKind::kReduction && node->dtype == DType::kF32;
  if (node->op != &kFused && !reduces) return node;
  std::vector<NodePtr> inputs = node->inputs;
  for (NodePtr& input : inputs) {
    const bool widens = input->op == &kContiguous && input->dtype == DType::kF32 &&
                        is_narrow(input->inputs[0]->dtype);
    if (widens && lies_in_rows(*input->inputs[0])) input = NodePtr(input->inputs[0]);
  }
  if (inputs == node->inputs) return node;
  if (reduces) {
    const NodePtr reduced = make_node(*node->op, std::move(inputs), node->attrs);
    return reduced->dtype == DType::kF32 ? reduced : node;
  }
  Program program = *node->epilogue;
  join_operands(program, inputs);
  return make_fused(finished(std::move(program)), std::move(inputs), node->dtype);
}

bool narrows(const Node& node) {
  return node.op == &kContiguous && is_narrow(node.dtype) && node.inputs[0]->dtype == DType::kF32 &&
         node.inputs[0]->op == &kFused;
}

class Joiner {
 public:
  explicit Joiner(const Graph& graph) : uses_(graph.uses()), stored_(graph.nodes().size()) {
    for (const NodePtr& node : graph.nodes()) {
      if (node->op == &kFused || narrows(*node)) continue;
      for (const NodePtr& input : node->inputs) stored_[input.get()] = true;
    }
    for (const NodePtr& output : graph.outputs()) stored_[output.get()] = true;
  }

  NodePtr visit(const NodePtr& node, const NodePtr& original) {
    NodePtr result = node;
    if (narrows(*node) && is_repeated(*node->inputs[0])) {
      result = make_fused(node->inputs[0]->epilogue, node->inputs[0]->inputs, node->dtype);
    } else if (node->op == &kFused) {
      result = with_operands(node);
    }
    if (result->op == &kFused) originals_[result.get()] = original.get();
    return result;
  }

 private:
  NodePtr with_operands(const NodePtr& node) {
    std::vector<NodePtr> inputs = node->inputs;
    Program program = *node->epilogue;
    if (program.dtype != DType::kF32) return node;
    bool changed = false;
    for (size_t slot = 0; slot < inputs.size();) {
      const NodePtr input = inputs[slot];
      if (joins(*input, *node) &&
          inline_program(with_rounding(*input), input->inputs, slot, program, inputs)) {
        changed = true;
        slot = 0;  // operands were renumbered
      } else {
        ++slot;
      }
    }
    if (!changed) return node;
    return make_fused(finished(std::move(program)), std::move(inputs), node->dtype);
  }

  // Whether `input` may be computed as part of `node`, an operand of which it is.
  bool joins(const Node& input, const Node& node) const {
    if (input.op != &kFused || (input.dtype != DType::kF32 && !is_narrow(input.dtype))) {
      return false;
    }
    if (input.dtype == DType::kF32) return is_repeated(input);
    const Node* const* original = originals_.find(&input);
    if (!original || stored_.find(*original)) return false;
    const bool is_operand = std::ranges::any_of(
        node.inputs, [&](const NodePtr& operand) { return operand.get() == &input; });
    return is_operand && uses_.at(*original) == 1;
  }

  // Whether every step that reads it computes it: few instructions from one operand besides
  // constants, and nothing that must find it in memory.
  bool is_repeated(const Node& fused) const {
    constexpr size_t kMostInstructions = 3;
    const Node* const* original = originals_.find(&fused);
    if (!original || stored_.find(*original)) return false;
    const auto& code = fused.epilogue->code;
    const bool is_cheap = std::ranges::all_of(
        code, [](const auto& instruction) { return simple_form(*instruction.op) != kNoForm; });
    int operands = 0;
    for (const NodePtr& input : fused.inputs) {
      if (input->op->takes_epilogue) return false;
      operands += input->op != &kExpand;
    }
    return is_cheap && code.size() <= kMostInstructions && operands <= 1;
  }

  static Program with_rounding(const Node& fused) {
    Program program = *fused.epilogue;
    const bool is_exact = fused.dtype == DType::kBF16 && chooses(program) &&
                          std::ranges::all_of(fused.inputs, holds_bf16);
    if (fused.dtype != DType::kF32 && !is_exact) {
      const int last = program.inputs + static_cast<int>(program.code.size()) - 1;
      program.code.push_back({fused.dtype == DType::kBF16 ? &kToBf16 : &kToF16, {last}});
    }
    return program;
  }

  static constexpr auto kNoForm = kernels::TypedOp::kNone;
  NodeMap<int> uses_;               // of original nodes
  NodeMap<bool> stored_;            // original ones that others than fused steps use
  NodeMap<const Node*> originals_;  // of fused nodes
};

Graph run_fuse_casts(const Graph& graph) {
  if (std::ranges::none_of(graph.nodes(),
                           [](const NodePtr& node) { return is_narrow(node->dtype); })) {
    return graph;
  }
  const Graph narrow = rewrite(graph, read_narrow);
  Joiner joiner(narrow);
  return rewrite(narrow, [&](const NodePtr& node, const NodePtr& original) {
    return joiner.visit(node, original);
  });
}

}  // namespace

Pass fuse_casts() {
  return {"fuse_casts", run_fuse_casts};
}

}  // namespace lumen::graph::passes
