// A graph as passes see it: the wanted results and everything they need, in execution order.
#pragma once

#include <functional>
#include <vector>

#include "lib/graph/node_map.h"
#include "lib/graph/tensor.h"

namespace lumen::graph {

// Results, and all nodes they depend on with inputs before users. Nodes are shared with the
// tensors they came from: passes never change a node, they build new ones.
class Graph {
 public:
  Graph() = default;
  // Collects what `outputs` need, depth first: unreachable nodes do not exist here.
  explicit Graph(std::vector<NodePtr> outputs);
  // With an execution order of one's own: all nodes, inputs before users.
  Graph(std::vector<NodePtr> outputs, std::vector<NodePtr> nodes)
      : outputs_(std::move(outputs)), nodes_(std::move(nodes)) {}

  const std::vector<NodePtr>& outputs() const { return outputs_; }
  const std::vector<NodePtr>& nodes() const& { return nodes_; }
  std::vector<NodePtr> nodes() && { return std::move(nodes_); }

  // How many uses each node has; being an output counts as one.
  NodeMap<int> uses() const;

 private:
  std::vector<NodePtr> outputs_;
  std::vector<NodePtr> nodes_;
};

// A node like `node`, to be changed: without a value or a gradient.
std::shared_ptr<Node> unevaluated(const Node& node);

// A node with the same operation on other inputs; `node` itself if they are the same.
NodePtr with_inputs(const NodePtr& node, std::vector<NodePtr> inputs);

// Rebuilds a graph in execution order. `visit` gets each node with its inputs already rewritten and
// returns the node to take its place (itself to keep it), plus the original for look-ups. A graph
// of which nothing was replaced is returned as it is.
Graph rewrite(const Graph& graph,
              const std::function<NodePtr(const NodePtr& node, const NodePtr& original)>& visit);

// A pass: Graph → Graph with the same outputs in meaning. Values, to be composed in a list.
struct Pass {
  std::string_view name;
  std::function<Graph(const Graph&)> run;
};
using Pipeline = std::vector<Pass>;

// Runs the passes in order; with `verified`, the verify pass after each, its errors naming the
// pass.
Graph run_passes(Graph graph, const Pipeline& pipeline, bool verified = false);

}  // namespace lumen::graph
