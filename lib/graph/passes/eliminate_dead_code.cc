// eliminate_dead_code: keeps only what the outputs need.
//
// Precondition: none. Postcondition: every node is reachable from an output. (Building a Graph
// collects exactly these; the pass exists so that a pipeline can say when.)
#include "lib/graph/passes/passes.h"

namespace lumen::graph::passes {

Pass eliminate_dead_code() {
  return {"eliminate_dead_code", [](const Graph& graph) { return Graph(graph.outputs()); }};
}

}  // namespace lumen::graph::passes
