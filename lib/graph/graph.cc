#include "lib/graph/graph.h"

#include <algorithm>

#include "lib/base/error.h"
#include "lib/graph/passes/passes.h"

namespace lumen::graph {

Graph::Graph(std::vector<NodePtr> outputs) : outputs_(std::move(outputs)) {
  struct Visit {
    const NodePtr* node;
    size_t next_input;
  };
  NodeSet seen;
  std::vector<Visit> stack;  // explicit: graphs are deeper than the call stack
  for (const NodePtr& output : outputs_) {
    if (!seen.insert(output.get())) continue;
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
      if (seen.insert(input.get())) stack.push_back({&input, 0});
    }
  }
}

NodeMap<int> Graph::uses() const {
  NodeMap<int> count(nodes_.size());
  for (const NodePtr& node : nodes_) {
    for (const NodePtr& input : node->inputs) ++count[input.get()];
  }
  for (const NodePtr& output : outputs_) ++count[output.get()];
  return count;
}

std::shared_ptr<Node> unevaluated(const Node& node) {
  auto copy = std::make_shared<Node>();
  copy->op = node.op;
  copy->inputs = node.inputs;
  copy->attrs = node.attrs;
  copy->shape = node.shape;
  copy->dtype = node.dtype;
  copy->name = node.name;
  copy->epilogue = node.epilogue;
  return copy;
}

NodePtr with_inputs(const NodePtr& node, std::vector<NodePtr> inputs) {
  if (inputs == node->inputs) return node;
  std::shared_ptr<Node> copy = unevaluated(*node);
  copy->inputs = std::move(inputs);
  return copy;
}

Graph rewrite(const Graph& graph,
              const std::function<NodePtr(const NodePtr&, const NodePtr&)>& visit) {
  NodeMap<NodePtr> replaced;  // those that are not themselves
  const auto now = [&](const NodePtr& node) -> const NodePtr& {
    const NodePtr* other = replaced.find(node.get());
    return other ? *other : node;
  };
  for (const NodePtr& node : graph.nodes()) {
    const bool keeps = std::ranges::none_of(
        node->inputs, [&](const NodePtr& input) { return replaced.contains(input.get()); });
    NodePtr result;
    if (keeps) {
      result = visit(node, node);
    } else {
      std::vector<NodePtr> inputs;
      inputs.reserve(node->inputs.size());
      for (const NodePtr& input : node->inputs) inputs.push_back(now(input));
      result = visit(with_inputs(node, std::move(inputs)), node);
    }
    if (result != node) replaced[node.get()] = std::move(result);
  }
  if (replaced.size() == 0) return graph;
  std::vector<NodePtr> outputs;
  for (const NodePtr& output : graph.outputs()) outputs.push_back(now(output));
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
