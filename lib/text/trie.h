// A static trie over bytes: all keys that begin at a place of a text, in one walk.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace lumen::text {

// Maps non-empty keys to values ≥ 0. Immutable; about 12 bytes per distinct prefix of the keys.
class Trie {
 public:
  Trie() : root_{} {}
  // Of equal keys the last one wins. The keys need not live on.
  explicit Trie(std::vector<std::pair<std::string_view, int32_t>> keys);

  // Calls found(length, value) for every key that `text` starts with, shortest first, until it
  // returns false.
  template <typename Found>
  void walk(std::string_view text, Found&& found) const {
    if (text.empty()) return;
    uint32_t node = root_[static_cast<uint8_t>(text[0])];
    for (size_t length = 1; node != 0; ++length) {
      const Node& here = nodes_[node];
      if (here.value >= 0 && !found(length, here.value)) return;
      if (length == text.size()) return;
      node = child(here, static_cast<uint8_t>(text[length]));
    }
  }

  // Length and value of the longest key that `text` starts with; {0, -1} if there is none.
  std::pair<size_t, int32_t> longest(std::string_view text) const {
    std::pair<size_t, int32_t> best{0, -1};
    walk(text, [&](size_t length, int32_t value) {
      best = {length, value};
      return true;
    });
    return best;
  }

  // Whether any key begins with this byte.
  bool starts(char byte) const { return root_[static_cast<uint8_t>(byte)] != 0; }

 private:
  struct Node {
    uint32_t first_child = 0;  // children are neighbours, in the order of their bytes
    uint16_t children = 0;
    uint8_t byte = 0;
    int32_t value = -1;
  };
  uint32_t child(const Node& node, uint8_t byte) const;

  std::array<uint32_t, 256> root_;  // node of each first byte, 0 for none
  std::vector<Node> nodes_;         // nodes_[0] is unused
};

}  // namespace lumen::text
