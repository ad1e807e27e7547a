// What passes know of the nodes of a graph, by address: a hash table in one piece of memory, since
// graphs of a hundred thousand nodes spend their compilation on looking nodes up.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "lib/base/check.h"

namespace lumen::graph {

struct Node;

// A map from nodes, which must stay alive, to values. Adding a node may move all values. Not
// thread-safe for writing.
template <typename Value>
class NodeMap {
 public:
  NodeMap() = default;
  // Has room for `nodes` without moving.
  explicit NodeMap(size_t nodes) { resize(nodes); }

  size_t size() const { return size_; }
  bool contains(const Node* node) const { return find(node) != nullptr; }

  // The value of a node, null if it has none.
  const Value* find(const Node* node) const {
    if (slots_.empty()) return nullptr;
    const Slot& slot = slots_[position(node)];
    return slot.node ? &slot.value : nullptr;
  }
  Value* find(const Node* node) {
    return const_cast<Value*>(static_cast<const NodeMap*>(this)->find(node));
  }

  // The value of a node that must have one.
  const Value& at(const Node* node) const {
    const Value* value = find(node);
    LUMEN_CHECK(value);
    return *value;
  }

  // The value of a node; a new one if it has none.
  Value& operator[](const Node* node) {
    if (2 * (size_ + 1) > slots_.size()) resize(size_ + 1);
    Slot& slot = slots_[position(node)];
    if (!slot.node) {
      slot.node = node;
      ++size_;
    }
    return slot.value;
  }

 private:
  struct Slot {
    const Node* node = nullptr;
    Value value{};
  };

  // Where `node` is, or the free slot where it would be (Knuth's multiplicative hash, linear
  // probing).
  size_t position(const Node* node) const {
    const uint64_t hash = reinterpret_cast<uintptr_t>(node) * uint64_t{0x9E3779B97F4A7C15};
    size_t i = static_cast<size_t>(hash >> shift_);
    while (slots_[i].node && slots_[i].node != node) i = (i + 1) % slots_.size();
    return i;
  }

  void resize(size_t nodes) {
    std::vector<Slot> old(std::bit_ceil(2 * nodes + 2));
    old.swap(slots_);
    shift_ = 64 - std::countr_zero(slots_.size());
    for (Slot& slot : old) {
      if (slot.node) slots_[position(slot.node)] = std::move(slot);
    }
  }

  std::vector<Slot> slots_;  // a power of two, at most half full
  size_t size_ = 0;
  int shift_ = 0;
};

// A set of nodes, which must stay alive.
class NodeSet {
 public:
  NodeSet() = default;
  explicit NodeSet(size_t nodes) : nodes_(nodes) {}

  // False if it was there.
  bool insert(const Node* node) {
    bool& there = nodes_[node];
    return !std::exchange(there, true);
  }
  bool contains(const Node* node) const { return nodes_.contains(node); }

 private:
  NodeMap<bool> nodes_;
};

}  // namespace lumen::graph
