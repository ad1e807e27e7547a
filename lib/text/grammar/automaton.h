// A deterministic automaton over the bytes of a context-free language, built as far as texts need.
//
// A state is the set of all ways in which a text so far may be being derived: positions of the
// program, each with a node that says where its rule returns to. A node stands for all callers of a
// rule at one place of the text (the graph-structured stack of Tomita 1986; item sets of Earley
// 1970), so ambiguity merges instead of multiplying. Nodes and states are interned by content:
// places of a text that allow the same continuations are one state, and matching a byte that was
// matched in that state before is one table lookup. A call in tail position leaves no frame, so
// right-recursive lists do not grow the stack.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "lib/text/grammar/program.h"

namespace lumen::text::grammar {

using State = uint32_t;
inline constexpr State kDead = 0;  // no continuation

using NodeId = uint32_t;
inline constexpr NodeId kBottom = 0;   // the root returns nowhere: the text may end
inline constexpr NodeId kOutside = 1;  // returns to somewhere unknown

// A position and the node of its rule; of a node, where to return to and the node there.
struct Item {
  uint32_t position;
  NodeId node;
  friend auto operator<=>(const Item&, const Item&) = default;
};

// Gives spans of items numbers, equal ones the same.
class ItemSets {
 public:
  // `is_new`: the number was given now; numbers are consecutive from 0.
  std::pair<uint32_t, bool> intern(std::span<const Item> items);
  std::span<const Item> operator[](uint32_t id) const {
    return std::span(items_).subspan(begins_[id], begins_[id + 1] - begins_[id]);
  }
  uint32_t size() const { return static_cast<uint32_t>(begins_.size() - 1); }
  uint64_t bytes() const {
    return items_.capacity() * sizeof(Item) + (begins_.capacity() + slots_.capacity()) * 4;
  }

 private:
  void rehash();

  std::vector<Item> items_;
  std::vector<uint32_t> begins_ = {0};
  std::vector<uint32_t> slots_;  // id + 1, 0: free; a power of two, at most half full
};

// Not thread-safe.
class Automaton {
 public:
  explicit Automaton(std::shared_ptr<const Program> program);

  // The state of the empty text.
  State start() const { return start_; }

  // After one byte more. Throws Error(kMalformed) if the ways to derive the text are more than
  // limits::kGrammarStateWays, or the work since begin_work() is out of all proportion.
  State next(State state, uint8_t byte) {
    const uint32_t known = transitions_[size_t{state} * classes_ + program_->byte_class[byte]];
    return known != kUnknown ? known : make_transition(state, byte);
  }

  // The text may end here.
  bool may_end(State state) const { return (flags_[state] & kEnds) != 0; }
  // In a text begun by inside(): the rule may end here.
  bool may_leave(State state) const { return (flags_[state] & kLeaves) != 0; }
  // The positions of the state that consume a byte.
  std::span<const Item> items(State state) const {
    return states_[state].first(item_counts_[state]);
  }

  // A state of one position whose rule was called from nobody knows where.
  State inside(PositionId position) {
    const Item item{position, kOutside};
    return close(std::span(&item, 1));
  }
  // The state in which the callers that `node` stands for go on.
  State after(NodeId node);

  // The state of another automaton of the same program, in this one.
  State adopt(const Automaton& other, State state);

  // Memory in use, roughly.
  uint64_t bytes() const;
  // A new piece of work begins, whose size is limited.
  void begin_work() { steps_ = 0; }

  const Program& program() const { return *program_; }

 private:
  static constexpr uint32_t kUnknown = ~uint32_t{0};
  static constexpr uint8_t kEnds = 1, kLeaves = 2;
  // Stand in a state's items, behind all positions, for its flags.
  static constexpr uint32_t kLeavesMark = kUnknown - 1, kEndsMark = kUnknown;
  struct Call {
    uint32_t rank;
    Item from;
  };

  State make_transition(State state, uint8_t byte);
  State close(std::span<const Item> kernel);
  void push(Item item);
  void drain();
  void call(PositionId position, NodeId node);
  State intern_state();
  void spend(uint64_t steps);

  std::shared_ptr<const Program> program_;
  const size_t classes_;
  std::vector<uint32_t> rule_of_rank_;
  ItemSets nodes_;  // their numbers are two less than the nodes'
  ItemSets states_;
  std::vector<uint8_t> flags_;         // of states
  std::vector<uint32_t> item_counts_;  // of states, without marks
  std::vector<uint32_t> transitions_;  // [state][class]
  std::vector<State> after_;           // of nodes
  State start_ = kDead;
  uint64_t steps_ = 0;

  // Of the closure that is being built.
  std::vector<Item> kernel_, work_, found_, callers_;
  std::vector<Call> calls_;        // a heap, the least rank on top
  std::vector<uint64_t> seen_;     // items, open addressing
  std::vector<uint32_t> seen_at_;  // occupied slots
};

}  // namespace lumen::text::grammar
