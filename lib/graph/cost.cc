#include "lib/graph/cost.h"

#include <algorithm>

#include "lib/graph/program.h"

namespace lumen::graph {
namespace {

// A slice has fewer than what it is a view of, a broadcast value more.
double bytes_read(const Node& input) {
  double bytes = stored_bytes(input);
  for (const Node* node = &input; node->op->kind == OpKind::kView; node = node->inputs[0].get()) {
    bytes = std::min(bytes, stored_bytes(*node->inputs[0]));
  }
  return bytes;
}

double bytes_read(std::span<const NodePtr> inputs) {
  double bytes = 0;
  for (const NodePtr& input : inputs) bytes += bytes_read(*input);
  return bytes;
}

// Of input 0 a gather reads as many elements as it gives.
double bytes_gathered(const Node& node) {
  const Node& table = *node.inputs[0];
  const auto chosen = static_cast<double>(row_bytes(table.dtype, node.shape.elements()));
  return chosen + bytes_read(std::span(node.inputs).subspan(1));
}

// A state that steps fill piece by piece, as attention sees it.
bool is_of_filled_state(const Node& input) {
  const Node* node = &input;
  while (node->op->kind == OpKind::kView) node = node->inputs[0].get();
  return node->op->overwrites >= 0;
}

}  // namespace

double stored_bytes(const Node& node) {
  return static_cast<double>(row_bytes(node.dtype, node.shape.elements()));
}

Cost cost_of(const Node& node) {
  const std::span<const NodePtr> inputs = node.inputs;
  // What `cost` does not know of; register 0 of an epilogue is the result.
  const bool has_epilogue = node.op->takes_epilogue && node.epilogue;
  const size_t operands = has_epilogue ? static_cast<size_t>(node.epilogue->inputs) - 1 : 0;
  Cost cost;
  if (node.op->cost) {
    cost = node.op->cost(node);
  } else if (node.op->kind == OpKind::kGather) {
    cost.bytes = stored_bytes(node) + bytes_gathered(node);
  } else {
    cost.bytes = stored_bytes(node) + bytes_read(inputs.first(inputs.size() - operands));
  }
  if (!node.epilogue) return cost;
  cost.flops +=
      static_cast<double>(node.shape.elements()) * static_cast<double>(node.epilogue->code.size());
  cost.bytes += bytes_read(inputs.last(operands));
  return cost;
}

bool is_cost_a_bound(const Node& node) {
  if (node.op->cost == nullptr && node.op->overwrites >= 0) return true;
  return std::ranges::any_of(node.inputs,
                             [](const NodePtr& input) { return is_of_filled_state(*input); });
}

}  // namespace lumen::graph
