// Where intermediate results lie: liveness to offsets in one arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lumen::graph {

// A block that is in use from step `first` ≥ 0 to step `last` ≥ `first`, both included.
struct Interval {
  size_t bytes = 0;
  int first = 0, last = 0;
  size_t offset = 0;  // set by plan_memory, a multiple of 64
};

// Gives every interval an offset such that blocks alive at the same time do not overlap, and
// returns the size of the arena. Largest first, each at the lowest gap that fits (greedy by size,
// Pisarchyk & Lee 2020). `looks`, if given, receives how often a block was compared with taken
// memory: O(n) for n blocks of one size in the order of their first steps, as a plan gives them;
// blocks of different sizes are compared with one another.
size_t plan_memory(std::vector<Interval>& intervals, int64_t* looks = nullptr);

}  // namespace lumen::graph
