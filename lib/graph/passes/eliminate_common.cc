// eliminate_common: equal computations become one (common subexpression elimination).
//
// Precondition: none. Postcondition: no two nodes have the same operation, inputs, attributes and
// program; constants of the same bytes in memory, shape and dtype are one node. States, inputs and
// operations that overwrite memory are left alone.
#include <unordered_map>

#include "lib/graph/passes/passes.h"
#include "lib/graph/program.h"

namespace lumen::graph::passes {
namespace {

size_t mix(size_t hash, size_t value) {
  return (hash ^ value) * 0x9E3779B97F4A7C15ull;
}

// Constants this small are equal by content, so their address must not enter the hash.
bool is_small(const Array& value) {
  return value.bytes() <= 64;
}

size_t hash_of_content(const Array& value) {
  size_t hash = mix(0, value.bytes());
  for (size_t i = 0; i < value.bytes(); ++i) {
    hash = mix(hash, static_cast<size_t>(value.storage()[i]));
  }
  return hash;
}

size_t hash_of(const Attrs::Value& value) {
  if (auto* integer = std::get_if<int64_t>(&value)) return static_cast<size_t>(*integer);
  if (auto* real = std::get_if<double>(&value)) return std::hash<double>()(*real);
  size_t hash = 0;
  for (int64_t entry : std::get<std::vector<int64_t>>(value)) {
    hash = mix(hash, static_cast<size_t>(entry));
  }
  return hash;
}

size_t hash_of(const Node& node) {
  if (is_constant(node) && is_small(node.value)) return hash_of_content(node.value);
  size_t hash = mix(0, reinterpret_cast<size_t>(node.op));
  for (const NodePtr& input : node.inputs) hash = mix(hash, reinterpret_cast<size_t>(input.get()));
  hash = mix(hash, reinterpret_cast<size_t>(node.value.storage()));
  for (const auto& [name, value] : node.attrs) hash = mix(hash, hash_of(value));
  for (int64_t dim : node.shape) hash = mix(hash, static_cast<size_t>(dim));
  return hash;
}

bool same_constant(const Node& a, const Node& b) {
  if (a.value.layout() != b.value.layout()) return false;
  const std::byte *x = a.value.storage(), *y = b.value.storage();
  if (x == y) return true;
  return is_small(a.value) && a.value.bytes() == b.value.bytes() &&
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
  known.reserve(graph.nodes().size());
  return rewrite(graph, [&](const NodePtr& node, const NodePtr&) {
    if (is_input(*node) || is_state(*node) || node->op->overwrites >= 0) return node;
    const size_t hash = hash_of(*node);
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
