// eliminate_common: equal computations become one (common subexpression elimination).
//
// Precondition: none. Postcondition: no two nodes have the same operation, inputs, attributes and
// program; constants of the same bytes in memory, shape and dtype are one node. States, inputs and
// operations that overwrite memory are left alone.

#include "lib/graph/passes/passes.h"
#include "lib/graph/program.h"

namespace lumen::graph::passes {
namespace {

size_t mix(size_t hash, size_t value) {
  return (hash ^ value) * 0x9E3779B97F4A7C15ull;
}

size_t hash_of(const Node& node) {
  size_t hash = mix(0, reinterpret_cast<size_t>(node.op));
  for (const NodePtr& input : node.inputs) hash = mix(hash, reinterpret_cast<size_t>(input.get()));
  hash = mix(hash, reinterpret_cast<size_t>(node.value.storage()));
  for (int64_t dim : node.shape) hash = mix(hash, static_cast<size_t>(dim));
  return hash;
}

bool same_constant(const Node& a, const Node& b) {
  if (a.value.layout() != b.value.layout()) return false;
  const std::byte *x = a.value.storage(), *y = b.value.storage();
  if (x == y) return true;
  return a.value.bytes() <= 64 && a.value.bytes() == b.value.bytes() &&
         std::equal(x, x + a.value.bytes(), y);
}

bool same(const Node& a, const Node& b) {
  if (a.op != b.op || a.inputs != b.inputs || a.dtype != b.dtype || !(a.shape == b.shape) ||
      !(a.attrs == b.attrs)) {
    return false;
  }
  if (is_constant(a)) return same_constant(a, b);
  if (!a.epilogue || !b.epilogue) return a.epilogue == b.epilogue;
  return *a.epilogue == *b.epilogue;
}

Graph run_eliminate_common(const Graph& graph) {
  std::unordered_multimap<size_t, NodePtr> known;
  return rewrite(graph, [&](const NodePtr& node, const NodePtr&) {
    if (is_input(*node) || is_state(*node) || node->op->overwrites >= 0) return node;
    // Small constants are equal by content, so their address must not enter the hash.
    const bool small = is_constant(*node) && node->value.bytes() <= 64;
    const size_t hash = small ? node->value.bytes() : hash_of(*node);
    auto [begin, end] = known.equal_range(hash);
    for (auto it = begin; it != end; ++it) {
      if (same(*it->second, *node)) return it->second;
    }
    known.emplace(hash, node);
    return node;
  });
}

}  // namespace

Pass eliminate_common() {
  return {"eliminate_common", run_eliminate_common};
}

}  // namespace lumen::graph::passes
