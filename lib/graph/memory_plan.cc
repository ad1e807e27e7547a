#include "lib/graph/memory_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>

namespace lumen::graph {
namespace {

// A set of bytes of the arena, as ranges that do not touch.
class Bytes {
 public:
  // The lowest position from `offset` on at which `size` bytes are free of this set; `looks` counts
  // the ranges compared.
  size_t free_from(size_t offset, size_t size, int64_t& looks) const {
    auto range = ends_.upper_bound(offset);
    if (range != ends_.begin() && std::prev(range)->second > offset) --range;
    ++looks;
    for (; range != ends_.end() && range->first < offset + size; ++range, ++looks) {
      offset = range->second;
    }
    return offset;
  }

  // None of which may be there.
  void add(size_t begin, size_t end) {
    auto next = ends_.lower_bound(begin);
    if (next != ends_.end() && next->first == end) {
      end = next->second;
      next = ends_.erase(next);
    }
    if (next != ends_.begin() && std::prev(next)->second == begin) {
      std::prev(next)->second = end;
    } else {
      ends_.emplace_hint(next, begin, end);
    }
  }

  // All of which must be there.
  void remove(size_t begin, size_t end) {
    const auto range = std::prev(ends_.upper_bound(begin));
    const size_t range_end = range->second;
    if (range_end > end) ends_.emplace_hint(std::next(range), end, range_end);
    if (range->first < begin) {
      range->second = begin;
    } else {
      ends_.erase(range);
    }
  }

 private:
  std::map<size_t, size_t> ends_;  // by begin
};

size_t padded_bytes(const Interval& block) {
  return (block.bytes + 63) / 64 * 64;
}

// Places blocks one by one, each at the lowest gap. Most come in long runs: of one size, by their
// first steps. Of its run, those that are alive at its own first step block a block, and the bytes
// of these are known without looking at them one by one; blocks of earlier runs are looked at.
class Placer {
 public:
  void place(const Interval& block, size_t& offset) {
    if (!run_.empty() && block.first < run_.back().first) end_run();
    for (; !alive_.empty() && alive_.top().last < block.first; alive_.pop()) {
      taken_.remove(alive_.top().begin, alive_.top().end);
    }
    const size_t bytes = padded_bytes(block);
    offset = taken_.free_from(0, bytes, looks_);
    for (const Placed& other : earlier_) {
      ++looks_;
      if (offset + bytes <= other.begin) break;
      if (other.last < block.first || block.last < other.first || other.end <= offset) continue;
      offset = taken_.free_from(other.end, bytes, looks_);
    }
    run_.push_back({offset, offset + bytes, block.first, block.last});
    alive_.push(run_.back());
    taken_.add(offset, offset + bytes);
  }

  int64_t looks() const { return looks_; }

 private:
  struct Placed {
    size_t begin, end;  // bytes
    int first, last;    // steps
  };
  struct EndsLater {
    bool operator()(const Placed& a, const Placed& b) const { return a.last > b.last; }
  };

  void end_run() {
    std::ranges::sort(run_, {}, &Placed::begin);
    const auto middle = earlier_.insert(earlier_.end(), run_.begin(), run_.end());
    std::ranges::inplace_merge(earlier_, middle, {}, &Placed::begin);
    run_.clear();
    alive_ = {};
    taken_ = {};
  }

  std::vector<Placed> earlier_;                                        // by begin
  std::vector<Placed> run_;                                            // by first step
  std::priority_queue<Placed, std::vector<Placed>, EndsLater> alive_;  // of the run
  Bytes taken_;                                                        // by those
  int64_t looks_ = 0;
};

}  // namespace

size_t plan_memory(std::vector<Interval>& intervals, int64_t* looks) {
  std::vector<size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return intervals[a].bytes > intervals[b].bytes; });
  Placer placer;
  size_t arena = 0;
  for (size_t index : order) {
    Interval& block = intervals[index];
    block.offset = 0;
    if (block.bytes == 0) continue;
    placer.place(block, block.offset);
    arena = std::max(arena, block.offset + padded_bytes(block));
  }
  if (looks) *looks = placer.looks();
  return arena;
}

}  // namespace lumen::graph
