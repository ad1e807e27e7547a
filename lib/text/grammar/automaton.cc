#include "lib/text/grammar/automaton.h"

#include <algorithm>
#include <map>

#include "lib/base/error.h"
#include "lib/base/limits.h"

namespace lumen::text::grammar {
namespace {

// Steps of one piece of work: far more than a mask over a large vocabulary takes, about a second.
constexpr uint64_t kMostSteps = 200'000'000;
constexpr uint64_t kNoItem = ~uint64_t{0};

uint64_t mix(uint64_t hash, uint64_t value) {  // the finalizer of MurmurHash3
  hash ^= value + 0x9E3779B97F4A7C15u + (hash << 6) + (hash >> 2);
  hash = (hash ^ (hash >> 33)) * 0xFF51AFD7ED558CCDu;
  return hash ^ (hash >> 33);
}

uint64_t key(const Item& item) {
  return uint64_t{item.position} << 32 | item.node;
}

uint64_t hash_of(std::span<const Item> items) {
  uint64_t hash = items.size();
  for (const Item& item : items) hash = mix(hash, key(item));
  return hash;
}

[[noreturn]] void too_many_ways() {
  fail(ErrorKind::kMalformed, "the grammar is too ambiguous: a text may go on in more than ",
       limits::kGrammarStateWays, " of its places, the limit; write it with fewer alternatives");
}

}  // namespace

std::pair<uint32_t, bool> ItemSets::intern(std::span<const Item> items) {
  if (2 * (size() + size_t{1}) > slots_.size()) rehash();
  const size_t mask = slots_.size() - 1;
  size_t slot = hash_of(items) & mask;
  for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
    const auto known = (*this)[slots_[slot] - 1];
    if (std::equal(known.begin(), known.end(), items.begin(), items.end())) {
      return {slots_[slot] - 1, false};
    }
  }
  items_.insert(items_.end(), items.begin(), items.end());
  begins_.push_back(static_cast<uint32_t>(items_.size()));
  slots_[slot] = size();
  return {size() - 1, true};
}

void ItemSets::rehash() {
  std::vector<uint32_t> slots(std::max<size_t>(64, 2 * slots_.size()));
  for (uint32_t id = 0; id < size(); ++id) {
    size_t slot = hash_of((*this)[id]) & (slots.size() - 1);
    while (slots[slot] != 0) slot = (slot + 1) & (slots.size() - 1);
    slots[slot] = id + 1;
  }
  slots_ = std::move(slots);
}

Automaton::Automaton(std::shared_ptr<const Program> program)
    : program_(std::move(program)),
      classes_(program_->members.size()),
      rule_of_rank_(program_->rules.size()) {
  for (uint32_t rule = 0; rule < program_->rules.size(); ++rule) {
    rule_of_rank_[program_->rules[rule].rank] = rule;
  }
  seen_.assign(64, kNoItem);
  intern_state();  // kDead
  const Item root{program_->rules[0].entry, kBottom};
  start_ = close(std::span(&root, 1));
}

uint64_t Automaton::bytes() const {
  return nodes_.bytes() + states_.bytes() + transitions_.capacity() * sizeof(uint32_t) +
         (flags_.capacity() + (item_counts_.capacity() + after_.capacity()) * 4);
}

void Automaton::spend(uint64_t steps) {
  steps_ += steps;
  if (steps_ <= kMostSteps && bytes() <= 4 * limits::kGrammarCacheBytes) return;
  fail(ErrorKind::kMalformed,
       "the grammar is too ambiguous: the ways in which the text so far may go on take too long to "
       "follow; write it with fewer alternatives that begin alike");
}

State Automaton::make_transition(State state, uint8_t byte) {
  kernel_.clear();
  const auto here = items(state);
  spend(here.size() + 1);
  for (const Item& item : here) {
    const Position& p = program_->positions[item.position];
    spend(p.count);
    for (uint32_t i = 0; i < p.count; ++i) {
      const Edge& edge = program_->edges[p.begin + i];
      if (edge.first <= byte && byte <= edge.last) kernel_.push_back({edge.target, item.node});
    }
  }
  const State to = close(kernel_);
  transitions_[size_t{state} * classes_ + program_->byte_class[byte]] = to;
  return to;
}

State Automaton::after(NodeId node) {
  if (node <= kOutside) return kDead;
  State& known = after_[node - 2];
  if (known == kUnknown) {
    const auto callers = nodes_[node - 2];
    kernel_.assign(callers.begin(), callers.end());
    const State state = close(kernel_);  // may move `known`
    return after_[node - 2] = state;
  }
  return known;
}

// Adds what can be reached from an item, unless the item has been seen.
void Automaton::push(Item item) {
  const uint64_t wanted = key(item);
  const size_t mask = seen_.size() - 1;
  size_t slot = mix(0, wanted) & mask;
  for (; seen_[slot] != kNoItem; slot = (slot + 1) & mask) {
    if (seen_[slot] == wanted) return;
  }
  seen_[slot] = wanted;
  seen_at_.push_back(static_cast<uint32_t>(slot));
  work_.push_back(item);
  if (2 * seen_at_.size() < seen_.size()) return;
  if (seen_at_.size() > 16 * limits::kGrammarStateWays) {
    too_many_ways();
  }
  std::vector<uint64_t> larger(2 * seen_.size(), kNoItem);
  for (uint32_t& at : seen_at_) {
    size_t to = mix(0, seen_[at]) & (larger.size() - 1);
    while (larger[to] != kNoItem) to = (to + 1) & (larger.size() - 1);
    larger[to] = seen_[at];
    at = static_cast<uint32_t>(to);
  }
  seen_ = std::move(larger);
}

void Automaton::call(PositionId position, NodeId node) {
  const Position& p = program_->positions[position];
  const Program::Rule& rule = program_->rules[p.begin];
  // The empty derivation; so the end of a rule reached without a byte adds nothing new below.
  if (rule.nullable) push({p.count, node});
  const auto add = [&](Item from) {
    calls_.push_back({rule.rank, from});
    std::push_heap(calls_.begin(), calls_.end(),
                   [](const Call& a, const Call& b) { return a.rank > b.rank; });
  };
  const bool is_tail = program_->positions[p.count].kind == PositionKind::kEnd;
  if (!is_tail || node <= kOutside) return add({p.count, node});
  for (const Item& caller : nodes_[node - 2]) add(caller);
  spend(nodes_[node - 2].size());
}

void Automaton::drain() {
  while (!work_.empty()) {
    const Item item = work_.back();
    work_.pop_back();
    const Position& p = program_->positions[item.position];
    spend(1);
    switch (p.kind) {
      case PositionKind::kBytes:
        if (p.count > 0) found_.push_back(item);
        break;
      case PositionKind::kSplit:
        for (uint32_t i = 0; i < p.count; ++i) push({program_->targets[p.begin + i], item.node});
        break;
      case PositionKind::kCall:
        call(item.position, item.node);
        break;
      case PositionKind::kEnd:
        if (item.node <= kOutside) {
          found_.push_back({item.node == kBottom ? kEndsMark : kLeavesMark, 0});
        } else {
          for (const Item& caller : nodes_[item.node - 2]) push(caller);
        }
        break;
    }
  }
}

// The state of what can be reached from `kernel` without a byte. Rules are entered by rank: then
// all callers of a rule are known, and its node is complete.
State Automaton::close(std::span<const Item> kernel) {
  for (const uint32_t at : seen_at_) seen_[at] = kNoItem;
  seen_at_.clear();
  found_.clear();
  work_.clear();
  calls_.clear();
  for (const Item& item : kernel) push(item);
  drain();
  while (!calls_.empty()) {
    const uint32_t rank = calls_.front().rank;
    callers_.clear();
    while (!calls_.empty() && calls_.front().rank == rank) {
      callers_.push_back(calls_.front().from);
      std::pop_heap(calls_.begin(), calls_.end(),
                    [](const Call& a, const Call& b) { return a.rank > b.rank; });
      calls_.pop_back();
    }
    std::sort(callers_.begin(), callers_.end());
    callers_.erase(std::unique(callers_.begin(), callers_.end()), callers_.end());
    const auto [node, is_new] = nodes_.intern(callers_);
    if (is_new) after_.push_back(kUnknown);
    push({program_->rules[rule_of_rank_[rank]].entry, node + 2});
    drain();
  }
  if (found_.size() > limits::kGrammarStateWays) {
    too_many_ways();
  }
  return intern_state();
}

State Automaton::intern_state() {
  std::sort(found_.begin(), found_.end());
  found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
  const auto [state, is_new] = states_.intern(found_);
  if (is_new) {
    uint8_t flags = 0;
    uint32_t count = 0;
    for (const Item& item : found_) {
      flags |= item.position == kEndsMark ? kEnds : item.position == kLeavesMark ? kLeaves : 0;
      count += item.position < kLeavesMark ? 1 : 0;
    }
    flags_.push_back(flags);
    item_counts_.push_back(count);
    transitions_.resize(transitions_.size() + classes_, count == 0 ? kDead : kUnknown);
  }
  return state;
}

State Automaton::adopt(const Automaton& other, State state) {
  // Callers are older than the nodes they are in, so they come first in this order.
  std::map<NodeId, NodeId> nodes;
  std::vector<NodeId> work;
  const auto need = [&](NodeId node) {
    if (node > kOutside && nodes.try_emplace(node, 0).second) work.push_back(node);
  };
  for (const Item& item : other.items(state)) need(item.node);
  while (!work.empty()) {
    const NodeId node = work.back();
    work.pop_back();
    for (const Item& caller : other.nodes_[node - 2]) need(caller.node);
  }
  const auto translate = [&](std::span<const Item> items, std::vector<Item>& out) {
    out.assign(items.begin(), items.end());
    for (Item& item : out) {
      if (item.position < kLeavesMark && item.node > kOutside) item.node = nodes.at(item.node);
    }
    std::sort(out.begin(), out.end());
  };
  for (auto& [old, now] : nodes) {
    translate(other.nodes_[old - 2], callers_);
    const auto [node, is_new] = nodes_.intern(callers_);
    if (is_new) after_.push_back(kUnknown);
    now = node + 2;
  }
  translate(other.states_[state], found_);
  return intern_state();
}

}  // namespace lumen::text::grammar
