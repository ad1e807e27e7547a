// schedule: an execution order that keeps little alive.
//
// Precondition: none; must be the last pass, since rebuilding a graph forgets its order.
// Postcondition: the same nodes, inputs before users; among a node's inputs the one whose
// computation holds the most memory beyond its own result runs first (Sethi & Ullman 1970).
#include <algorithm>

#include "lib/graph/passes/passes.h"

namespace lumen::graph::passes {
namespace {

// Bytes that running a node adds to what is alive.
double result_bytes(const Node& node) {
  const bool computed =
      node.op->kind != OpKind::kLeaf && node.op->kind != OpKind::kView && node.op->overwrites < 0;
  return computed ? static_cast<double>(row_bytes(node.dtype, node.shape.elements())) : 0;
}

class Scheduler {
 public:
  explicit Scheduler(const Graph& graph) : costs_(graph.nodes().size()) {
    for (const NodePtr& node : graph.nodes()) measure(*node);
  }

  // The inputs of `node`, the one to run first in front.
  std::vector<NodePtr> ordered_inputs(const Node& node) const {
    std::vector<NodePtr> order = node.inputs;
    const auto beyond_result = [&](const NodePtr& input) {
      const Cost& cost = costs_.at(input.get());
      return cost.peak - cost.result;
    };
    if (!std::ranges::is_sorted(order, std::greater(), beyond_result)) {
      std::ranges::stable_sort(order, std::greater(), beyond_result);
    }
    return order;
  }

 private:
  struct Cost {
    double peak = 0;    // bytes alive at worst while the node alone is computed
    double result = 0;  // that its result adds
  };

  // Of a node whose inputs are measured.
  void measure(const Node& node) {
    double held = 0, worst = 0;
    for (const NodePtr& input : ordered_inputs(node)) {
      const Cost& cost = costs_.at(input.get());
      worst = std::max(worst, held + cost.peak);
      held += cost.result;
    }
    const double result = result_bytes(node);
    costs_[&node] = {std::max(worst, held + result), result};
  }

  NodeMap<Cost> costs_;
};

Graph run_schedule(const Graph& graph) {
  const Scheduler scheduler(graph);
  struct Visit {
    NodePtr node;
    std::vector<NodePtr> inputs;
    size_t next = 0;
  };
  std::vector<NodePtr> order;
  NodeSet seen(graph.nodes().size());
  std::vector<Visit> stack;
  auto enter = [&](const NodePtr& node) {
    if (seen.insert(node.get())) stack.push_back({node, scheduler.ordered_inputs(*node)});
  };
  for (const NodePtr& output : graph.outputs()) {
    enter(output);
    while (!stack.empty()) {
      if (stack.back().next == stack.back().inputs.size()) {
        order.push_back(std::move(stack.back().node));
        stack.pop_back();
      } else {
        const NodePtr input = std::move(stack.back().inputs[stack.back().next++]);
        enter(input);
      }
    }
  }
  return Graph(graph.outputs(), std::move(order));
}

}  // namespace

Pass schedule() {
  return {"schedule", run_schedule};
}

}  // namespace lumen::graph::passes
