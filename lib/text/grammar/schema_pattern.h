// Strings of JSON as expressions: their characters, and regular expressions over them.
#pragma once

#include <cstdint>
#include <string_view>

#include "lib/text/grammar/rules.h"

namespace lumen::text::grammar {

// One character of `set` as it stands in a string of JSON: as itself, or as the shortest escape.
ExpressionId json_character(RuleSet& rules, const CharSet& set);

// How many characters a text has.
struct LengthRange {
  uint32_t least = 0, most = kUnbounded;
};

// The content of strings in which `pattern`, a regular expression as in ECMA-262, is found: of
// characters, classes, groups, |, *, +, ?, {m,n}, \d, \w, \s, and ^ and $ at the ends of the
// pattern or of an alternative, behind which (?=…) and (?!…) may follow. Of its texts those of a
// `length`; a look ahead and a length that is not said by one character or class that comes more or
// less often take an automaton (intersection.h), which may become too large. What (?!…) excludes is
// also what it does in Python, whose \d, \w and \s are wider. Throws Error(kUnsupported) for
// everything else and kMalformed for what is no regular expression, naming the byte.
ExpressionId json_pattern(RuleSet& rules, std::string_view pattern, const LengthRange& length = {});

}  // namespace lumen::text::grammar
