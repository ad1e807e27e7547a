// Pictures of a graph.
#pragma once

#include <string>

#include "lib/graph/graph.h"

namespace lumen::graph {

// Graphviz DOT: one box per node with operation, attributes, shape and dtype; views are drawn
// dashed, constants and states as ellipses with their names. `dot -Tsvg` makes the picture.
std::string to_dot(const Graph& graph);

// One line per node in execution order: "%7 = mul(%3, %5) f32 [2, 4]".
std::string to_text(const Graph& graph);

}  // namespace lumen::graph
