// What expressions have in common: the language of a finite automaton, as rules.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "lib/text/grammar/rules.h"

namespace lumen::text::grammar {

// A text is one of `expression`, which refers to no rule; or is none, if `is_excluded`.
struct Condition {
  ExpressionId expression;
  bool is_excluded = false;
};

// The texts that meet all conditions, of which the first excludes none: the automaton of the sets
// of places in each where a text may be (Rabin, Scott 1959), a rule called `name` for every state.
// nullopt if the states, or the work, are too many. Throws as RuleSet.
std::optional<ExpressionId> intersection(RuleSet& rules, std::span<const Condition> conditions,
                                         const std::string& name);

}  // namespace lumen::text::grammar
