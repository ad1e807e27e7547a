// Byte-pair merges: which two neighbouring symbols join, in which order, and into what
// (Sennrich, Haddow, Birch, "Neural Machine Translation of Rare Words with Subword Units", 2016).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lumen::text {

// The merges of a vocabulary. Symbols are token ids or any other ids the caller assigns. Filled
// once, then read from any number of threads.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank;   // lower joins first; equal ranks join from left to right
    int32_t result;  // the joined symbol
  };

  void reserve(size_t merges);
  // Replaces a merge of the same pair.
  void set(int32_t left, int32_t right, Merge merge);
  // The merge of a pair, or null.
  const Merge* find(int32_t left, int32_t right) const;
  size_t size() const { return used_; }
  // Calls visit(left, right, merge) for all of them, in no order.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (const Slot& slot : slots_) {
      if (slot.left >= 0) visit(slot.left, slot.right, slot.merge);
    }
  }

  // Applies all merges to the symbols of one word, in place: again and again the leftmost of those
  // with the lowest rank. O(n log n) time, O(n) memory; at most 2³¹ symbols.
  void apply(std::vector<int32_t>& symbols) const;

 private:
  struct Slot {
    int32_t left = -1, right = -1;
    Merge merge{};
  };
  size_t find_slot(int32_t left, int32_t right) const;
  void rehash(size_t slots);
  void apply_short(std::vector<int32_t>& symbols) const;

  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
  size_t used_ = 0;
};

}  // namespace lumen::text
