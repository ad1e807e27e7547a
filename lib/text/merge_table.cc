#include "lib/text/merge_table.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "lib/base/check.h"
#include "lib/text/hash.h"

namespace lumen::text {
namespace {

// Words up to this length are scanned again after every merge, which beats any queue.
constexpr size_t kShortWord = 48;
constexpr uint32_t kNoRank = ~uint32_t{0};

// Positions waiting for the merges of one rank, given out in ascending order. They mostly arrive in
// that order; the vector becomes a heap only if one does not.
class Bucket {
 public:
  bool empty() const { return head_ == positions_.size(); }

  void push(uint32_t position) {
    const bool in_order = empty() || positions_.back() <= position;
    positions_.push_back(position);
    if (is_heap_) {
      std::push_heap(begin(), positions_.end(), std::greater<>());
    } else if (!in_order) {
      std::make_heap(begin(), positions_.end(), std::greater<>());
      is_heap_ = true;
    }
  }

  uint32_t pop() {
    if (!is_heap_) return positions_[head_++];
    std::pop_heap(begin(), positions_.end(), std::greater<>());
    const uint32_t position = positions_.back();
    positions_.pop_back();
    return position;
  }

  // Gives the memory of an empty bucket back.
  void release() { *this = Bucket(); }

 private:
  std::vector<uint32_t>::iterator begin() {
    return positions_.begin() + static_cast<ptrdiff_t>(head_);
  }

  std::vector<uint32_t> positions_;
  size_t head_ = 0;
  bool is_heap_ = false;
};

// All buckets by rank, lowest first.
class BucketQueue {
 public:
  void push(uint32_t rank, uint32_t position) {
    Bucket& bucket = buckets_[find(rank)];
    if (bucket.empty()) ranks_.push(rank);
    bucket.push(position);
  }
  bool empty() const { return ranks_.empty(); }

  // The leftmost position of the lowest rank.
  std::pair<uint32_t, uint32_t> pop() {
    const uint32_t rank = ranks_.top();
    Bucket& bucket = buckets_[find(rank)];
    const uint32_t position = bucket.pop();
    if (bucket.empty()) {
      bucket.release();
      ranks_.pop();
    }
    return {rank, position};
  }

 private:
  struct Slot {
    uint32_t rank = kNoRank, bucket = 0;
  };

  // Index of the bucket of `rank`, created if need be.
  uint32_t find(uint32_t rank) {
    if (2 * (buckets_.size() + 1) > slots_.size()) grow();
    Slot& slot = slots_[probe(rank)];
    if (slot.rank == kNoRank) {
      slot = {rank, static_cast<uint32_t>(buckets_.size())};
      buckets_.emplace_back();
    }
    return slot.bucket;
  }
  size_t probe(uint32_t rank) const {
    const size_t mask = slots_.size() - 1;
    size_t i = (rank * uint64_t{0x9E3779B97F4A7C15} >> 32) & mask;
    while (slots_[i].rank != rank && slots_[i].rank != kNoRank) i = (i + 1) & mask;
    return i;
  }
  void grow() {
    const std::vector<Slot> old =
        std::exchange(slots_, std::vector<Slot>(std::max<size_t>(64, 2 * slots_.size())));
    for (const Slot& slot : old) {
      if (slot.rank != kNoRank) slots_[probe(slot.rank)] = slot;
    }
  }

  std::vector<Bucket> buckets_;
  std::vector<Slot> slots_;  // open addressing
  // Ranks of the buckets that are not empty.
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ranks_;
};

// The symbols of a long word as a doubly linked list.
class LinkedWord {
 public:
  LinkedWord(const MergeTable& table, std::vector<int32_t>& symbols)
      : table_(table), symbols_(symbols), links_(symbols.size()) {
    const auto size = static_cast<uint32_t>(symbols.size());
    for (uint32_t i = 0; i < size; ++i) links_[i] = {i - 1, i + 1};
    links_.front().previous = links_.back().next = kEnd;
    for (uint32_t i = 0; i + 1 < size; ++i) enqueue(i);
  }

  void merge_all() {
    while (!queue_.empty()) {
      const auto [rank, position] = queue_.pop();
      const MergeTable::Merge* merge = merge_at(position);
      // Entries of pairs that have changed since are stale.
      if (merge != nullptr && merge->rank == rank) join(position, merge->result);
    }
    size_t length = 0;
    for (uint32_t i = 0; i != kEnd; i = links_[i].next) symbols_[length++] = symbols_[i];
    symbols_.resize(length);
  }

 private:
  static constexpr uint32_t kEnd = ~uint32_t{0}, kGone = kEnd - 1;
  struct Link {
    uint32_t previous, next;  // kEnd at the ends; next is kGone for symbols joined to another
  };

  const MergeTable::Merge* merge_at(uint32_t left) const {
    const uint32_t right = links_[left].next;
    return right >= kGone ? nullptr : table_.find(symbols_[left], symbols_[right]);
  }
  void enqueue(uint32_t left) {
    if (const MergeTable::Merge* merge = merge_at(left)) queue_.push(merge->rank, left);
  }
  void join(uint32_t left, int32_t result) {
    const uint32_t right = links_[left].next, after = links_[right].next;
    symbols_[left] = result;
    links_[left].next = after;
    links_[right].next = kGone;
    if (after != kEnd) links_[after].previous = left;
    if (links_[left].previous != kEnd) enqueue(links_[left].previous);
    enqueue(left);
  }

  const MergeTable& table_;
  std::vector<int32_t>& symbols_;
  std::vector<Link> links_;
  BucketQueue queue_;
};

}  // namespace

void MergeTable::reserve(size_t merges) {
  size_t slots = 1024;
  while (slots < 2 * merges) slots *= 2;
  if (slots > slots_.size()) rehash(slots);
}

void MergeTable::set(int32_t left, int32_t right, Merge merge) {
  LUMEN_CHECK(left >= 0 && right >= 0 && merge.rank != kNoRank);
  if (2 * (used_ + 1) > slots_.size()) rehash(std::max<size_t>(1024, 2 * slots_.size()));
  Slot& slot = slots_[find_slot(left, right)];
  if (slot.left < 0) ++used_;
  slot = {left, right, merge};
}

const MergeTable::Merge* MergeTable::find(int32_t left, int32_t right) const {
  if (slots_.empty()) return nullptr;
  const Slot& slot = slots_[find_slot(left, right)];
  return slot.left < 0 ? nullptr : &slot.merge;
}

size_t MergeTable::find_slot(int32_t left, int32_t right) const {
  const size_t mask = slots_.size() - 1;
  const uint64_t pair = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  size_t i = hash_mix(pair ^ hash_seed(), 0xE7037ED1A0B428DB) & mask;
  while (slots_[i].left >= 0 && (slots_[i].left != left || slots_[i].right != right)) {
    i = (i + 1) & mask;
  }
  return i;
}

void MergeTable::rehash(size_t slots) {
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots));
  for (const Slot& slot : old) {
    if (slot.left >= 0) slots_[find_slot(slot.left, slot.right)] = slot;
  }
}

void MergeTable::apply(std::vector<int32_t>& symbols) const {
  if (symbols.size() < 2) return;
  if (symbols.size() <= kShortWord) {
    apply_short(symbols);
  } else {
    LinkedWord(*this, symbols).merge_all();
  }
}

void MergeTable::apply_short(std::vector<int32_t>& symbols) const {
  const Merge* merges[kShortWord];  // of the pair that begins at each symbol
  size_t pairs = symbols.size() - 1;
  for (size_t i = 0; i < pairs; ++i) merges[i] = find(symbols[i], symbols[i + 1]);
  while (true) {
    size_t best = pairs;
    uint32_t best_rank = kNoRank;
    for (size_t i = 0; i < pairs; ++i) {
      if (merges[i] != nullptr && merges[i]->rank < best_rank) {
        best_rank = merges[i]->rank;
        best = i;
      }
    }
    if (best == pairs) return;
    symbols[best] = merges[best]->result;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    std::copy(merges + best + 1, merges + pairs, merges + best);
    --pairs;
    if (best < pairs) merges[best] = find(symbols[best], symbols[best + 1]);
    if (best > 0) merges[best - 1] = find(symbols[best - 1], symbols[best]);
  }
}

}  // namespace lumen::text
