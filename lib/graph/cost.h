// The work that a node of a graph is.
#pragma once

#include "lib/graph/node.h"

namespace lumen::graph {

// Bytes of all elements of the result of `node`. Thread-safe.
double stored_bytes(const Node& node);

// OpDef::cost of `node`, without one the bytes of its inputs and result, of a broadcast input those
// that there are, of what a gather chooses from those that it takes; and of what is fused to it one
// operation per element and instruction, and the bytes of its operands. Thread-safe.
Cost cost_of(const Node& node);

// Whether `node` may touch only a part of its inputs or result, which part the values tell: the
// filled positions of a KV cache. cost_of() is then the most that it can be. Thread-safe.
bool is_cost_a_bound(const Node& node);

}  // namespace lumen::graph
