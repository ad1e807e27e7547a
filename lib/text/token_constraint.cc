#include "lib/text/token_constraint.h"

#include <algorithm>
#include <bit>

#include "lib/base/limits.h"
#include "lib/text/grammar/automaton.h"

namespace lumen::text {
namespace {

// States of more positions are walked from at once: a mask for each would cost more than it saves.
constexpr size_t kMostPositions = 32;

void allow(int32_t token, std::vector<uint64_t>& mask) {
  mask[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
}

constexpr auto kNowhere = [](uint32_t, uint32_t) {};

}  // namespace

TokenConstraint::TokenConstraint(Grammar grammar, std::shared_ptr<const VocabularyTrie> vocabulary)
    : program_(grammar.program()),
      vocabulary_(std::move(vocabulary)),
      automaton_(std::make_shared<grammar::Automaton>(program_)),
      insides_(program_->positions.size()),
      path_(vocabulary_->longest() + 1),
      words_((static_cast<size_t>(vocabulary_->size()) + 63) / 64) {}

TokenConstraint::~TokenConstraint() = default;

// Sets the bits of all tokens in nodes [begin, end), which are siblings with what is below them,
// that match from `state` on. Calls leaving(node, state) where the rule may end inside a token.
template <typename Leaving>
void TokenConstraint::walk(uint32_t state, uint32_t begin, uint32_t end,
                           std::vector<uint64_t>& mask, const Leaving& leaving) {
  const auto nodes = vocabulary_->nodes();
  if (begin >= end) return;
  grammar::Automaton& automaton = *automaton_;
  uint32_t* const path = path_.data();
  path[nodes[begin].depth - 1] = state;
  for (uint32_t i = begin; i < end;) {
    const VocabularyTrie::Node& node = nodes[i];
    const uint32_t next = automaton.next(path[node.depth - 1], node.byte);
    if (next == grammar::kDead) {
      i = node.end;
      continue;
    }
    path[node.depth] = next;
    for (int32_t token = node.token; token >= 0; token = vocabulary_->next_alike(token)) {
      allow(token, mask);
    }
    ++i;
    if (automaton.may_leave(next) && node.end > i) leaving(i - 1, next);
  }
}

const TokenConstraint::Inside& TokenConstraint::inside(uint32_t position) {
  std::unique_ptr<Inside>& known = insides_[position];
  if (known) return *known;
  auto made = std::make_unique<Inside>();
  std::vector<uint64_t> mask(words_);
  walk(automaton_->inside(position), 0, static_cast<uint32_t>(vocabulary_->nodes().size()), mask,
       [&](uint32_t node, uint32_t) { made->leaving.push_back(node); });
  size_t count = 0;
  for (const uint64_t word : mask) count += static_cast<size_t>(std::popcount(word));
  if (count < words_) {
    for (int32_t token = 0; token < vocabulary_->size(); ++token) {
      if (mask[static_cast<size_t>(token) / 64] >> (token % 64) & 1) made->tokens.push_back(token);
    }
  } else {
    made->mask = std::move(mask);
  }
  inside_bytes_ +=
      sizeof(Inside) + made->mask.size() * 8 + made->tokens.size() * 4 + made->leaving.size() * 4;
  known = std::move(made);
  return *known;
}

// Sets the bits of the tokens allowed in `state`.
void TokenConstraint::add_tokens(uint32_t state, std::vector<uint64_t>& mask) {
  const auto span = automaton_->items(state);
  const auto nodes = vocabulary_->nodes();
  if (span.size() > kMostPositions) {
    return walk(state, 0, static_cast<uint32_t>(nodes.size()), mask, kNowhere);
  }
  const std::vector<grammar::Item> items(span.begin(), span.end());  // new states move them
  for (const grammar::Item& item : items) {
    const Inside& known = inside(item.position);
    for (size_t i = 0; i < known.mask.size(); ++i) mask[i] |= known.mask[i];
    for (const int32_t token : known.tokens) {
      allow(token, mask);
    }
    if (known.leaving.empty()) continue;
    const uint32_t after = automaton_->after(item.node);
    if (after == grammar::kDead) continue;
    for (const uint32_t node : known.leaving) {
      walk(after, node + 1, nodes[node].end, mask, kNowhere);
    }
  }
}

TokenMask TokenConstraint::mask(uint32_t state) {
  if (state < masks_.size() && masks_[state]) return {masks_[state].get(), words_};
  automaton_->begin_work();
  found_.assign(words_, 0);
  add_tokens(state, found_);
  if (masks_.size() <= state) masks_.resize(state + size_t{1});
  masks_[state] = std::make_unique<uint64_t[]>(words_);
  mask_bytes_ += 8 * words_;
  std::copy(found_.begin(), found_.end(), masks_[state].get());
  return {masks_[state].get(), words_};
}

// The mask of the empty text where its first token loses a space.
TokenMask TokenConstraint::start_mask() {
  if (start_mask_) return {start_mask_.get(), words_};
  automaton_->begin_work();
  found_.assign(words_, 0);
  const auto nodes = vocabulary_->nodes();
  const uint32_t start = automaton_->start();
  for (uint32_t i = 0; i < nodes.size(); i = nodes[i].end) {
    const bool is_space = nodes[i].byte == ' ';
    walk(start, is_space ? i + 1 : i, nodes[i].end, found_, kNowhere);
  }
  start_mask_ = std::make_unique<uint64_t[]>(words_);
  std::copy(found_.begin(), found_.end(), start_mask_.get());
  return {start_mask_.get(), words_};
}

void TokenConstraint::renew_if_large() {
  if (inside_bytes_ > limits::kGrammarCacheBytes / 2) {
    for (auto& known : insides_) known = nullptr;
    inside_bytes_ = 0;
  }
  if (mask_bytes_ + automaton_->bytes() <= limits::kGrammarCacheBytes / 2) return;
  masks_.clear();
  mask_bytes_ = 0;
  automaton_ = std::make_shared<grammar::Automaton>(program_);
}

ConstrainedText::ConstrainedText(std::shared_ptr<TokenConstraint> constraint, bool is_whole)
    : constraint_(std::move(constraint)),
      automaton_(constraint_->automaton_),
      state_(automaton_->start()),
      drops_space_(is_whole && constraint_->vocabulary().drops_first_space()) {}

// Another text may have made the constraint forget its states.
void ConstrainedText::sync() {
  if (automaton_ == constraint_->automaton_) return;
  state_ = constraint_->automaton_->adopt(*automaton_, state_);
  automaton_ = constraint_->automaton_;
}

TokenMask ConstrainedText::allowed() {
  constraint_->renew_if_large();
  sync();
  return drops_space_ ? constraint_->start_mask() : constraint_->mask(state_);
}

bool ConstrainedText::accept(int32_t token) {
  std::string_view bytes = constraint_->vocabulary().bytes(token);
  if (drops_space_ && bytes.starts_with(' ')) bytes.remove_prefix(1);
  return !bytes.empty() && accept(bytes);
}

bool ConstrainedText::accept(std::string_view bytes) {
  sync();
  automaton_->begin_work();
  uint32_t state = state_;
  for (const char c : bytes) {
    state = automaton_->next(state, static_cast<uint8_t>(c));
    if (state == grammar::kDead) return false;
  }
  state_ = state;
  drops_space_ = false;
  return true;
}

bool ConstrainedText::may_end() {
  sync();
  return automaton_->may_end(state_);
}

bool ConstrainedText::is_over() {
  sync();
  return automaton_->may_end(state_) && automaton_->items(state_).empty();
}

}  // namespace lumen::text
