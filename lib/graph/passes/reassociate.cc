// reassociate: products that cost less in another order (OpDef::reassociate): rows looked up in a
// small table are multiplied before they are looked up, not after.
//
// Precondition: products are not fused yet. Postcondition: no operation with the rule can be
// replaced by it. Sums are rounded in another order, the same for every number of threads.
#include "lib/graph/passes/passes.h"

namespace lumen::graph::passes {

Pass reassociate() {
  return {"reassociate", [](const Graph& graph) {
            return rewrite(graph, [](const NodePtr& node, const NodePtr&) {
              if (!node->op->reassociate) return node;
              const NodePtr cheaper = node->op->reassociate(node);
              return cheaper ? cheaper : node;
            });
          }};
}

}  // namespace lumen::graph::passes
