#include "lib/graph/memory_plan.h"

#include <algorithm>
#include <numeric>

namespace lumen::graph {

size_t plan_memory(std::vector<Interval>& intervals) {
  std::vector<size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return intervals[a].bytes > intervals[b].bytes; });
  size_t arena = 0;
  std::vector<size_t> placed;  // by offset
  for (size_t index : order) {
    Interval& block = intervals[index];
    const size_t bytes = (block.bytes + 63) / 64 * 64;
    size_t offset = 0;
    for (size_t other_index : placed) {
      const Interval& other = intervals[other_index];
      if (other.last < block.first || block.last < other.first) continue;
      if (offset + bytes <= other.offset) break;
      offset = std::max(offset, other.offset + (other.bytes + 63) / 64 * 64);
    }
    block.offset = offset;
    arena = std::max(arena, offset + bytes);
    auto position = std::upper_bound(placed.begin(), placed.end(), offset,
                                     [&](size_t o, size_t p) { return o < intervals[p].offset; });
    placed.insert(position, index);
  }
  return arena;
}

}  // namespace lumen::graph
