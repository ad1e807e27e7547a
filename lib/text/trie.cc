#include "lib/text/trie.h"

#include <algorithm>
#include <deque>

namespace lumen::text {

Trie::Trie(std::vector<std::pair<std::string_view, int32_t>> keys) : root_{} {
  std::stable_sort(keys.begin(), keys.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  // Breadth first: the keys of a node are a range that shares its prefix of `depth` bytes.
  struct Range {
    uint32_t node;
    size_t begin, end, depth;
  };
  nodes_.emplace_back();
  std::deque<Range> open{{0, 0, keys.size(), 0}};
  while (!open.empty()) {
    auto [node, begin, end, depth] = open.front();
    open.pop_front();
    while (begin < end && keys[begin].first.size() == depth) {
      if (depth > 0) nodes_[node].value = keys[begin].second;
      ++begin;
    }
    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < end) {
      const char byte = keys[begin].first[depth];
      size_t same = begin;
      while (same < end && keys[same].first[depth] == byte) ++same;
      const auto child = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back().byte = static_cast<uint8_t>(byte);
      ++nodes_[node].children;
      if (depth == 0) root_[static_cast<uint8_t>(byte)] = child;
      open.push_back({child, begin, same, depth + 1});
      begin = same;
    }
  }
}

uint32_t Trie::child(const Node& node, uint8_t byte) const {
  const Node* begin = nodes_.data() + node.first_child;
  const Node* end = begin + node.children;
  if (node.children > 8) {
    begin = std::lower_bound(begin, end, byte, [](const Node& n, uint8_t b) { return n.byte < b; });
  } else {
    while (begin != end && begin->byte < byte) ++begin;
  }
  return begin != end && begin->byte == byte ? static_cast<uint32_t>(begin - nodes_.data()) : 0;
}

}  // namespace lumen::text
