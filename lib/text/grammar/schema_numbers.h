// Decimal numbers in a range, digit by digit.
#pragma once

#include <cstdint>

#include "lib/text/grammar/rules.h"

namespace lumen::text::grammar {

// Digits of a number that has no bound, before the point and after it: enough for any double.
inline constexpr uint32_t kMostDigits = 16;

// What minimum and maximum of a schema come to.
struct IntegerRange {
  int64_t least = -9'999'999'999'999'999, most = 9'999'999'999'999'999;
};

// The integers of `range`, which is not empty, without leading zeros.
ExpressionId integers(RuleSet& rules, const IntegerRange& range);

// Numbers of `range`, with up to kMostDigits decimals and no exponent; with `above` more than its
// least, with `below` less than its most. Not empty.
ExpressionId decimals(RuleSet& rules, const IntegerRange& range, bool above, bool below);

}  // namespace lumen::text::grammar
