#include "lib/graph/graph.h"

#include <unordered_set>

#include "lib/base/error.h"
#include "lib/graph/passes/passes.h"

namespace lumen::graph {

Graph::Graph(std::vector<NodePtr> outputs) : outputs_(std::move(outputs)) {
  struct Visit {
    const NodePtr* node;
    size_t next_input;
  };
  std::unordered_set<const Node*> seen;
  std::vector<Visit> stack;  // explicit: graphs are deeper than the call stack
  for (const NodePtr& output : outputs_) {
    if (!seen.insert(output.get()).second) continue;
    stack.push_back({&output, 0});
    while (!stack.empty()) {
      Visit& top = stack.back();
      const auto& inputs = (*top.node)->inputs;
      if (top.next_input == inputs.size()) {
        nodes_.push_back(*top.node);
        stack.pop_back();
        continue;
      }
      const NodePtr& input = inputs[top.next_input++];
      if (seen.insert(input.get()).second) stack.push_back({&input, 0});
    }
  }
}

std::unordered_map<const Node*, int> Graph::uses() const {
  std::unordered_map<const Node*, int> count;
  for (const NodePtr& node : nodes_) {
    for (const NodePtr& input : node->inputs) ++count[input.get()];
  }
  for (const NodePtr& output : outputs_) ++count[output.get()];
  return count;
}

NodePtr with_inputs(const NodePtr& node, std::vector<NodePtr> inputs) {
  if (inputs == node->inputs) return node;
  auto copy = std::make_shared<Node>();
  copy->op = node->op;
  copy->inputs = std::move(inputs);
  copy->attrs = node->attrs;
  copy->shape = node->shape;
  copy->dtype = node->dtype;
  copy->name = node->name;
  copy->epilogue = node->epilogue;
  return copy;
}

Graph rewrite(const Graph& graph,
              const std::function<NodePtr(const NodePtr&, const NodePtr&)>& visit) {
  std::unordered_map<const Node*, NodePtr> replaced;
  replaced.reserve(graph.nodes().size());
  for (const NodePtr& node : graph.nodes()) {
    std::vector<NodePtr> inputs;
    inputs.reserve(node->inputs.size());
    for (const NodePtr& input : node->inputs) inputs.push_back(replaced.at(input.get()));
    replaced[node.get()] = visit(with_inputs(node, std::move(inputs)), node);
  }
  std::vector<NodePtr> outputs;
  for (const NodePtr& output : graph.outputs()) outputs.push_back(replaced.at(output.get()));
  return Graph(std::move(outputs));
}

Graph run_passes(Graph graph, const Pipeline& pipeline, bool verified) {
  for (const Pass& pass : pipeline) {
    graph = pass.run(graph);
    if (verified) {
      with_context(str("after pass ", pass.name), [&] { passes::verify().run(graph); });
    }
  }
  return graph;
}

}  // namespace lumen::graph
