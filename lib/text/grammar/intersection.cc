#include "lib/text/grammar/intersection.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "lib/base/strings.h"

namespace lumen::text::grammar {
namespace {

constexpr size_t kMostPlaces = 20'000;      // of the expressions, repetitions written out
constexpr size_t kMostSetStates = 16'384;   // of the automaton
constexpr uint64_t kMostWork = 50'000'000;  // to build it

// The expressions as one nondeterministic automaton over characters.
class Places {
 public:
  using Id = uint32_t;

  explicit Places(const RuleSet& rules) : rules_(rules) {}

  bool is_too_large() const { return places_.size() > kMostPlaces; }

  // The place where `expression` begins that is followed by `end`.
  Id before(ExpressionId expression, Id end) {
    const Expression& e = rules_[expression];
    if (is_too_large()) return end;
    switch (e.kind) {
      case ExpressionKind::kLiteral: {
        std::vector<uint32_t> characters;
        for (size_t at = 0; at < e.literal.size();) {
          characters.push_back(next_code_point(e.literal, at));
        }
        for (size_t i = characters.size(); i-- > 0;) {
          end = add({{{characters[i], characters[i]}}, end, {}});
        }
        return end;
      }
      case ExpressionKind::kChars:
        return add({e.chars, end, {}});
      case ExpressionKind::kSequence:
        for (size_t i = e.parts.size(); i-- > 0;) end = before(e.parts[i], end);
        return end;
      case ExpressionKind::kChoice: {
        std::vector<Id> ways;
        for (const ExpressionId part : e.parts) ways.push_back(before(part, end));
        return add({{}, end, std::move(ways)});
      }
      case ExpressionKind::kRepeat:
        return repeated(e, end);
      case ExpressionKind::kReference:
        break;
    }
    return end;
  }

  // A place from which nothing follows.
  Id add_end() { return add({{}, 0, {}}); }

  // The set of places that `from` reaches without a character, in order.
  std::vector<Id> closed(std::vector<Id> from) const {
    std::set<Id> seen;
    while (!from.empty()) {
      const Id id = from.back();
      from.pop_back();
      if (!seen.insert(id).second) continue;
      from.insert(from.end(), places_[id].ways.begin(), places_[id].ways.end());
    }
    return {seen.begin(), seen.end()};
  }

  Id next(Id id) const { return places_[id].next; }

  // Characters that all places have or lack: `holders` has a bit for every set of a place.
  struct Class {
    CharSet characters;
    std::vector<bool> holders;
  };
  // The characters that some place goes on by, divided into such classes.
  std::vector<Class> classes() {
    std::set<uint32_t> begins;
    std::map<std::vector<std::pair<uint32_t, uint32_t>>, uint32_t> sets;
    for (Place& place : places_) {
      std::vector<std::pair<uint32_t, uint32_t>> ranges;
      for (const CharRange& range : place.characters) {
        ranges.emplace_back(range.first, range.last);
        begins.insert({range.first, range.last + 1});
      }
      const auto number = static_cast<uint32_t>(sets.size());
      place.set = sets.try_emplace(std::move(ranges), number).first->second;
    }
    std::map<std::vector<bool>, CharSet> divided;
    for (auto begin = begins.begin(); begin != begins.end() && std::next(begin) != begins.end();
         ++begin) {
      std::vector<bool> holders(sets.size());
      for (const auto& [ranges, number] : sets) {
        const auto behind =
            std::upper_bound(ranges.begin(), ranges.end(), std::pair(*begin, ~uint32_t{0}));
        holders[number] = behind != ranges.begin() && std::prev(behind)->second >= *begin;
      }
      divided[holders].push_back({*begin, *std::next(begin) - 1});
    }
    std::vector<Class> all;
    for (auto& [holders, characters] : divided) all.push_back({std::move(characters), holders});
    return all;
  }
  bool goes_on(Id id, const Class& by) const { return by.holders[places_[id].set]; }

 private:
  // Goes on at `next` by one of `characters`, or at any of `ways` without one.
  struct Place {
    CharSet characters;
    Id next;
    std::vector<Id> ways;
    uint32_t set = 0;  // the number of `characters` among all
  };

  Id add(Place place) {
    places_.push_back(std::move(place));
    return static_cast<Id>(places_.size() - 1);
  }

  Id repeated(const Expression& e, Id end) {
    const ExpressionId part = e.parts[0];
    const uint32_t least = e.least, most = e.most;
    if (most == kUnbounded) {
      const Id again = add({{}, end, {end}});
      const Id first = before(part, again);
      places_[again].ways.push_back(first);
      end = again;
    }
    const Id last = end;
    for (uint32_t i = least; most != kUnbounded && i < most && !is_too_large(); ++i) {
      end = add({{}, last, {before(part, end), last}});
    }
    for (uint32_t i = 0; i < least && !is_too_large(); ++i) end = before(part, end);
    return end;
  }

  const RuleSet& rules_;
  std::vector<Place> places_;
};

// The deterministic automaton: a state has for each condition the places where a text may be.
class Intersection {
 public:
  using Id = Places::Id;

  Intersection(RuleSet& rules, std::span<const Condition> conditions, const std::string& name)
      : rules_(rules), conditions_(conditions), name_(name), places_(rules) {}

  std::optional<ExpressionId> build() {
    std::vector<std::vector<Id>> start;
    for (const Condition& condition : conditions_) {
      ends_.push_back(places_.add_end());
      begins_.push_back(places_.before(condition.expression, ends_.back()));
    }
    if (places_.is_too_large()) return std::nullopt;
    for (const Id begin : begins_) start.push_back(places_.closed({begin}));
    classes_ = places_.classes();
    const RuleId first = state(start);
    for (size_t done = 0; done < sets_.size(); ++done) {
      if (sets_.size() > kMostSetStates || steps_ > kMostWork) return std::nullopt;
      const auto set = sets_[done];
      rules_.define(set->second, body(set->first));
    }
    return rules_.reference(first);
  }

 private:
  using Sets = std::vector<std::vector<Id>>;

  // The rule of a state, which is made if it is new.
  RuleId state(const Sets& sets) {
    const auto [found, is_new] = known_.try_emplace(sets, 0);
    if (is_new) {
      found->second = rules_.declare(name_);
      sets_.push_back(found);
    }
    return found->second;
  }

  bool may_end(const Sets& sets) const {
    for (size_t i = 0; i < sets.size(); ++i) {
      const bool ends = std::binary_search(sets[i].begin(), sets[i].end(), ends_[i]);
      if (ends == conditions_[i].is_excluded) return false;
    }
    return true;
  }

  // Where the places of `from` go by a character.
  const std::vector<Id>& after(const std::vector<Id>& from, const Places::Class& by) {
    std::vector<Id> to;
    steps_ += from.size() + 1;
    for (const Id id : from) {
      if (places_.goes_on(id, by)) to.push_back(places_.next(id));
    }
    const auto [found, is_new] = closed_.try_emplace(to);
    if (is_new) {
      found->second = places_.closed(std::move(to));
      steps_ += found->second.size();
    }
    return found->second;
  }

  // What may follow in a state.
  ExpressionId body(const Sets& from) {
    std::map<RuleId, CharSet> next;
    for (const Places::Class& by : classes_) {
      Sets to = {after(from[0], by)};
      if (to[0].empty()) continue;
      bool is_dead = false;
      for (size_t k = 1; k < from.size(); ++k) {
        to.push_back(after(from[k], by));
        is_dead = is_dead || (to[k].empty() && !conditions_[k].is_excluded);
      }
      if (is_dead) continue;
      CharSet& all = next[state(to)];
      all.insert(all.end(), by.characters.begin(), by.characters.end());
    }
    std::vector<ExpressionId> ways;
    if (may_end(from)) ways.push_back(rules_.literal(""));
    for (auto& [rule, characters] : next) {
      ways.push_back(
          rules_.sequence({rules_.chars(std::move(characters)), rules_.reference(rule)}));
    }
    return rules_.choice(std::move(ways));
  }

  RuleSet& rules_;
  const std::span<const Condition> conditions_;
  const std::string& name_;
  Places places_;
  std::vector<Id> begins_, ends_;
  std::vector<Places::Class> classes_;
  std::map<std::vector<Id>, std::vector<Id>> closed_;
  std::map<Sets, RuleId> known_;
  std::vector<std::map<Sets, RuleId>::const_iterator> sets_;  // in the order they were found
  uint64_t steps_ = 0;
};

}  // namespace

std::optional<ExpressionId> intersection(RuleSet& rules, std::span<const Condition> conditions,
                                         const std::string& name) {
  return Intersection(rules, conditions, name).build();
}

}  // namespace lumen::text::grammar
