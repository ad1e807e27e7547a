// Pictures of a graph, and its steps in a few words.
#pragma once

#include <string>

#include "lib/graph/graph.h"

namespace lumen::graph {

// Graphviz DOT: one box per node with operation, attributes, shape and dtype; views are drawn
// dashed, constants and states as ellipses with their names. `dot -Tsvg` makes the picture.
std::string to_dot(const Graph& graph);

// One line per node in execution order: "%7 = mul(%3, %5) f32 [2, 4]".
std::string to_text(const Graph& graph);

// What a step of a plan computes: its operation and what is fused to it, "linear+silu+mul"; of a
// long program the first operations and how many more there are.
std::string step_name(const Node& node);

// By what its shapes are recognised: of a matrix product "m×n×k", with the number of them if the
// operands are stacked, "8 of 64×32×16"; of another contraction its operands; of what overwrites a
// state, what is written; else the result, after the largest input if that is larger, "[64, 10] →
// [64, 1]", or instead of a list (of several results in one: unpack) that input. Types that are not
// float32 are named.
std::string step_shapes(const Node& node);

}  // namespace lumen::graph
